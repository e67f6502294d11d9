"""Dominant resource fairness (NSDI'11): the next gang of the user with the least dominant share; never preempts.

A user's dominant share is the largest of its shares of the pool's GPUs, CPUs and memory; a resource whose amount the
nodes do not state does not count. Progressive filling, always serving the user with the least share, yields one order:
each waiting gang is ranked by the share its user will have once the user's earlier gangs have been served.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from horae.model.arrays import Floats
from horae.model.decisions import Ranking
from horae.model.view import View
from horae.policies.grouped_sums import sums_before


@dataclass(frozen=True)
class Drf:
    name: ClassVar[str] = "drf"
    backfill: bool = True  # let others pass a gang that does not fit

    def decide(self, view: View) -> Ranking:
        jobs = view.jobs
        waiting = jobs.pending.nonzero()[0]
        waiting = waiting[np.argsort(jobs.serial[waiting])]
        share = np.zeros(len(jobs))
        for amount, total in _resources(view):
            if 0 < total < np.inf:
                # A job about to start counts with the resources it will hold.
                used = np.bincount(jobs.user, weights=amount * ~jobs.pending, minlength=1)
                share = np.maximum(share, (used[jobs.user] + sums_before(jobs.user, amount, waiting)) / total)
        return Ranking(waiting[np.argsort(share[waiting], kind="stable")], blocking=not self.backfill)


def _resources(view: View) -> tuple[tuple[Floats, float], ...]:
    """For each resource: the amount each job holds or requests, and the total of the pool."""
    jobs = view.jobs
    gpus = np.where(jobs.on_gpus, jobs.held_gpus, jobs.gpus).astype(np.float64)
    scale = gpus / jobs.gpus
    return (
        (gpus, float(view.capacity.sum())),
        (jobs.cpus * scale, view.cpus),
        (jobs.memory_bytes * scale, view.memory_bytes),
    )
