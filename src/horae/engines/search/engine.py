"""An engine whose apps are searches: their optimisers observe which jobs have ended, and submit the next ones.

Promoted jobs are submitted before the end of the last job of a rung is reported, so that an app always has a job until
its search is complete. An optimiser that kills all of its jobs has ended its app; nothing waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf
from typing import Protocol

from horae.engines.engine import Engine, Moment
from horae.engines.search.early_stopping import Curves, DrawnReports, Reports
from horae.engines.search.halving import Halving, rung_jobs
from horae.model.commands import Command, Survey
from horae.model.events import Event, JobCancelled, JobEnded, JobStarted, JobSubmitted, Surveyed
from horae.model.jobs import Arrival
from horae.model.searches import Method, Search


class Expecting(Engine, Protocol):
    """An engine to which jobs can be added while it runs."""

    def expect(self, arrival: Arrival) -> None: ...


class SearchEngine:
    def __init__(
        self,
        engine: Expecting,
        searches: Sequence[Search],
        noted: Callable[[Arrival], object] = lambda arrival: None,
        reports: Reports | None = None,
    ) -> None:
        """`noted` is called with every job before it is submitted.

        `reports` provides the losses that jobs have reported; without it they are drawn from the curves of the trials.
        """
        self._engine = engine
        self._noted = noted
        watched = [search for search in searches if search.method is Method.CURVES]
        self._reports: Reports = DrawnReports(watched) if reports is None else reports
        self._halving: dict[str, Halving] = {}  # by job of a rung
        self._curves: dict[str, Curves] = {}  # by job
        self._watched = [Curves(search) for search in watched]
        for curves in self._watched:
            self._curves.update(dict.fromkeys(curves.job_ids, curves))
        for search in searches:
            if search.method in (Method.HALVING, Method.HYPERBAND):
                for number, bracket in enumerate(search.brackets):
                    halving = Halving(bracket, f"{number}" if len(search.brackets) > 1 else "", reports)
                    self._halving.update(dict.fromkeys(halving.job_ids, halving))

    def wait(self, until: float) -> Moment | None:
        look_at = min((curves.look_at for curves in self._watched), default=inf)
        moment = self._engine.wait(min(until, look_at))
        if moment is None:
            return None
        events = self._with_orders(moment.at, moment.events)
        if look_at <= moment.at:
            events = [*events, *self._looks(moment.at)]
        return Moment(moment.at, events)

    def execute(self, commands: Sequence[Command]) -> Sequence[Event]:
        replies = self._engine.execute(commands)
        at = max((event.at for event in replies), default=0.0)
        return self._with_orders(at, replies)

    def _with_orders(self, at: float, events: Sequence[Event]) -> list[Event]:
        """The events, preceded by what optimisers order in response to them."""
        orders: list[Event] = []
        for event in events:
            if self._watched and isinstance(event, JobStarted | JobEnded | JobCancelled):
                self._tell(event)
            if isinstance(event, JobEnded | JobCancelled):
                halving = self._halving.get(event.job_id)
                if halving is not None:
                    orders.extend(self._promote(halving, event, at))
        return [*orders, *events]

    def _tell(self, event: JobStarted | JobEnded | JobCancelled) -> None:
        """Passes an event to the curve-based search that owns its job."""
        curves = self._curves.get(event.job_id)
        if curves is None or event.job_id not in curves.job_ids:
            return
        if isinstance(event, JobStarted):
            curves.began(event.job_id, event.at)
        elif isinstance(event, JobEnded):
            curves.heard(self._reports.until(event.job_id, event.steps))
            curves.ended(event.job_id, event.ending)
        else:
            curves.cancelled(event.job_id)

    def _promote(self, halving: Halving, event: JobEnded | JobCancelled, at: float) -> list[Event]:
        submitted: list[Event] = []
        for arrival in halving.heard(event, at):
            self._halving[arrival.job.id] = halving
            self._noted(arrival)
            self._engine.expect(arrival)
            submitted.append(JobSubmitted(at, arrival.job))
        return submitted

    def _looks(self, at: float) -> list[Event]:
        running: dict[str, float] = {}
        for reply in self._engine.execute((Survey(),)):
            if isinstance(reply, Surveyed):
                running = {run.job_id: run.steps for run in reply.running}
        due = [curves for curves in self._watched if curves.look_at <= at]
        for job_id, steps in running.items():
            curves = self._curves.get(job_id)
            if curves is not None and curves.look_at <= at and job_id in curves.job_ids:
                curves.heard(self._reports.until(job_id, steps))
        orders = [order for curves in due for order in curves.look(at, running)]
        self._watched = [curves for curves in self._watched if curves.job_ids]
        return orders


def first_jobs(search: Search) -> list[Arrival]:
    """The jobs that a search submits when it begins."""
    if search.method is Method.CURVES:
        return [trial.arrival for trial in search.trials]  # their curves are estimated later, from reports
    if search.method is Method.GRID:
        return [replace(trial.arrival, job=replace(trial.arrival.job, curve=trial.curve)) for trial in search.trials]
    return [
        arrival
        for number, bracket in enumerate(search.brackets)
        for arrival in rung_jobs(
            bracket, bracket.trials, 0, search.submitted_at, f"{number}" if len(search.brackets) > 1 else ""
        )
    ]
