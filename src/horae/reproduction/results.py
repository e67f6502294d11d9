"""Many cases: each is answered from what is kept or run, and what was run is kept at once."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Sequence
from contextlib import closing
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path

import horae
from horae.experiments.result_store import default_folder
from horae.experiments.workers import Errand, Results, Tell, Trade, Work, run_in_processes
from horae.model.errors import InputError
from horae.model.serialization import from_plain, to_plain
from horae.reproduction.gavel import Case, Tables
from horae.reproduction.progress import Progress
from horae.reproduction.simulation import Result, run_case

PACKAGE = Path(horae.__file__).parent
LIBRARIES = ("numpy", "scipy", "highspy", "numba")
# What only asks for runs or shows them: a change there is no reason to run anything again.
APART = ("cli", "reproduction", "reports/plots/comparison.py", "reports/plots/style.py", "reports/plots/comparison.py")
RUNS = ("reproduction/gavel.py", "reproduction/simulation.py")


def results_folder() -> Path:
    return default_folder() / "reproduce"


class Kept:
    """One small file a result, named after all that determines it."""

    def __init__(self, folder: Path, tables: Tables) -> None:
        self.folder = folder
        self._tables = digest(to_plain(tables))

    def name(self, case: Case) -> str:
        libraries = {name: version(name) for name in LIBRARIES}
        identity = {
            "case": to_plain(case),
            "tables": self._tables,
            "sources": sources_of_runs(),
            "python": list(sys.version_info[:2]),
            "libraries": libraries,
        }
        return digest(identity)

    def load(self, name: str) -> Result | None:
        """None where there is none, or only a part of one."""
        try:
            result: Result = from_plain(Result, json.loads(self._path(name).read_text(encoding="utf-8"))["result"])
        except (OSError, ValueError, TypeError, KeyError):
            return None
        return result

    def save(self, name: str, case: Case, result: Result) -> None:
        """Whole or not at all. What the case was is for whoever looks into the file."""
        text = json.dumps({"case": to_plain(case), "result": to_plain(result)}, indent=1)
        path = self._path(name)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            part = path.with_suffix(f".{os.getpid()}.part")
            part.write_text(text, encoding="utf-8")
            part.replace(path)
        except OSError as error:
            remedy = "name another folder with --cache"
            raise InputError(f"cannot be written: {error.strerror}", file=str(path), remedy=remedy) from None

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.json"


def digest(plain: object) -> str:
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


@cache
def sources_of_runs(runs: tuple[str, ...] = RUNS) -> str:
    """Of the package but for what comes after a run, so that changed code is never answered from the past."""
    digest = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*.py")):
        place = path.relative_to(PACKAGE).as_posix()
        if place in runs or not any(place == each or place.startswith(f"{each}/") for each in APART):
            digest.update(f"{place}\n".encode())
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def run_cases(cases: Sequence[Case], tables: Tables, workers: int, kept: Kept, progress: Progress) -> list[Result]:
    """In the order of the cases; neither that nor the results depend on the number of workers."""
    names = [kept.name(case) for case in cases]
    found = {name: result for name in dict.fromkeys(names) if (result := kept.load(name)) is not None}
    missing = [number for number, name in enumerate(names) if name not in found and names.index(name) == number]
    progress.begins(cases, missing)
    with (
        progress.shown(),
        closing(_run([(number, cases[number]) for number in missing], tables, workers, progress)) as ran,
    ):
        for number, result in ran:
            kept.save(names[number], cases[number], result)
            found[names[number]] = result
            progress.finished(number, result)
    return [found[name] for name in names]


def _run(cases: Sequence[tuple[int, Case]], tables: Tables, workers: int, progress: Progress) -> Results[Result]:
    if min(workers, len(cases)) > 1:
        errands = [Errand(number, case) for number, case in cases]
        yield from run_in_processes(errands, Trade(_open_shop, tables), workers, progress)
        return
    for number, case in cases:
        progress.started(number)
        yield number, run_case(case, tables, partial(progress.advanced, number))


def _open_shop(tables: Tables) -> Work[Case, Result]:
    def work(case: Case, tell: Tell) -> Result:
        return run_case(case, tables, tell)

    return work
