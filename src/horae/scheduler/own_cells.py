"""Jobs that wait though the cells of their own tenant have room: what a reservation is meant to prevent."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from horae.model.job_table import NONE
from horae.model.shapes import Shape
from horae.model.status import HOLDING, PENDING
from horae.scheduler.jobs import is_loan

if TYPE_CHECKING:
    from horae.scheduler.core import Scheduler
    from horae.scheduler.pool import Pool


def waiting_for_own_cells(scheduler: Scheduler) -> Iterable[str]:
    """Jobs that wait though their tenant's cells have room for one of their shapes: free, or lent to others."""
    for pool in scheduler.pools:
        if not pool.spec.reserves or not pool.table.row:
            continue
        room = _Room(scheduler, pool)
        for serial, row in pool.table.row.items() if room.is_any else ():
            if is_loan(serial) or pool.table.status[row] not in (PENDING, HOLDING):
                continue
            job = pool.table.jobs[row]
            if scheduler.jobs.on_gpus(job.id) is None and any(room.holds(option.shape) for option in job.options):
                yield job.id


class _Room:
    """The GPUs of a tenant's cells that none of its own jobs holds, by GPU type: in all, and the most in one node."""

    def __init__(self, scheduler: Scheduler, pool: Pool) -> None:
        cluster = scheduler.ledger.cluster
        mine = np.flatnonzero(pool.gpus & (scheduler.ledger.holder == NONE))
        in_node = np.bincount(cluster.node_of_gpu[mine], minlength=len(cluster.nodes))
        self.is_any = bool(len(mine))
        self._levels = cluster.levels
        self._node_level = cluster.node_level
        self._total: dict[str, int] = {}
        self._most: dict[str, int] = {}
        for name, (first, last) in cluster.chain_gpus.items():
            nodes = cluster.node_of_gpu[first:last]
            self._total[name] = int(((mine >= first) & (mine < last)).sum())
            self._most[name] = int(in_node[nodes].max()) if len(nodes) else 0

    def holds(self, shape: Shape) -> bool:
        is_within_node = shape.level in self._levels and self._levels.index(shape.level) <= self._node_level
        found = self._most if is_within_node else self._total
        return shape.gpus <= found.get(shape.accelerator, 0)
