"""Runs a comparison: each task is answered from the cache or run, in this process or in several."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeAlias

from horae.driver import Observer
from horae.experiments.compare.run_spec import RunSpec
from horae.experiments.compare.workload import Workload
from horae.experiments.progress import SILENT, Counter, Progress
from horae.experiments.result_store import ResultStore, key
from horae.experiments.simulate import simulate
from horae.experiments.workers import Results, Tell, Work, WorkerSpec, WorkerTask, lost, run_in_processes
from horae.model.jobs import Arrival
from horae.model.view import Policy
from horae.policies.registry import POLICIES
from horae.reports.run_log import RunLog


@dataclass(frozen=True)
class ComparedRun:
    task: RunSpec
    log: RunLog
    cached: bool  # it was in the cache


Numbered: TypeAlias = tuple[int, ComparedRun]  # with the index of its task


def compare(
    tasks: Sequence[RunSpec],
    workload: Workload,
    workers: int = 1,
    cache: ResultStore | None = None,
    progress: Progress = SILENT,
) -> list[ComparedRun]:
    """The outcomes in the order of the tasks; neither they nor the order depend on the number of workers."""
    with closing(_numbered(tasks, workload, workers, cache, progress)) as found:
        return [outcome for _, outcome in sorted(found, key=lambda item: item[0])]


def outcomes(
    tasks: Sequence[RunSpec],
    workload: Workload,
    workers: int = 1,
    cache: ResultStore | None = None,
    progress: Progress = SILENT,
) -> Generator[ComparedRun, None, None]:
    """The outcomes as they arrive, mostly draw by draw, so that a caller need not keep all of them."""
    with closing(_numbered(tasks, workload, workers, cache, progress)) as found:
        for _, outcome in found:
            yield outcome


def _numbered(
    tasks: Sequence[RunSpec], workload: Workload, workers: int, cache: ResultStore | None, progress: Progress
) -> Generator[Numbered, None, None]:
    """Numbered outcomes; if it ends early (Ctrl-C, an error, a crash),
    the cache has all results finished until then."""
    runs = _runs(tasks, workload)
    there = {name for name in runs if cache and cache.has(name)}
    missing = {indexes[0]: name for name, indexes in runs.items() if name not in there}
    progress.begins(tasks, list(missing), jobs=len(workload(0)) if progress.watches_jobs else 0)
    archive = _Archive(tasks, runs, workload, cache, progress)
    kept = deque(name for name in runs if name in there)
    errands = [WorkerTask(index, tasks[index]) for index in missing]
    with closing(_run(errands, workload, workers, progress)) as results:
        for index, log in results:
            # Cached results up to this draw come first, so that a caller that aggregates by draw can release them.
            while kept and archive.seed(kept[0]) <= tasks[index].seed:
                yield from archive.recall(kept.popleft())
            yield from archive.file(missing[index], log)
        for name in kept:
            yield from archive.recall(name)


def _runs(tasks: Sequence[RunSpec], workload: Workload) -> dict[str, list[int]]:
    """By key, the tasks that have this result: one run may have two labels."""
    digests = {seed: workload.digest(seed) for seed in {task.seed for task in tasks}}
    runs: dict[str, list[int]] = {}
    for index, task in enumerate(tasks):
        runs.setdefault(key(task, digests[task.seed]), []).append(index)
    return runs


@dataclass(frozen=True)
class _Archive:
    """Reads and writes results in the cache."""

    tasks: Sequence[RunSpec]
    runs: Mapping[str, Sequence[int]]
    workload: Workload
    cache: ResultStore | None
    progress: Progress

    def seed(self, name: str) -> int:
        return self.tasks[self.runs[name][0]].seed

    def file(self, name: str, log: RunLog) -> Iterator[Numbered]:
        if self.cache:
            self.cache.save(name, log)
        self.progress.finished(self.runs[name][0], len(log.jobs))
        return self._outcomes(name, log, cached=False)

    def recall(self, name: str) -> Iterator[Numbered]:
        """The cached result, or None; a file that exists may be damaged, and is then computed and written again."""
        log = self.cache.load(name, RunLog) if self.cache else None
        if log is not None:
            return self._outcomes(name, log, cached=True)
        index = self.runs[name][0]
        errand = WorkerTask(index, self.tasks[index])
        ((_, log),) = _run_here([errand], self.workload, self.progress)
        return self.file(name, log)

    def _outcomes(self, name: str, log: RunLog, cached: bool) -> Iterator[Numbered]:
        return iter([(index, ComparedRun(self.tasks[index], log, cached)) for index in self.runs[name]])


def _run(
    errands: Sequence[WorkerTask[RunSpec]], workload: Workload, workers: int, progress: Progress
) -> Results[RunLog]:
    foreign = {name: kind for name, kind in POLICIES.items() if not kind.__module__.startswith("horae.")}
    # Only this process can make a policy that is defined in the script it runs.
    here = min(workers, len(errands)) <= 1 or any(kind.__module__ == "__main__" for kind in foreign.values())
    if here:
        return _run_here(errands, workload, progress)
    trade = WorkerSpec(make_worker, WorkerContext(workload, foreign, progress.watches_jobs))
    return run_in_processes(errands, trade, workers, progress)


def _run_here(errands: Sequence[WorkerTask[RunSpec]], workload: Workload, progress: Progress) -> Results[RunLog]:
    draws = Draws(workload)
    for errand in errands:
        progress.started(errand.number)
        observers = [Counter(partial(progress.advanced, errand.number))] if progress.watches_jobs else []
        try:
            log = execute(errand.task, draws[errand.task.seed], observers)
        except MemoryError:
            raise lost(errand, "ran out of memory") from None
        yield errand.number, log


# The worker process of a comparison; it starts in a fraction of a second because it imports nothing but the core


class WorkerContext(NamedTuple):
    """What every worker needs, sent once."""

    workload: Workload
    policies: Mapping[str, type[Policy]]  # policies that are not part of the package
    watched: bool  # whether progress in jobs is reported


def execute(task: RunSpec, arrivals: Sequence[Arrival], observers: Sequence[Observer] = ()) -> RunLog:
    failures = task.failures
    return simulate(
        task.setup,
        arrivals,
        failures.plan(task.setup, task.seed, arrivals),
        checkpoint_seconds=failures.checkpoint_seconds,
        observers=observers,
    ).log


class Draws:
    """The current draw. Tasks are sorted by seed, so the previous one is not needed again."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._seed: int | None = None
        self._arrivals: list[Arrival] = []

    def __getitem__(self, seed: int) -> list[Arrival]:
        if seed != self._seed:
            self._arrivals = self._workload(seed)
            self._seed = seed
        return self._arrivals


def make_worker(luggage: WorkerContext) -> Work[RunSpec, RunLog]:
    POLICIES.update(luggage.policies)
    draws = Draws(luggage.workload)

    def work(task: RunSpec, tell: Tell) -> RunLog:
        return execute(task, draws[task.seed], [Counter(tell)] if luggage.watched else [])

    return work
