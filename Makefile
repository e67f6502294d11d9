# Everything sets itself up: `make demo` and `make test` need only Python 3.11+ and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: install demo test check docs bench nightly lock clean

install: $(READY)

$(READY): requirements.lock pyproject.toml evaluation/pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e . -e evaluation
	touch $(READY)

demo: install
	$(BIN)/horae demo

test: install
	$(BIN)/python -m pytest -q -n 2

check: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/check_words.py

# The site, in site/index.html. What builds it is installed only here: it would lengthen everyone's first `make`.
DOCS_READY := $(VENV)/.docs-ready

$(DOCS_READY): $(READY) docs/requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r docs/requirements.lock
	touch $(DOCS_READY)

# Not with --quiet: it would hide warnings from --strict.
docs: install $(DOCS_READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo open site/index.html

bench: install
	$(BIN)/python -m bench

# All of `make test` with more examples, and the tests marked `nightly`. `make nightly SEED=7` draws other examples; the
# same seed draws the same.
SEED ?= 0
nightly: install
	HYPOTHESIS_PROFILE=nightly HORAE_SEED=$(SEED) $(BIN)/python -m pytest -q -n 2 --hypothesis-seed=$(SEED)

# Resolves the dependencies anew; the only target that may change versions.
lock: install
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
		--no-emit-index-url --extra dev pyproject.toml -o requirements.lock
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
		--no-emit-index-url --extra docs --constraint requirements.lock pyproject.toml -o docs/requirements.lock

clean:
	rm -rf $(VENV) site .mypy_cache .ruff_cache .pytest_cache .hypothesis
