# Everything sets itself up: `make demo` and `make test` need only Python 3.11+ and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --disable-pip-version-check --progress-bar on
READY := $(VENV)/.ready
DEV_READY := $(VENV)/.dev-ready

.PHONY: install demo test test-kubernetes check docs bench nightly lock clean

# What the product needs, and its kernels, so that no later command waits for the compiler.
install: $(READY)
	$(BIN)/horae compile

$(READY): requirements.lock pyproject.toml evaluation/pyproject.toml sdk/pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(PIP) --require-hashes -r requirements.lock
	$(PIP) --no-deps --no-build-isolation -e . -e evaluation -e sdk
	touch $(READY)

# What developers need besides: tests, linters, other solvers to compare with.
$(DEV_READY): $(READY) requirements-dev.lock
	$(PIP) --require-hashes -r requirements-dev.lock
	touch $(DEV_READY)

demo: $(READY)
	$(BIN)/horae demo

test: $(DEV_READY)
	$(BIN)/python -m pytest -q -n 2

# The tests on a real Kubernetes control plane, which `make test` skips: they take minutes. Needs Go 1.26, or one that
# fetches it; the first build takes minutes, too, later runs find it in ~/.cache/horae.
test-kubernetes: $(DEV_READY)
	$(MAKE) -C tools/controlplane build
	HORAE_CONTROL_PLANE="$$(make -s --no-print-directory -C tools/controlplane path)" \
		$(BIN)/python -m pytest -q tests/kubernetes

check: $(DEV_READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/check_words.py

# The site, in site/index.html. What builds it is installed only here: it would lengthen everyone's first `make`.
DOCS_READY := $(VENV)/.docs-ready

$(DOCS_READY): $(DEV_READY) docs/requirements.lock
	$(PIP) --require-hashes -r docs/requirements.lock
	touch $(DOCS_READY)

# Not with --quiet: it would hide warnings from --strict.
docs: $(DOCS_READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo open site/index.html

bench: $(DEV_READY)
	$(BIN)/python -m bench

# All of `make test` with more examples, and the tests marked `nightly`. `make nightly SEED=7` draws other examples; the
# same seed draws the same.
SEED ?= 0
nightly: $(DEV_READY)
	HYPOTHESIS_PROFILE=nightly HORAE_SEED=$(SEED) $(BIN)/python -m pytest -q -n 2 --hypothesis-seed=$(SEED)

# Resolves the dependencies anew; the only target that may change versions. Each lock is bound by the one before.
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
	--no-emit-index-url pyproject.toml

lock: $(READY)
	$(PIP) uv
	$(COMPILE) --extra build -o requirements.lock
	$(COMPILE) --extra build --extra dev --constraint requirements.lock -o requirements-dev.lock
	$(COMPILE) --extra docs --constraint requirements-dev.lock -o docs/requirements.lock

clean:
	rm -rf $(VENV) site .mypy_cache .ruff_cache .pytest_cache .hypothesis
