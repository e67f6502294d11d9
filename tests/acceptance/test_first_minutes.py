"""A user's first minutes: help at once, small runs without a compiler, and an install of the product alone."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import command_reference
import pytest
from command_line import horae, horae_process
from patience import HANG_SECONDS

from horae import __version__, compiling, samples
from horae.cli.compile_kernels import POLICIES
from horae.cli.workload import EQUALLY_FAST
from horae.experiments.inputs import choose_policies
from horae.experiments.precompile import kernels_of

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^\.venv/bin/horae (.*)$", README, re.MULTILINE)
HEAVY = ("numpy", "polars", "numba", "matplotlib", "scipy", "pydantic", "rich", "horae.policies", "horae.scheduler")
WIDTH = 80  # of a terminal; longer examples would be wrapped, and could not be copied
INDENT = 4

# Help


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["--version"], []])
def test_the_help_imports_no_library(arguments: list[str]) -> None:
    script = (
        "import json, sys, horae.cli.main as main\n"
        f"sys.argv = ['horae', *{arguments}]\n"
        "try:\n    main.run()\n"
        f"finally:\n    print(json.dumps([name for name in {HEAVY} if name in sys.modules]))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=HANG_SECONDS, check=False
    )
    assert json.loads(answer.stdout.splitlines()[-1]) == []


def test_the_help_of_the_benchmarks_imports_none_of_them() -> None:
    script = (
        "import runpy, sys\nsys.argv = ['bench', '--help']\n"
        "try:\n    runpy.run_module('bench', run_name='__main__')\n"
        f"finally:\n    print([name for name in {HEAVY} if name in sys.modules])"
    )
    answer = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=HANG_SECONDS, check=True
    )
    assert answer.stdout.splitlines()[-1] == "[]"


def test_the_version_can_be_asked_for_in_both_ways() -> None:
    assert horae("version").out == horae("--version").out == f"{__version__}\n"


EVERY_COMMAND = [(words, command, context) for words, command, context in command_reference.commands()]
NAMES = [" ".join(words) or "horae" for words, _, _ in EVERY_COMMAND]


@pytest.mark.parametrize(("words", "command", "context"), EVERY_COMMAND, ids=NAMES)
def test_every_help_has_two_examples_that_can_be_typed(words: tuple[str, ...], command: Any, context: Any) -> None:
    short, long = horae(*words, "-h"), horae(*words, "--help")
    assert short == long
    assert (short.code, short.err) == (0, "")
    lines = short.out.splitlines()
    shown = [line.strip() for line in lines[lines.index("  Examples:") + 1 :] if line.strip()]
    assert len(shown) >= 2
    for example in shown:
        assert len(example) <= WIDTH - INDENT
        check_example(shlex.split(example))
    assert any(shlex.split(example)[1 : 1 + len(words)] == list(words) for example in shown)


def check_example(words: list[str]) -> None:
    """The command exists with these options, each with its value, and with as many arguments as it takes."""
    assert words[0] == "horae"
    if ">" in words:
        words = words[: words.index(">")]
    if words[1:] == ["--version"]:
        return
    found = [item for item in EVERY_COMMAND if item[0] and tuple(words[1 : 1 + len(item[0])]) == item[0]]
    name, command, _ = max(found, key=lambda item: len(item[0]))
    assert not hasattr(command, "list_commands"), words
    command.make_context(" ".join(name), words[1 + len(name) :])  # rejects unknown options and missing arguments


@pytest.mark.parametrize(
    ("words", "want"),
    [("horae si", ["simulate"]), ("horae trace ", ["info", "convert", "generate", "plot"]), ("horae -", ["--version"])],
)
def test_the_shell_can_complete(words: str, want: list[str]) -> None:
    before, _, last = words.rpartition(" ")
    environment = {"COMP_WORDS": words, "COMP_CWORD": str(len(before.split())), "_HORAE_COMPLETE": "complete_bash"}
    assert horae_process(**environment).out.split()[: len(want)] == want
    assert last == words.rsplit(" ", maxsplit=1)[-1]


# Kernels


def few_jobs(tmp_path: Path, count: int) -> Path:
    path = tmp_path / "few.csv"
    path.write_text("".join(samples.JOBS.read_text().splitlines(keepends=True)[: count + 1]))
    return path


def block(kind: str, name: str) -> str:
    (found,) = re.findall(rf"```{kind}\n# {re.escape(name)}\n(.*?)```", README, re.DOTALL)
    return str(found)


@pytest.mark.parametrize("policy", [None, "max-min", "themis"])
def test_a_small_run_compiles_nothing(policy: str | None, tmp_path: Path) -> None:
    """Neither the example of the README nor a dozen jobs of the sample."""
    kernels = tmp_path / "kernels"
    arguments: tuple[object, ...] = ("--jobs", few_jobs(tmp_path, 12), "--policy", policy)
    if policy is None:
        (tmp_path / "lab.yaml").write_text(block("yaml", "lab.yaml"))
        (tmp_path / "jobs.csv").write_text(block("csv", "jobs.csv"))
        arguments = ("--cluster", tmp_path / "lab.yaml", "--jobs", tmp_path / "jobs.csv")
    done = horae_process("simulate", *arguments, NUMBA_CACHE_DIR=str(kernels))
    assert (done.code, done.err.replace(f"{EQUALLY_FAST}\n", "")) == (0, "")
    assert not list(kernels.rglob("*.nbc"))


def readme_simulations() -> Iterator[list[str]]:
    for command in COMMANDS:
        words = shlex.split(command)
        if words[0] == "simulate" and "--cluster" not in words and "--journal" not in words:
            yield words


def test_what_the_readme_runs_needs_only_kernels_that_the_install_compiles(tmp_path: Path) -> None:
    jobs, record = few_jobs(tmp_path, 60), tmp_path / "sacct.txt"
    record.write_text("".join(samples.ACCOUNTING.read_text().splitlines(keepends=True)[:100]))
    with compiling.recording() as needed:
        for words in readme_simulations():
            assert horae(*words, "--jobs", jobs).code == 0
        for command in COMMANDS:
            if "sacct.txt" in command:
                words = [str(record) if "sacct.txt" in word else word for word in shlex.split(command)]
                more = ("--no-cache", "--workers", "1", "--plots", str(tmp_path / "plots"))
                assert horae(*words, *more).code == 0
    assert needed
    assert needed <= set(kernels_of(list(choose_policies(POLICIES).values())))


def test_every_kernel_is_compiled_for_one_kind_of_arguments() -> None:
    needed = kernels_of(list(choose_policies([*POLICIES, "makespan", "finish-time-fairness"]).values()))
    assert len({str(each) for each in needed}) == len(needed)


def test_kernels_can_be_compiled_in_advance(tmp_path: Path) -> None:
    """A policy that needs none: the others take a minute."""
    assert horae("compile", "fifo").out.startswith("0 kernels are ready")
    assert horae("compile", "fifa").complaint.startswith("--policy: there is no policy 'fifa'")


# Locks


def pinned(lock: str) -> set[str]:
    return set(re.findall(r"^([a-z0-9-]+)==", (ROOT / lock).read_text(), re.MULTILINE))


def declared(*extras: str) -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [*project["dependencies"], *(line for extra in extras for line in project["optional-dependencies"][extra])]
    return {re.split(r"[\[<>=]", line)[0].lower() for line in lines}


def versions(lock: str) -> set[tuple[str, str]]:
    return set(re.findall(r"^([a-z0-9-]+)==(\S+)", (ROOT / lock).read_text(), re.MULTILINE))


def test_the_lock_of_the_product_has_what_it_needs_and_nothing_for_developers() -> None:
    assert declared("build") <= pinned("requirements.lock")
    assert not (declared("dev", "docs") - declared("build")) & pinned("requirements.lock")


def test_the_locks_agree() -> None:
    assert declared("build", "dev") <= pinned("requirements-dev.lock")
    assert declared("docs") <= pinned("docs/requirements.lock")
    assert versions("requirements.lock") <= versions("requirements-dev.lock")
    common = pinned("requirements-dev.lock") & pinned("docs/requirements.lock")
    assert {each for each in versions("docs/requirements.lock") if each[0] in common} <= versions(
        "requirements-dev.lock"
    )
