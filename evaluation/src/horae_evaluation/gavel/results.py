"""Many cases: each is answered from the store or run, and new results are stored at once."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from functools import cache, partial
from pathlib import Path

from horae.experiments.result_store import ResultStore, default_folder, files_digest, plain_digest, result_key
from horae.experiments.workers import Results, Tell, Work, WorkerSpec, WorkerTask, run_in_processes
from horae.model.serialization import to_plain
from horae_evaluation.gavel.run import GavelResult, run_case
from horae_evaluation.gavel.setup import GavelCase, Tables
from horae_evaluation.progress import ReproductionProgress

PACKAGE = Path(__file__).parents[1]
RUNS = ("gavel/setup.py", "gavel/run.py", "noisy_engine.py")  # modules of this package that can change a result


def results_folder() -> Path:
    return default_folder() / "reproduce"


@cache
def runs_digest(runs: tuple[str, ...] = RUNS) -> str:
    return files_digest(PACKAGE, [PACKAGE / each for each in runs])


def case_key(case: GavelCase, tables: Tables) -> str:
    return result_key(case=to_plain(case), tables=_tables_digest(tables), runs=runs_digest())


@cache
def _tables_digest(tables: Tables) -> str:
    return plain_digest(to_plain(tables))


def run_cases(
    cases: Sequence[GavelCase], tables: Tables, workers: int, store: ResultStore, progress: ReproductionProgress
) -> list[GavelResult]:
    """The results in the order of the cases; neither the order nor the results depend on the number of workers."""
    names = [case_key(case, tables) for case in cases]
    found = {name: result for name in dict.fromkeys(names) if (result := store.load(name, GavelResult)) is not None}
    missing = [number for number, name in enumerate(names) if name not in found and names.index(name) == number]
    progress.begins(cases, missing)
    with (
        progress.shown(),
        closing(_run([(number, cases[number]) for number in missing], tables, workers, progress)) as ran,
    ):
        for number, result in ran:
            store.save(names[number], result, about=str(cases[number]))
            found[names[number]] = result
            progress.finished(number, result)
    return [found[name] for name in names]


def _run(
    cases: Sequence[tuple[int, GavelCase]], tables: Tables, workers: int, progress: ReproductionProgress
) -> Results[GavelResult]:
    if min(workers, len(cases)) > 1:
        errands = [WorkerTask(number, case) for number, case in cases]
        yield from run_in_processes(errands, WorkerSpec(_open_shop, tables), workers, progress)
        return
    for number, case in cases:
        progress.started(number)
        yield number, run_case(case, tables, partial(progress.advanced, number))


def _open_shop(tables: Tables) -> Work[GavelCase, GavelResult]:
    def work(case: GavelCase, tell: Tell) -> GavelResult:
        return run_case(case, tables, tell)

    return work
