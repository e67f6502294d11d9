"""The capacity scheduler of Apache Hadoop YARN, as the Philly and HiveD papers describe and compare with it.

One queue per tenant, each with a guaranteed fraction of the pool and a maximum. The queue with the lowest use over
guarantee comes first, FIFO inside. GPUs that a queue does not use are lent; when their owner reclaims them, the newest
gangs of the queue furthest over its guarantee are preempted. A gang waits a few rounds for GPUs close together, then
for one rack, then it takes any that it accepts. It counts GPUs, not cells: HiveD (OSDI'20) shows the effect on a
tenant.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import ClassVar

import numpy as np

from horae.model.arrays import Bools, Floats, Ints
from horae.model.cluster import NODE
from horae.model.decisions import Ranking
from horae.model.errors import PolicyError
from horae.model.view import View
from horae.policies.grouped_sums import sums_before

_GPUS_SLACK = 1e-6  # a fraction of a pool need not be a whole number of GPUs


@dataclass(frozen=True)
class YarnCs:
    name: ClassVar[str] = "yarn-cs"
    guaranteed: Mapping[str, float] = field(default_factory=dict)  # by tenant, fraction of the pool; others by weight
    maximum: float = 1.0  # the largest fraction of the pool that one queue may use
    tries: float = 3.0  # rounds of waiting for locality, at each step
    reclaim: bool = True  # preempt queues over their guarantee for those below theirs

    def __post_init__(self) -> None:
        if any(not 0 <= part <= 1 for part in self.guaranteed.values()) or sum(self.guaranteed.values()) > 1 + 1e-9:
            raise PolicyError(
                f"guaranteed is {dict(self.guaranteed)}",
                field="guaranteed",
                remedy="give each tenant a part of the pool, at most 1 in all",
            )
        if not 0 < self.maximum <= 1:
            raise PolicyError(f"maximum is {self.maximum}", field="maximum", remedy="give a part of the pool: 0.5")
        if not 0 <= self.tries < inf:
            raise PolicyError(f"tries is {self.tries}", field="tries", remedy="give 0 or more")

    def decide(self, view: View) -> Ranking:
        jobs = view.jobs
        pool_gpus = float(view.capacity.sum())
        guaranteed = np.maximum(self._parts(view) * pool_gpus, 1e-9)[jobs.tenant]
        waiting = jobs.pending.nonzero()[0]
        waiting = waiting[np.argsort(jobs.serial[waiting])]
        holders = (~jobs.pending).nonzero()[0]
        holders = holders[np.lexsort((jobs.serial[holders], jobs.since[holders]))]
        gpus = np.where(jobs.on_gpus, jobs.held_gpus, jobs.gpus).astype(np.float64)
        # The GPUs of its queue once all earlier jobs of the queue are served, the longest holders first.
        before = sums_before(jobs.tenant, gpus, np.concatenate([holders, waiting]))
        reached = before + gpus
        inside = reached <= guaranteed + _GPUS_SLACK
        if self.maximum < 1:  # otherwise the pool itself is the limit, and a gang that does not fit must not count
            waiting = waiting[reached[waiting] <= self.maximum * pool_gpus + _GPUS_SLACK]
        allowed, relaxes_at = self._localities(view)
        if not self.reclaim:
            order = waiting[np.argsort((before / guaranteed)[waiting], kind="stable")]
            return Ranking(order, allowed=allowed, stands_until=relaxes_at)
        return Ranking(
            _in_bands(holders, waiting, inside, before / guaranteed, reached / guaranteed),
            preemptive=True,
            allowed=allowed,
            stands_until=relaxes_at,
        )

    def _parts(self, view: View) -> Floats:
        """By tenant: its fraction of the pool."""
        named = np.array([name in self.guaranteed for name in view.tenants], dtype=bool)
        given = np.array([self.guaranteed.get(name, 0.0) for name in view.tenants], dtype=np.float64)
        weight = np.where(named, 0.0, view.tenant_weight)
        rest = max(1.0 - sum(self.guaranteed.values()), 0.0)
        return given + rest * weight / max(float(weight.sum()), np.finfo(float).tiny)

    def _localities(self, view: View) -> tuple[Bools, float]:
        """By job and option, whether its locality is allowed by now, and when that changes."""
        jobs = view.jobs
        accepted = jobs.shape >= 0
        level = np.where(accepted, view.shape_level[jobs.shape], len(view.levels)) if len(jobs) else jobs.shape
        node = view.levels.index(NODE)
        widest = np.array([node, min(node + 1, len(view.levels) - 1), len(view.levels) - 1])
        step_seconds = max(self.tries * view.round_seconds, np.finfo(float).tiny)
        # A small tolerance, so that a decision at a round boundary is on time.
        steps = np.minimum((jobs.waiting_seconds / step_seconds + 1e-9).astype(np.int64), 2)
        finest = level.min(axis=1, initial=len(view.levels))
        allowed = accepted & (level <= np.maximum(widest[steps], finest)[:, None])
        more = jobs.pending & (accepted & ~allowed).any(axis=1)
        relaxes_at = np.min(jobs.queued_at[more] + (steps[more] + 1) * step_seconds, initial=inf)
        return allowed, float(relaxes_at)


def _in_bands(holders: Ints, waiting: Ints, inside: Bools, before: Floats, reached: Floats) -> Ints:
    """Holders within their guarantee, then jobs that may reclaim theirs, then borrowers, then jobs that would borrow.

    Only borrowers rank below a waiting job, so only they can be preempted, those furthest over their guarantee first.
    """
    borrowers = holders[~inside[holders]]
    return np.concatenate(
        [
            holders[inside[holders]],
            _sorted(waiting[inside[waiting]], before),
            _sorted(borrowers, reached),
            _sorted(waiting[~inside[waiting]], before),
        ]
    )


def _sorted(rows: Ints, by: Floats) -> Ints:
    return rows[np.argsort(by[rows], kind="stable")]
