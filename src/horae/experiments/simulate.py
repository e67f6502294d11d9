"""Complete runs: a workload through a scheduler on an engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from horae.driver import Observer, run
from horae.engines.engine import Engine
from horae.engines.search.engine import SearchEngine
from horae.engines.simulated import SimulatedEngine
from horae.journal import (
    create_journal,
)
from horae.model.events import Event, JobSubmitted
from horae.model.jobs import Arrival
from horae.model.plans import Reaction
from horae.model.reasons import Reason, Refusal
from horae.model.searches import Search
from horae.model.setup import Setup
from horae.reports.recorder import Recorder
from horae.reports.run_log import RunLog
from horae.scheduler import Scheduler


@dataclass(frozen=True)
class Run:
    """A workload that was run to its end."""

    recorder: Recorder
    refused: Mapping[str, Refusal]  # by job id: why it can never run
    unfinished: Mapping[str, Reason | None]  # accepted, but nothing is left that could start them

    @cached_property
    def log(self) -> RunLog:
        return self.recorder.log(self.refused)


def simulate(
    setup: Setup,
    arrivals: Iterable[Arrival],
    outside: Iterable[Event] = (),
    *,
    checkpoint_seconds: float = 0.0,
    journal: Path | None = None,
    origin: str = "",
    observers: Sequence[Observer] = (),
    enough: Callable[[], bool] = lambda: False,
    wrap: Callable[[Engine], Engine] = lambda engine: engine,
    searches: Sequence[Search] = (),
) -> Run:
    """Runs a workload in virtual time to its end, or until `enough` returns true.

    The scheduler is made first: bad input leaves no file behind. `wrap` wraps the engine, for example in one that
    learns speeds from observation. For `searches`, the arrivals contain the first jobs only. `origin` is the date and
    time of second 0, for the journal.
    """
    recorder = Recorder(setup)
    scheduler = Scheduler(setup)
    expected = recorder.expecting(arrivals)
    simulated = SimulatedEngine(setup.cluster, expected, outside, checkpoint_seconds, setup.sharing)
    engine = wrap(SearchEngine(simulated, searches, recorder.expect) if searches else simulated)
    refusals = _Refusals(scheduler)
    watching: list[Observer] = [recorder, refusals, *observers]
    if journal is None:
        run(scheduler, engine, watching, enough=enough, strict=True)
        return _outcome(recorder, scheduler, refusals)
    with create_journal(journal) as writer:
        writer.open(setup, origin)
        run(scheduler, engine, watching, writer, enough, strict=True)
    return _outcome(recorder, scheduler, refusals)


class _Refusals:
    """An observer that keeps the reasons of refused jobs, which the scheduler forgets after some days."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.found: dict[str, Refusal] = {}

    def reacted(self, event: Event, reaction: Reaction) -> None:
        if isinstance(event, JobSubmitted):
            reason = self._scheduler.jobs.refused.get(event.job.id)
            if reason is not None:
                self.found[event.job.id] = reason


def _outcome(recorder: Recorder, scheduler: Scheduler, refusals: _Refusals) -> Run:
    why = {job_id: refusals.found.get(job_id) or scheduler.why(job_id) for job_id in recorder.live}
    refused = {job_id: reason for job_id, reason in why.items() if isinstance(reason, Refusal)}
    unfinished = {job_id: reason for job_id, reason in why.items() if job_id not in refused}
    return Run(recorder, refused, unfinished)
