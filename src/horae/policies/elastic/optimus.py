"""Optimus (EuroSys'18): GPUs where they shorten the remaining time of a job most.

Every job gets its smallest gang, those that need the least GPU time with it first. Then the job with the largest gain
repeatedly grows by one step of its ladder, until there is no gain or no room:

    gain = (Q x t(w) - Q x t(w')) / dominant share of what is added

Q: steps left until the loss has come down to `convergence` of the way from its start to its floor, by the job's curve;
for a job without one, the steps that it declares are left, and for one that declares nothing as many as it has made,
plus those of an interval. t(w): seconds per step, by the shapes that it accepts. Jobs of fewer GPUs are placed first.
Sizes change at multiples of `interval_seconds`: leases end there. The paper fits speeds while jobs run; here the
estimated speeds of the view are used.

A resized job loses its restart time. A running job grows only if that saves more than `damping` restarts, and shrinks
only if another job can use the GPUs (the paper has no such rule; 0 disables it).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import ClassVar

import numpy as np

from horae.model.arrays import Floats
from horae.model.decisions import Grants
from horae.model.errors import PolicyError
from horae.model.view import View
from horae.policies.elastic.loss_curves import steps_to_convergence
from horae.policies.elastic.sizes import (
    by_step,
    climb,
    damped,
    gpus_of,
    ladders_of,
    resizing,
    seconds_at,
    until_boundary,
)


@dataclass(frozen=True)
class Optimus:
    name: ClassVar[str] = "optimus"
    uses_lengths: ClassVar[bool] = True
    interval_seconds: float = 600.0  # sizes change at multiples of this
    convergence: float = 0.05  # of the way from its first loss to its floor: a job with a curve has converged there
    damping: float = 1.0  # a running job grows only to save more than this many restarts

    def __post_init__(self) -> None:
        check_interval("interval_seconds", self.interval_seconds)
        if not 0 < self.convergence < 1:
            raise PolicyError(f"convergence is {self.convergence}", field="convergence", remedy="give a part: 0.05")
        check_damping(self.damping)

    def decide(self, view: View) -> Grants:
        jobs, ladders = view.jobs, ladders_of(view)
        steps = steps_to_convergence(jobs, self.convergence, self.interval_seconds)
        seconds = seconds_at(ladders, steps)
        need = np.where(ladders.contends, seconds[:, 0] * ladders.gpus[:, 0], inf)
        order = np.lexsort((jobs.serial, need))
        gain = by_step(ladders, -np.where(np.isfinite(seconds), seconds, 0.0)) / _dominant_share(view)[:, None]
        rung = damped(ladders, climb(ladders, order, gain), seconds, self.damping * jobs.restart_seconds)
        gpus = gpus_of(view, ladders, rung)
        smallest_first = order[np.lexsort((gpus[order], gpus[order] == 0))]
        lease = until_boundary(view.now, self.interval_seconds)
        return resizing(view, ladders.accelerator, gpus, smallest_first, lease)


def check_interval(field: str, seconds: float) -> None:
    if not 0 < seconds < inf:
        raise PolicyError(f"{field} is {seconds}", field=field, remedy="give a positive number of seconds")


def check_damping(damping: float) -> None:
    if not 0 <= damping < inf:
        raise PolicyError(f"damping is {damping}", field="damping", remedy="give 0 (resize freely) or a factor")


def _dominant_share(view: View) -> Floats:
    """By job: the largest fraction of the pool's GPUs, CPUs or memory that one of its GPUs takes."""
    jobs = view.jobs
    share = np.full(len(jobs), 1 / max(int(view.capacity.sum()), 1))
    for amount, total in ((jobs.cpus, view.cpus), (jobs.memory_bytes, view.memory_bytes)):
        if 0 < total < inf:
            share = np.maximum(share, amount / jobs.gpus / total)
    return share
