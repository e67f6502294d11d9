"""Samples what is not used: GPUs that no job holds, and cells that are free or lent while their tenant's jobs wait."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from horae.model.cluster import Gpu
from horae.model.events import Health
from horae.model.job_table import NONE
from horae.scheduler import Scheduler
from horae.service.loop.job_rows import JobRow

SAMPLE_SECONDS = 10.0
_WAITING = ("pending", "holding")

HELD = "held"


class Sample(NamedTuple):
    """What has accrued since the last sample."""

    seconds: float
    gpu_seconds: dict[tuple[str, str], float]  # by GPU type and "held", "idle" or "unusable"
    waited: list[JobRow]  # jobs whose waiting time has grown


class IdleUsage:
    """What a sample finds counts for the time until the next one."""

    def __init__(self) -> None:
        self._at: float | None = None
        self._gpus: Counter[tuple[str, str]] = Counter()
        self._waiting: list[str] = []

    def is_due(self, now: float) -> bool:
        return self._at is None or now >= self._at + SAMPLE_SECONDS

    def sample(self, scheduler: Scheduler, rows: dict[str, JobRow], now: float) -> Sample:
        seconds = 0.0 if self._at is None else max(now - self._at, 0.0)
        gpu_seconds = {key: count * seconds for key, count in self._gpus.items()} if seconds else {}
        waited = [rows[job_id] for job_id in self._waiting if job_id in rows] if seconds else []
        for row in waited:
            row.own_wait_seconds += seconds
        self._at = now
        self._gpus = _gpus(scheduler, rows.values())
        self._waiting = list(_waiting_for_own_cells(scheduler, rows))
        return Sample(seconds, gpu_seconds, waited)


def _gpus(scheduler: Scheduler, rows: Iterable[JobRow]) -> Counter[tuple[str, str]]:
    held = {place for row in rows if row.held_gpus for place in row.places.split()}
    ledger, found = scheduler.ledger, Counter[tuple[str, str]]()
    for node in ledger.real_cluster.nodes:
        is_open = ledger.health_of(node.name) is Health.HEALTHY
        for number in range(node.gpus):
            gpu = Gpu(node.name, number)
            is_usable = is_open and gpu not in ledger.gpu_states
            found[node.accelerator, HELD if str(gpu) in held else "idle" if is_usable else "unusable"] += 1
    return found


def _waiting_for_own_cells(scheduler: Scheduler, rows: dict[str, JobRow]) -> Iterable[str]:
    """Jobs that wait though their tenant's cells have room for one of their shapes: free, or lent to others."""
    for pool in scheduler.pools:
        if not pool.spec.reserves:
            continue
        mine = np.flatnonzero(pool.gpus & (scheduler.ledger.holder == NONE))
        chains = scheduler.ledger.cluster.chain_gpus.items()
        free = {name: int(((mine >= first) & (mine < last)).sum()) for name, (first, last) in chains}
        for serial, row in pool.table.row.items() if any(free.values()) else ():
            job = pool.table.jobs[row]
            known = rows.get(job.id)
            if known is None or known.state not in _WAITING or serial not in scheduler.jobs.id_of:
                continue
            if any(option.shape.gpus <= free.get(option.shape.accelerator, 0) for option in job.options):
                yield job.id
