"""Tiresias (NSDI'19), discretised two-dimensional least attained service.

A job moves down a queue whenever its GPU-time passes the next limit, so short jobs finish early without their lengths
being known, and jobs of one queue do not preempt each other back and forth. A job that has waited much longer than it
has run returns to the top.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isfinite
from typing import ClassVar

import numpy as np

from horae.model.arrays import Bools, Floats
from horae.model.decisions import Ranking
from horae.model.errors import PolicyError
from horae.model.job_table import JobColumns
from horae.model.view import View


@dataclass(frozen=True)
class Tiresias:
    name: ClassVar[str] = "tiresias"
    limits: tuple[float, ...] = (3250.0, 7200.0, 18000.0)  # GPU-seconds
    promote_after: float = 8.0  # waiting time, in units of its run time, after which a job is promoted; 0: never

    def __post_init__(self) -> None:
        if any(not (isfinite(limit) and limit > 0) for limit in self.limits) or sorted(self.limits) != list(
            self.limits
        ):
            raise PolicyError(
                f"limits {list(self.limits)} are not increasing GPU-seconds",
                field="limits",
                remedy="e.g. [3250, 18000]",
            )
        if not 0 <= self.promote_after < inf:
            raise PolicyError(
                f"promote_after is {self.promote_after}", field="promote_after", remedy="give 0 (never) or a factor"
            )

    def decide(self, view: View) -> Ranking:
        jobs = view.jobs
        limits = np.array(self.limits)
        promoted = self._starved(jobs)
        service = np.where(promoted, 0.0, jobs.service_since_promotion)
        tier = np.searchsorted(limits, service, side="right")
        order = np.lexsort((jobs.serial, jobs.submitted_at, tier))
        return Ranking(
            order,
            preemptive=True,
            tier=tier,
            promoted=np.flatnonzero(promoted),
            stands_until=min(self._next_demotion(view, limits, service), self._next_promotion(jobs, promoted)),
        )

    def _starved(self, jobs: JobColumns) -> Bools:
        if not self.promote_after:
            return np.zeros(len(jobs), dtype=bool)
        demoted = jobs.service_since_promotion >= self.limits[0] if self.limits else np.zeros(len(jobs), dtype=bool)
        return jobs.pending & demoted & (jobs.waiting_seconds >= self.promote_after * jobs.run_seconds)

    def _next_demotion(self, view: View, limits: Floats, service: Floats) -> float:
        """The first moment at which any job may pass a limit, if all waiting jobs started now."""
        jobs = view.jobs
        largest = np.where(jobs.shape >= 0, view.shape_gpus[jobs.shape], 0).max(axis=1, initial=1)
        gpus = np.where(jobs.on_gpus, jobs.held_gpus, largest)
        above = np.append(limits, inf)[np.searchsorted(limits, service, side="right")]
        return float(np.min(view.now + (above - service) / gpus, initial=inf))

    def _next_promotion(self, jobs: JobColumns, promoted: Bools) -> float:
        """The first moment at which any job may have starved, if all running jobs stopped now."""
        if not self.promote_after or not self.limits:
            return inf
        demoted = ~promoted & (jobs.service_since_promotion >= self.limits[0])
        queued_at = np.where(jobs.pending, jobs.queued_at, jobs.now)
        due = queued_at[demoted] + self.promote_after * jobs.run_seconds[demoted]
        return float(np.min(due, initial=inf))
