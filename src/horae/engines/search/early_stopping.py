"""A search that kills hopeless trials, by forecasts from the losses that its trials have reported.

It knows what its user knows: the lengths of its trials, and their reports so far. A trial is killed when even the low
end of its forecast is worse than the high end of the best one, or than the best result, by the search's margin. The
scheduler receives fitted curves, never the true ones; it is not told that a trial may be killed, and so assumes that
every trial runs until its last step.

Reports are plain values: a job, its steps and its loss. In a simulation they are drawn from the curves of the trials;
real jobs write them into a file (`engines/local/job_files.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from math import floor, inf
from typing import Protocol

import numpy as np

from horae.engines.search.loss_forecast import Forecast, Report, is_loss, steady_forecast
from horae.model.events import CurveRevised, Ending, Event, JobCancelled
from horae.model.jobs import Curve
from horae.model.searches import Search, Trial

REFIT_GROWTH = 1.1  # a curve is refitted when the number of reports has grown by this factor
REVISED = 0.1  # the relative change of the bend or the end of a curve above which the scheduler is told


class Reports(Protocol):
    def until(self, job_id: str, steps: float) -> Iterable[Report]:
        """Reports of a job since the last call, up to the given number of steps."""
        ...


class DrawnReports:
    """Reports of simulated trials: their measured losses at equal intervals of steps."""

    def __init__(self, searches: Iterable[Search]) -> None:
        self._trials = {trial.arrival.job.id: (trial, each.report_part) for each in searches for trial in each.trials}
        self._told: dict[str, int] = {}

    def until(self, job_id: str, steps: float) -> list[Report]:
        trial, part = self._trials[job_id]
        due = floor(min(steps / trial.steps_total, 1.0) / part * (1 + 1e-9))
        told = self._told.get(job_id, 0)
        self._told[job_id] = max(told, due)
        parts = [number * part for number in range(told + 1, due + 1)]
        return [Report(job_id, each * trial.steps_total, trial.loss(each)) for each in parts]


@dataclass(slots=True)
class _Watch:
    """The reports of a trial, and the resulting forecast."""

    trial: Trial
    steps: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    fitted: int = 0  # number of reports in the forecast
    forecast: Forecast | None = None  # unless it is steady, it neither gets the trial killed nor other trials
    told: Curve | None = None  # the curve that the scheduler has
    has_failed: bool = False  # and may be retried

    def fit(self, patience: float, confidence: float) -> None:
        total = self.trial.steps_total
        if len(self.steps) < max(self.fitted * REFIT_GROWTH, 1) or max(self.steps) < patience * total:
            return
        self.fitted = len(self.steps)
        self.forecast = steady_forecast(np.array(self.steps), np.array(self.losses), total, confidence)

    def result(self) -> float:
        """The last valid loss."""
        known = zip(self.steps, self.losses, strict=True)
        return max(((step, loss) for step, loss in known if is_loss(loss)), default=(0.0, inf))[1]


class Curves:
    """The optimiser of one search. It checks the curves periodically while one of its trials runs."""

    def __init__(self, search: Search) -> None:
        self._search = search
        self._watched = {trial.arrival.job.id: _Watch(trial) for trial in search.trials}
        self._result = inf  # of finished trials
        self.look_at = inf

    @property
    def job_ids(self) -> Collection[str]:
        """Trials that have neither ended nor been killed."""
        return self._watched.keys()

    def began(self, job_id: str, at: float) -> None:
        watch = self._watched.get(job_id)
        if watch is not None:
            watch.has_failed = False
            self.look_at = min(self.look_at, at + self._search.look_seconds)

    def heard(self, reports: Iterable[Report]) -> None:
        for job_id, steps, loss in reports:
            watch = self._watched.get(job_id)
            if watch is not None:
                watch.steps.append(steps)
                watch.losses.append(loss)

    def ended(self, job_id: str, ending: Ending) -> None:
        watch = self._watched.get(job_id)
        if watch is None:
            return
        if ending is Ending.FINISHED:
            self._result = min(self._result, watch.result())
            self.cancelled(job_id)
        watch.has_failed = ending is Ending.FAILED

    def cancelled(self, job_id: str) -> None:
        self._watched.pop(job_id, None)

    def look(self, at: float, running: Collection[str]) -> list[Event]:
        """The trials to kill, and new estimated loss curves of the others."""
        search = self._search
        is_running = any(job_id in running for job_id in self._watched)
        self.look_at = at + search.look_seconds if is_running else inf
        for watch in self._watched.values():
            watch.fit(search.patience, search.confidence)
        known = {job_id: watch.forecast for job_id, watch in self._watched.items() if watch.forecast is not None}
        hoped = [each.high for job_id, each in known.items() if not self._watched[job_id].has_failed]
        bearable = min([self._result, *hoped]) * (1 + search.margin)
        killed = sorted(job_id for job_id, each in known.items() if each.low > bearable)
        for job_id in killed:
            self.cancelled(job_id)
        return [*(JobCancelled(at, job_id) for job_id in killed), *self._revised(at)]

    def _revised(self, at: float) -> list[Event]:
        events: list[Event] = []
        for job_id, watch in self._watched.items():
            if watch.forecast is not None and _differs(watch.told, watch.forecast.curve, watch.trial.steps_total):
                watch.told = watch.forecast.curve
                events.append(CurveRevised(at, job_id, watch.told))
        return events


def _differs(told: Curve | None, curve: Curve, steps_total: float) -> bool:
    """Whether two curves differ noticeably in how they bend, or where they end."""
    if told is None:
        return True
    before, now = (
        (each.rate / each.start, 1 / (each.rate * steps_total + each.start) + each.floor) for each in (told, curve)
    )
    return any(abs(new - old) > REVISED * old for old, new in zip(before, now, strict=True))
