"""Compiled kernels are found again, and never run the code of former sources."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import pytest

import horae
from horae.compiling import UNUSED_SECONDS_MAX, sources_of

PACKAGE = Path(horae.__file__).parent
# A package of two modules: a kernel, and a part that it takes from the other.
PART = "from numba import njit\nSTEP = {step}\n\n@njit\ndef plus(x):\n    return x + STEP\n"
KERNEL = """\
from horae.compiling import kernel
from horae.inner.part import plus

@kernel(error_model="numpy")
def probe(x):
    return plus(x)
"""
# The same of functions that know nothing of numba.
PLAIN_PART = "STEP = {step}\n\ndef by(x):\n    return x + STEP\n\ndef plus(x):\n    return by(x)\n"
KERNEL_OF_PLAIN = """\
from horae.compiling import kernel, part
from horae.inner.part import plus

_plus = part(plus)
assert plus(0.5) == 0.5 + plus(0)  # as it is

@kernel(error_model="numpy")
def probe(x):
    return _plus(x)
"""
# One whose first calls, of up to ten elements together, are not compiled.
KERNEL_OF_SMALL_CALLS = """\
from horae.compiling import kernel
from horae.inner.part import plus

@kernel(small=10)
def probe(x):
    return plus(x[0])
"""
PROBE = """\
import sys
from horae.probe import probe
print(*(probe(eval(text)) for text in sys.argv[1:]), sum(probe.stats.cache_hits.values()))
"""


class Copy(NamedTuple):
    """A copy of what kernels need of the package."""

    root: Path

    def change(self, step: int, part: str = PART) -> None:
        (self.root / "horae/inner/part.py").write_text(part.format(step=step))
        for compiled in self.root.rglob("part.*.pyc"):
            compiled.unlink()  # Python looks at the size and the second of a source only

    def start(self, *values: str, **environment: str) -> subprocess.Popen[str]:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
        return subprocess.Popen(
            [sys.executable, "-c", PROBE, *values],
            env={**clean, "PYTHONPATH": str(self.root), **environment},
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, *values: str, **environment: str) -> list[str]:
        """What the kernel answers for each value, and how often it was found compiled."""
        return answer_of(self.start(*values, **environment))

    def kept(self) -> list[Path]:
        return sorted(self.root.rglob("probe.probe-*.nbc"))


def answer_of(process: subprocess.Popen[str]) -> list[str]:
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    return out.split()


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    made = Copy(tmp_path / "src")
    (made.root / "horae/inner").mkdir(parents=True)
    for name in ("__init__.py", "compiling.py", "uncompiled.py"):
        shutil.copy(PACKAGE / name, made.root / "horae")
    (made.root / "horae/inner/__init__.py").touch()
    (made.root / "horae/probe.py").write_text(KERNEL)
    made.change(1)
    return made


def test_a_kernel_is_kept_until_a_part_of_it_changes(copy: Copy) -> None:
    assert copy.run("1") == ["2", "0"]
    assert copy.run("1") == ["2", "1"]
    (copy.root / "horae/other.py").write_text("# no kernel has anything from here\n")
    assert copy.run("1") == ["2", "1"]
    copy.change(10)
    assert copy.run("1") == ["11", "0"]
    assert copy.run("1") == ["11", "1"]
    copy.change(1)
    assert copy.run("1") == ["2", "1"]  # the former version is still there


def test_a_kernel_of_plain_functions_is_kept_until_one_of_them_changes(copy: Copy) -> None:
    (copy.root / "horae/probe.py").write_text(KERNEL_OF_PLAIN)
    copy.change(1, PLAIN_PART)
    assert copy.run("1") == ["2", "0"]
    assert copy.run("1") == ["2", "1"]
    copy.change(10, PLAIN_PART)
    assert copy.run("1") == ["11", "0"]
    assert copy.run("1") == ["11", "1"]


def test_what_was_not_used_for_a_week_is_removed_with_the_next_change(copy: Copy) -> None:
    copy.run("1")
    (former,) = copy.kept()
    copy.change(10)
    copy.run("1")
    assert former in copy.kept()
    for path in copy.kept():
        os.utime(path, times=(0, time.time() - UNUSED_SECONDS_MAX - 60))
    copy.run("1")  # that one is in use again
    copy.change(100)
    copy.run("1")
    assert former not in copy.kept()
    assert len(copy.kept()) == 2


def test_processes_that_start_at_once_do_not_get_in_each_others_way(copy: Copy) -> None:
    """With types of their own, so that each has something to keep for the same kernel."""
    wanted = {"1": "2", "0.5": "1.5", "1j": "(1+1j)"}
    for process, want in [(copy.start(text), want) for text, want in wanted.items()]:
        assert answer_of(process) == [want, "0"]
    assert copy.run(*wanted) == [*wanted.values(), "3"]


def test_of_processes_that_need_the_same_at_once_one_compiles(copy: Copy) -> None:
    answers = [answer_of(process) for process in [copy.start("1") for _ in range(3)]]
    assert sorted(answers) == [["2", "0"], ["2", "1"], ["2", "1"]]
    assert not list(copy.root.rglob("*.lock"))


def test_a_damaged_file_is_compiled_again(copy: Copy) -> None:
    copy.run("1")
    (file,) = copy.kept()
    content = file.read_bytes()
    for damaged in (content[:-1], content[:100] + b"x" + content[101:]):
        file.write_bytes(damaged)
        assert copy.run("1") == ["2", "0"]
    assert copy.run("1") == ["2", "1"]


def test_where_the_sources_are_read_only_the_users_folder_is_used(copy: Copy, tmp_path: Path) -> None:
    shutil.rmtree(copy.root / "horae/__pycache__", ignore_errors=True)
    (copy.root / "horae/__pycache__").touch()  # no folder can be made there
    home = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "HOME": str(tmp_path)}
    assert copy.run("1", **home) == ["2", "0"]
    assert copy.run("1", **home) == ["2", "1"]
    nowhere = {"XDG_CACHE_HOME": "/dev/null/cache", "HOME": "/dev/null"}
    assert copy.run("1", **nowhere) == ["2", "0"]


def test_a_full_disk_is_no_reason_to_stop(copy: Copy) -> None:
    command = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n{PROBE}"
    environment = {**os.environ, "PYTHONPATH": str(copy.root), "PYTHONDONTWRITEBYTECODE": "1"}
    out = subprocess.run(
        [sys.executable, "-c", command, "1"], env=environment, capture_output=True, text=True, check=True
    )
    assert out.stdout.split() == ["2", "0"]
    assert not list(copy.root.rglob("probe.probe-*"))


def test_small_calls_are_not_compiled_until_they_are_many(copy: Copy) -> None:
    (copy.root / "horae/probe.py").write_text(KERNEL_OF_SMALL_CALLS)
    four = "__import__('numpy').array([1, 0, 0, 0])"
    assert copy.run(four, four) == ["2", "2", "0"]
    assert not copy.kept()
    assert copy.run(four, four, four, four) == ["2", "2", "2", "2", "0"]
    assert len(copy.kept()) == 1
    copy.change(10)  # what is on disk has no part in it
    assert copy.run(four, four) == ["11", "11", "0"]
    assert len(copy.kept()) == 1


def test_a_large_call_is_compiled_at_once(copy: Copy) -> None:
    (copy.root / "horae/probe.py").write_text(KERNEL_OF_SMALL_CALLS)
    assert copy.run("__import__('numpy').arange(11)") == ["1", "0"]
    assert len(copy.kept()) == 1


def test_who_watches_is_told_which_kernel_is_compiled(copy: Copy) -> None:
    script = f"import sys\nsys.stderr.isatty = lambda: True\n{PROBE}from horae import compiling\n"
    script += "print(compiling.compilations)"
    environment = {**os.environ, "PYTHONPATH": str(copy.root)}
    environment.pop("NUMBA_CACHE_DIR", None)
    told = "compiling probe.probe; later runs load it\n"
    for err, compiled in ((told, "['probe.probe']"), ("", "[]")):
        command = [sys.executable, "-c", script, "1"]
        out = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert (out.stderr, out.stdout.splitlines()[-1]) == (err, compiled)


# The modules of Horae


def modules() -> Iterable[Path]:
    return (path for path in PACKAGE.rglob("*.py") if path.name != "compiling.py")


def test_every_kernel_is_kept_by_all_its_sources() -> None:
    """`njit(cache=True)` would look at the file of the kernel alone."""
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("njit", "jit", "numba.njit", "numba.jit"):
                assert "cache" not in [word.arg for word in node.keywords], f"{path}:{node.lineno}: use kernel()"


def imports(path: Path) -> list[ast.ImportFrom]:
    return [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]


def test_the_sources_of_a_kernel_are_all_modules_that_it_imports() -> None:
    kernels = [
        path for path in modules() if any(name.name == "kernel" for node in imports(path) for name in node.names)
    ]
    assert len(kernels) > 10
    for path in kernels:
        sources = sources_of(path)
        for source in sources:
            for node in imports(source):
                assert node.level == 0 and node.module != "horae", f"{source}:{node.lineno}: name the module in full"
                if node.module is not None and node.module.startswith("horae."):
                    assert PACKAGE.parent.joinpath(*node.module.split(".")).with_suffix(".py") in sources
    (levels,) = (path for path in kernels if path.name == "water_filling_kernel.py")
    assert {"pricing_kernel.py", "simplex_kernel.py", "compiling.py"} <= {path.name for path in sources_of(levels)}
    (settles,) = (path for path in kernels if path.name == "flat_pass_kernel.py")
    assert {"fit_rules.py", "evict.py", "pass_rules.py", "flat_kernel.py"} <= {
        path.name for path in sources_of(settles)
    }
