"""Many runs of Themis' simulations: each is answered from what is kept or run, and what was run is kept at once."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from horae.experiments.workers import Errand, Tell, Trade, Work, run_in_processes
from horae.model.errors import InputError
from horae.model.serialization import from_plain, to_plain
from horae.reproduction.results import digest, sources_of_runs
from horae.reproduction.themis import Case, Result, run_case
from horae.shadow import Shadow

RUNS = ("reproduction/themis.py",)


class Answers:
    """What a case comes to, by what it says in words."""

    def __init__(self, folder: Path, workers: int, tell: Callable[[str], None]) -> None:
        self.folder = folder
        self._workers = workers
        self._tell = tell
        self._known: dict[str, Result] = {}

    def __call__(self, cases: Sequence[Case]) -> Mapping[str, Result]:
        for case in cases:
            if str(case) not in self._known and (result := self._load(case)) is not None:
                self._known[str(case)] = result
        missing = list({str(case): case for case in cases if str(case) not in self._known}.values())
        # The same workload one after the other, so that what was measured for it is measured once.
        missing.sort(key=lambda case: (case.workload, case.network_intensive, case.is_split, case.seed))
        errands = [Errand(number, case) for number, case in enumerate(missing)]
        workers = max(min(self._workers, len(missing)), 1)
        with closing(run_in_processes(errands, Trade(open_shop, ""), workers, self)) as results:
            for done, (number, result) in enumerate(results if missing else ()):
                case = missing[number]
                self._save(case, result)
                self._known[str(case)] = result
                rho = f"max rho {result.rho_paper_max:.2f}, measured {result.rho_measured_max:.2f}"
                self._tell(f"{done + 1}/{len(missing)}: {case}: {rho}, in {result.processor_seconds:.0f} s")
        return self._known

    def started(self, number: int) -> None: ...

    def advanced(self, number: int, amount: float) -> None: ...

    def _path(self, case: Case) -> Path:
        return self.folder / f"themis-{digest([to_plain(case), sources_of_runs(RUNS)])}.json"

    def _load(self, case: Case) -> Result | None:
        """None where there is none, or only a part of one."""
        try:
            plain = json.loads(self._path(case).read_text(encoding="utf-8"))["result"]
            result: Result = from_plain(Result, plain)
        except (OSError, ValueError, TypeError, KeyError):
            return None
        return result

    def _save(self, case: Case, result: Result) -> None:
        path = self._path(case)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            part = path.with_suffix(f".{os.getpid()}.part")
            part.write_text(json.dumps({"case": str(case), "result": to_plain(result)}, indent=1), encoding="utf-8")
            part.replace(path)
        except OSError as error:
            remedy = "name another folder with --cache"
            raise InputError(f"cannot be written: {error.strerror}", file=str(path), remedy=remedy) from None


def open_shop(nothing: str) -> Work[Case, Result]:
    shadows: dict[object, Shadow] = {}

    def work(case: Case, tell: Tell) -> Result:
        return run_case(case, shadows)

    return work
