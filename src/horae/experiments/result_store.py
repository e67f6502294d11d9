"""A store of experiment results, to avoid repeated runs: one file each, named by a digest of all inputs."""

from __future__ import annotations

import hashlib
import json
import os
import sys
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
    "experiments/compare/job_results.py", "experiments/compare/table.py", "experiments/compare/terminal.py",
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
    return _class_digest(find_policy(name))


@cache
def _class_digest(kind: type[Policy]) -> str:
    """A digest of the whole package, as a policy may have helpers, and of its version, as it may have dependencies."""
    module = kind.__module__
    file = getattr(sys.modules[module], "__file__", None)
    if file is None or not Path(file).is_file():  # defined in a notebook, or on standard input
        return _code_digest(kind)
    if Path(file).is_relative_to(PACKAGE):
        return ""
    folder = _package_folder(module)
    digest = hashlib.sha256(json.dumps(_versions(module.partition(".")[0])).encode())
    files = [Path(file)] if folder is None else folder.rglob("*.py")
    digest.update(files_digest(folder or Path(file).parent, files).encode())
    return digest.hexdigest()


def _code_digest(kind: type[Policy]) -> str:
    """A digest of the compiled methods of a class, and of its values."""
    digest = hashlib.sha256()
    for name, value in sorted(vars(kind).items()):
        code = getattr(value, "__code__", None)
        plain = (
            _code_parts(code) if code is not None else "" if callable(value) or name.startswith("__") else repr(value)
        )
        digest.update(f"{name}={plain};".encode())
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
