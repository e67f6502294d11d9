"""Many runs of Themis' simulations: each is answered from the store or run, and new results are stored at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from horae.experiments.result_store import ResultStore, result_key
from horae.experiments.workers import Tell, Work, WorkerSpec, WorkerTask, run_in_processes
from horae.model.serialization import to_plain
from horae_evaluation.gavel.results import runs_digest
from horae_evaluation.ideal_time import Shadow
from horae_evaluation.themis.experiment import ThemisCase, ThemisResult, run_case

RUNS = (
    "themis/experiment.py", "themis/app_greedy.py", "themis/baselines.py", "themis/best_placement.py",
    "themis/bid_errors.py", "ideal_time.py",
)  # fmt: skip


class Answers:
    """Results by a case's text."""

    def __init__(self, folder: Path, workers: int, tell: Callable[[str], None]) -> None:
        self.store = ResultStore(folder, tell)
        self._workers = workers
        self._tell = tell
        self._known: dict[str, ThemisResult] = {}

    def __call__(self, cases: Sequence[ThemisCase]) -> Mapping[str, ThemisResult]:
        for case in cases:
            if str(case) not in self._known and (result := self.store.load(self._key(case), ThemisResult)) is not None:
                self._known[str(case)] = result
        missing = list({str(case): case for case in cases if str(case) not in self._known}.values())
        # Cases of the same workload run consecutively, so that measurements for it are made once.
        missing.sort(key=lambda case: (case.workload, case.network_intensive, case.is_split, case.seed))
        errands = [WorkerTask(number, case) for number, case in enumerate(missing)]
        workers = max(min(self._workers, len(missing)), 1)
        with closing(run_in_processes(errands, WorkerSpec(open_shop, ""), workers, self)) as results:
            for done, (number, result) in enumerate(results if missing else ()):
                case = missing[number]
                self.store.save(self._key(case), result, about=str(case))
                self._known[str(case)] = result
                rho = f"max rho {result.rho_paper_max:.2f}, measured {result.rho_measured_max:.2f}"
                self._tell(f"{done + 1}/{len(missing)}: {case}: {rho}, in {result.processor_seconds:.0f} s")
        return self._known

    def started(self, number: int) -> None: ...

    def advanced(self, number: int, amount: float) -> None: ...

    def _key(self, case: ThemisCase) -> str:
        return result_key(case=to_plain(case), runs=runs_digest(RUNS))


def open_shop(nothing: str) -> Work[ThemisCase, ThemisResult]:
    shadows: dict[object, Shadow] = {}

    def work(case: ThemisCase, tell: Tell) -> ThemisResult:
        return run_case(case, shadows)

    return work
