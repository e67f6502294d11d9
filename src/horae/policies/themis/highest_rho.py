"""The strawman of Themis (NSDI'20): all GPUs to the app that is worst off, no auction.

rho = T_sh / T_id. T_sh: the app's age plus its remaining time in its reference shapes. T_id: its whole work on the
cluster as fast as its gangs allow, times the average number of contending apps (`rho_paper`).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import ClassVar

import numpy as np

from horae.model.arrays import Floats, Ints
from horae.model.decisions import Grants, Ranking
from horae.model.errors import PolicyError
from horae.model.view import View


@dataclass(frozen=True)
class HighestRho:
    name: ClassVar[str] = "highest-rho"
    uses_lengths: ClassVar[bool] = True
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
        position = np.empty(len(apps), dtype=np.int64)
        position[np.lexsort((apps, -rho))] = np.arange(len(apps))
        order = np.lexsort((jobs.serial, ~jobs.running, position[index]))
        gangs = np.where(jobs.running, jobs.held_gpus, jobs.gpus)[order]
        served = order[np.cumsum(gangs) <= int(view.capacity.sum())]
        row, option = offers(view, served)
        # The rho of a waiting app grows continuously, and may pass that of another.
        stands_until = view.now if jobs.waiting.any() else inf
        rest = Ranking(order, preemptive=True, stands_until=stands_until)
        return Grants(row, option, np.full(len(row), self.lease_seconds), rest)


def offers(view: View, rows: Ints) -> tuple[Ints, Ints]:
    """The shapes that these rows may have, in turn: for one that runs, its present one."""
    jobs = view.jobs
    accepted = (jobs.shape >= 0) & (view.shape_accelerator[jobs.shape] >= 0)
    held = np.flatnonzero(jobs.running)
    accepted[held] = False
    accepted[held, jobs.option[held]] = True
    place, option = np.nonzero(accepted[rows])
    return rows[place], option


def finish_time_fairness(view: View, index: Ints, apps: int) -> Floats:
    """By app: rho as the paper defines it; jobs of unknown length count by their attained service."""
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
