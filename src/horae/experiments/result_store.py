"""Results that are there already. One file a run, its log, named after all that determines it."""

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

import numpy as np

import horae
from horae.experiments.compare.run_spec import Task
from horae.model.errors import InputError
from horae.model.jobs import Arrival, Job, Truth
from horae.model.serialization import to_plain
from horae.model.view import Policy
from horae.policies.registry import find_policy
from horae.reports.run_log import RunLog


def default_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "horae"


class Cache:
    """A cache that cannot be used is no reason to stop: it is said once, and the comparison goes on without it."""

    def __init__(self, folder: Path, warn: Callable[[str], None]) -> None:
        self.folder = folder
        self.failed = False
        self.kept_count = 0  # results of this comparison that are in it
        self._warn = warn

    def has(self, key: str) -> bool:
        """Whether there is a file; `load` finds out what it is worth."""
        return self._path(key).is_file()

    def load(self, key: str) -> RunLog | None:
        """None where there is none, or only a part of one: then it is run, and written, again."""
        try:
            log = RunLog.load(self._path(key))
        except (InputError, zlib.error):
            return None
        self.kept_count += 1
        return log

    def save(self, key: str, log: RunLog) -> None:
        if self.failed:
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            log.save(self._path(key))
            self.kept_count += 1
        except OSError as error:
            self._give_up(f"cannot be written: {error.strerror}")
        except InputError as error:
            self._give_up(error.problem)

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.npz"

    def _give_up(self, problem: str) -> None:
        self.failed = True
        remedy = "results are not kept; name another folder with --cache, or use --no-cache"
        self._warn(str(InputError(problem, file=str(self.folder), remedy=remedy)))


# What a run is known by: a digest of all that its result depends on, the same in every process.

PACKAGE = Path(horae.__file__).parent
_job_fields = attrgetter(*Job.__dataclass_fields__)
_truth_fields = attrgetter(*Truth.__dataclass_fields__)


def key(task: Task, workload_digest: str) -> str:
    """The name under which the result of a task is kept. The label is not part of it: it changes nothing."""
    names = sorted({pool.policy for pool in task.setup.pools})
    identity = {
        "setup": to_plain(task.setup),
        "seed": task.seed,
        "failures": to_plain(task.failures),
        "workload": workload_digest,
        "horae": horae.__version__,
        "sources": sources_digest(),
        "policies": {name: policy_digest(name) for name in names},
        "python": list(sys.version_info[:2]),
        "numpy": np.__version__.split(".")[:2],
    }
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()


def arrivals_digest(arrivals: Iterable[Arrival]) -> str:
    """Of the values alone: a pickle would also depend on which of them happen to be the same object."""
    digest = hashlib.sha256()
    for arrival in arrivals:
        row = (_job_fields(arrival.job), _truth_fields(arrival.truth))
        digest.update(json.dumps(row, default=to_plain).encode())
        digest.update(b"\n")
    return digest.hexdigest()


@cache
def sources_digest() -> str:
    """Of the package itself, so that changed code is never answered from the past."""
    return _sources(PACKAGE).hex()


def _sources(folder: Path) -> bytes:
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(f"{path.relative_to(folder).as_posix()}\n".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.digest()


def policy_digest(name: str) -> str:
    """Of all that somebody else's policy is made of; ours are among the package's sources."""
    return _class_digest(find_policy(name))


@cache
def _class_digest(kind: type[Policy]) -> str:
    """Of the whole package, as a policy may have helpers, and its version, as that may have libraries beside it."""
    module = kind.__module__
    file = getattr(sys.modules[module], "__file__", None)
    if file is None or Path(file).is_relative_to(PACKAGE):
        return ""
    folder = _package_folder(module)
    digest = hashlib.sha256(json.dumps(_versions(module.partition(".")[0])).encode())
    digest.update(hashlib.sha256(Path(file).read_bytes()).digest() if folder is None else _sources(folder))
    return digest.hexdigest()


def _package_folder(module: str) -> Path | None:
    """Of the outermost package that has an `__init__.py`: a namespace is shared with strangers. None: no package."""
    parts = module.split(".")
    for count in range(1, len(parts) + 1):
        package = sys.modules.get(".".join(parts[:count]))
        if package is not None and hasattr(package, "__path__") and getattr(package, "__file__", None):
            return Path(str(package.__file__)).parent
    return None


def _versions(package: str) -> list[tuple[str, str]]:
    """Of the distributions that installed it, if any did."""
    return sorted({(name, version(name)) for name in packages_distributions().get(package, ())})
