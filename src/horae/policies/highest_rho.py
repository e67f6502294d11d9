"""The strawman of Themis (NSDI'20): all GPUs to the app that is worst off, no auction.

rho = T_sh / T_id. T_sh: the app's age plus what it still needs in its reference shapes. T_id: its whole work on the
cluster as fast as its gangs allow, times the average number of contending apps (`rho_paper`).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import ClassVar

import numpy as np

from horae.model.arrays import Floats, Ints
from horae.model.decisions import Grant, Grants, Ranking
from horae.model.errors import PolicyError
from horae.model.view import View


@dataclass(frozen=True)
class HighestRho:
    name: ClassVar[str] = "highest-rho"
    lease_seconds: float = 1200.0

    def __post_init__(self) -> None:
        if not 0 < self.lease_seconds < inf:
            raise PolicyError(
                f"a lease of {self.lease_seconds} seconds", field="lease_seconds", remedy="give a positive number"
            )

    def decide(self, view: View) -> Grants:
        jobs = view.jobs
        apps, index = np.unique(jobs.app, return_inverse=True)
        rho = finish_time_fairness(view, index, len(apps))
        wanted = np.bincount(index, weights=jobs.gpus, minlength=len(apps)).astype(np.int64)
        order = np.lexsort((apps, -rho))
        left = int(view.capacity.sum()) - (np.cumsum(wanted[order]) - wanted[order])
        winners = order[left > 0]
        grants = tuple(
            Grant(int(apps[app]), int(min(wanted[app], gpus)), self.lease_seconds)
            for app, gpus in zip(winners, left[left > 0], strict=True)
        )
        position = np.empty(len(apps), dtype=np.int64)
        position[order] = np.arange(len(apps))
        # Whoever waits grows worse off continuously, and may pass another.
        stands_until = view.now if jobs.waiting.any() else inf
        rest = Ranking(np.lexsort((jobs.serial, position[index])), preemptive=True, stands_until=stands_until)
        return Grants(grants, rest)


def finish_time_fairness(view: View, index: Ints, apps: int) -> Floats:
    """By app: rho as the paper defines it; jobs of unknown length count by the service they have had."""
    jobs = view.jobs
    attained = jobs.run_seconds
    total = np.where(np.isfinite(jobs.seconds_total), jobs.seconds_total, 2 * attained + 1.0)
    left = np.where(np.isfinite(jobs.seconds_left), jobs.seconds_left, attained + 1.0)
    gang_max = np.minimum(np.bincount(index, weights=jobs.gpus, minlength=apps), max(int(view.capacity.sum()), 1))
    work = np.bincount(index, weights=jobs.gpus * total, minlength=apps)
    longest = np.zeros(apps)
    np.maximum.at(longest, index, left)
    age = np.zeros(apps)
    np.maximum.at(age, index, view.now - jobs.app_submitted_at)
    contending = np.zeros(apps)
    np.maximum.at(contending, index, view.apps_average())
    return (age + longest) / np.maximum(work / gang_max * contending, np.finfo(float).tiny)
