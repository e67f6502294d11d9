"""A store of experiment results, to avoid repeated runs: one file each, named by a digest of all inputs."""

from __future__ import annotations

import hashlib
import json
import os
import site
import sys
import sysconfig
import zlib
from collections.abc import Callable, Iterable
from functools import cache
from importlib.metadata import packages_distributions, version
from operator import attrgetter
from pathlib import Path
from types import CodeType
from typing import TypeVar

import horae
from horae.experiments.compare.run_spec import RunSpec
from horae.model.errors import InputError
from horae.model.jobs import Arrival, Job, Truth
from horae.model.serialization import from_plain, to_plain
from horae.model.view import Policy
from horae.policies.registry import find_policy
from horae.reports.run_log import RunLog

Value = TypeVar("Value")


def default_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "horae"


class ResultStore:
    """Results on disk, one file per result: the log of a run (.npz), or any frozen value (.json).

    A store that cannot be written does not stop the experiment: it is reported once, and the experiment continues
    without.
    """

    def __init__(self, folder: Path, warn: Callable[[str], None]) -> None:
        self.folder = folder
        self.failed = False
        self.stored_count = 0  # results of this experiment that were stored
        self._warn = warn

    def has(self, key: str, kind: type = RunLog) -> bool:
        """Whether there is a file; `load` checks whether it is complete."""
        return self._path(key, kind).is_file()

    def load(self, key: str, kind: type[Value]) -> Value | None:
        """The stored result; None where there is none or it is damaged, so that it is computed and written again."""
        path = self._path(key, kind)
        try:
            found: Value = (
                RunLog.load(path)  # type: ignore[assignment]
                if kind is RunLog
                else from_plain(kind, json.loads(path.read_text(encoding="utf-8"))["result"])
            )
        except (InputError, zlib.error, OSError, ValueError, TypeError, KeyError):
            return None
        self.stored_count += 1
        return found

    def save(self, key: str, value: object, about: str = "") -> None:
        """Writes a result atomically. `about` tells a reader of the file what it is the result of."""
        if self.failed:
            return
        path = self._path(key, type(value))
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if isinstance(value, RunLog):
                value.save(path)
            else:
                part = path.with_suffix(f".{os.getpid()}.part")
                part.write_text(json.dumps({"about": about, "result": to_plain(value)}, indent=1), encoding="utf-8")
                part.replace(path)
            self.stored_count += 1
        except OSError as error:
            self._give_up(f"cannot be written: {error.strerror}")
        except InputError as error:
            self._give_up(error.problem)

    def _path(self, key: str, kind: type) -> Path:
        return self.folder / f"{key}{'.npz' if issubclass(kind, RunLog) else '.json'}"

    def _give_up(self, problem: str) -> None:
        self.failed = True
        remedy = "results are not kept; name another folder with --cache, or use --no-cache"
        self._warn(str(InputError(problem, file=str(self.folder), remedy=remedy)))


# Keys: a digest of everything that a result depends on, the same in every process

PACKAGE = Path(horae.__file__).parent
LIBRARIES = ("numpy", "scipy", "highspy", "numba")
# Modules that only request runs or show them: a change there does not invalidate results.
SHOWING = (
    "cli", "reports/plots", "experiments/compare/figures.py", "experiments/compare/formats.py",
    "experiments/compare/job_results.py", "experiments/compare/report.py", "experiments/compare/report_file.py",
    "experiments/compare/report_words.py", "experiments/compare/table.py", "experiments/compare/terminal.py",
    "reports/html",
)  # fmt: skip
_job_fields = attrgetter(*Job.__dataclass_fields__)
_truth_fields = attrgetter(*Truth.__dataclass_fields__)


def key(task: RunSpec, workload_digest: str) -> str:
    """The key of a task's result. The label is not part of it, because it does not affect the result."""
    names = sorted({pool.policy for pool in task.setup.pools})
    return result_key(
        setup=to_plain(task.setup),
        seed=task.seed,
        failures=to_plain(task.failures),
        workload=workload_digest,
        policies={name: policy_digest(name) for name in names},
    )


def result_key(**inputs: object) -> str:
    """The key of a result: its inputs (plain data), the code of this package, and the libraries that compute."""
    identity = {
        "inputs": inputs,
        "horae": horae.__version__,
        "sources": sources_digest(),
        "python": list(sys.version_info[:2]),
        "libraries": {name: version(name) for name in LIBRARIES},
    }
    return plain_digest(identity)


def plain_digest(plain: object) -> str:
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def arrivals_digest(arrivals: Iterable[Arrival]) -> str:
    """A digest of the values alone: a pickle would also depend on object identity."""
    digest = hashlib.sha256()
    for arrival in arrivals:
        row = (_job_fields(arrival.job), _truth_fields(arrival.truth))
        digest.update(json.dumps(row, default=to_plain).encode())
        digest.update(b"\n")
    return digest.hexdigest()


@cache
def sources_digest() -> str:
    """A digest of the package's modules that can change a result, so that changed code never reuses old results."""
    files = [path for path in PACKAGE.rglob("*.py") if not _only_shows(path.relative_to(PACKAGE).as_posix())]
    return files_digest(PACKAGE, files)


def _only_shows(place: str) -> bool:
    return any(place == each or place.startswith(f"{each}/") for each in SHOWING)


def files_digest(folder: Path, files: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(f"{path.relative_to(folder).as_posix()}\n".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def policy_digest(name: str) -> str:
    """A digest of everything that a third-party policy consists of; ours are among the package's sources."""
    kind = find_policy(name)
    file = getattr(sys.modules[kind.__module__], "__file__", None)
    if file is None or not Path(file).is_file():  # defined in a notebook, or on standard input
        return _code_digest(kind)
    return "" if Path(file).is_relative_to(PACKAGE) else _class_digest(kind, Path(file))


@cache
def _class_digest(kind: type[Policy], file: Path) -> str:
    """A digest of the whole package with its data, as a policy may have helpers, of its version, as it may have
    dependencies, and of all other modules that were imported from the user's own folders."""
    module = kind.__module__
    folder = _package_folder(module)
    digest = hashlib.sha256(json.dumps(_versions(module.partition(".")[0])).encode())
    files = [file] if folder is None else [path for path in folder.rglob("*") if _is_source(path)]
    digest.update(files_digest(folder or file.parent, files).encode())
    for path in sorted(_own_modules()):
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _is_source(path: Path) -> bool:
    return path.is_file() and "__pycache__" not in path.parts and path.suffix not in (".nbc", ".nbi", ".lock")


def _own_modules() -> set[Path]:
    """The files of imported modules that no distribution installed and that are not part of Python."""
    installed = [Path(place) for place in {*sysconfig.get_paths().values(), *site.getsitepackages()}]
    found = {Path(file) for each in list(sys.modules.values()) if (file := getattr(each, "__file__", None))}
    return {
        file
        for file in found
        if file.suffix == ".py"
        and file.is_file()
        and not file.is_relative_to(PACKAGE)
        and not any(file.is_relative_to(place) for place in installed)
    }


def _code_digest(kind: type[Policy]) -> str:
    """A digest of the compiled methods of a class, of its values, and of the values and functions that it names."""
    digest = hashlib.sha256()
    around = getattr(sys.modules.get(kind.__module__), "__dict__", {})
    for name, value in sorted(vars(kind).items()):
        code = getattr(value, "__code__", None)
        plain = (
            _code_parts(code) if code is not None else "" if callable(value) or name.startswith("__") else repr(value)
        )
        digest.update(f"{name}={plain};".encode())
        for used in code.co_names if code is not None else ():
            given = around.get(used)
            inner = getattr(given, "__code__", None)
            if inner is not None or isinstance(given, str | int | float | tuple | list | dict):
                digest.update(f"{used}={repr(given) if inner is None else _code_parts(inner)};".encode())
    return digest.hexdigest()


def _code_parts(code: CodeType) -> str:
    """What a function does; the places of its lines do not matter."""
    constants = [_code_parts(each) if isinstance(each, CodeType) else repr(each) for each in code.co_consts]
    return f"{code.co_code.hex()} {constants} {code.co_names} {code.co_varnames}"


def _package_folder(module: str) -> Path | None:
    """The folder of the outermost package with an `__init__.py`, because namespaces are shared; None: no package."""
    parts = module.split(".")
    for count in range(1, len(parts) + 1):
        package = sys.modules.get(".".join(parts[:count]))
        if package is not None and hasattr(package, "__path__") and getattr(package, "__file__", None):
            return Path(str(package.__file__)).parent
    return None


def _versions(package: str) -> list[tuple[str, str]]:
    """The versions of the distributions that installed it, if any."""
    return sorted({(name, version(name)) for name in packages_distributions().get(package, ())})
