"""A comparison: every task is answered from the cache or run, here or in several processes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial

from horae.comparison.cache import Cache
from horae.comparison.crew import lost, run_in_processes
from horae.comparison.identity import key
from horae.comparison.progress import SILENT, Counter, Progress
from horae.comparison.task import Task
from horae.comparison.worker import Draws, Errand, Luggage, Results, execute
from horae.comparison.workload import Workload
from horae.policies.registry import POLICIES
from horae.reports.log import RunLog


@dataclass(frozen=True)
class Outcome:
    task: Task
    log: RunLog
    cached: bool  # it was there already


def compare(
    tasks: Sequence[Task],
    workload: Workload,
    workers: int = 1,
    cache: Cache | None = None,
    progress: Progress = SILENT,
) -> list[Outcome]:
    """The outcomes in the order of the tasks; neither they nor the order depend on the number of workers.

    Whatever ends it early (Ctrl-C, an error, a crash), the cache has all that was finished until then.
    """
    digests = {seed: workload.digest(seed) for seed in {task.seed for task in tasks}}
    keys = [key(task, digests[task.seed]) for task in tasks]
    found = {name: log for name in dict.fromkeys(keys) if cache and (log := cache.load(name))}
    missing = [index for index, name in enumerate(keys) if name not in found and name not in keys[:index]]
    made: dict[str, RunLog] = {}
    progress.begins(tasks, missing, jobs=len(workload(0)) if progress.watches_jobs else 0)
    errands = [Errand(index, tasks[index], progress.watches_jobs) for index in missing]
    with closing(_run(errands, workload, workers, progress)) as results:
        for index, log in results:
            made[keys[index]] = log
            if cache:
                cache.save(keys[index], log)
            progress.finished(index, len(log.jobs))
    return [Outcome(task, (found | made)[name], name in found) for task, name in zip(tasks, keys, strict=True)]


def _run(errands: Sequence[Errand], workload: Workload, workers: int, progress: Progress) -> Results:
    foreign = {name: kind for name, kind in POLICIES.items() if not kind.__module__.startswith("horae.")}
    # Nobody but this process can make a policy that is defined in the script it runs.
    here = min(workers, len(errands)) <= 1 or any(kind.__module__ == "__main__" for kind in foreign.values())
    if here:
        return _run_here(errands, workload, progress)
    return run_in_processes(errands, Luggage(workload, foreign), workers, progress)


def _run_here(errands: Sequence[Errand], workload: Workload, progress: Progress) -> Results:
    draws = Draws(workload)
    for errand in errands:
        progress.started(errand.number)
        observers = [Counter(partial(progress.advanced, errand.number))] if errand.watched else []
        try:
            log = execute(errand.task, draws[errand.task.seed], observers)
        except MemoryError:
            raise lost(errand, "ran out of memory") from None
        yield errand.number, log
