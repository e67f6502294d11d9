"""All pools of one scheduler: which GPUs each may use, and which jobs it serves."""

from __future__ import annotations

from collections.abc import Iterator

from horae.cells.pool_layout import PoolLayout
from horae.model.jobs import Job
from horae.model.setup import PoolSpec, Setup
from horae.policies.registry import make_policy
from horae.scheduler.gpu_ledger import GpuLedger
from horae.scheduler.pool import Pool


class PoolSet:
    def __init__(self, setup: Setup) -> None:
        self.layout = PoolLayout(setup.cluster, setup.pools, static_binding=setup.static_binding)
        self.all = [self._pool(index, spec) for index, spec in enumerate(setup.pools)]
        self.has_cells = self.layout.tenancy is not None
        self.has_quotas = any(pool.spec.quota for pool in self.all)

    def _pool(self, index: int, spec: PoolSpec) -> Pool:
        return Pool(index, spec, make_policy(spec.policy, spec.options), self.layout.gpus[index])

    def __iter__(self) -> Iterator[Pool]:
        return iter(self.all)

    @property
    def in_turn(self) -> list[Pool]:
        """All pools in the order in which they decide:
        those with cells first, so that guests are not started in vain."""
        return sorted(self.all, key=lambda pool: not pool.spec.reserves) if self.has_cells else self.all

    def of(self, job: Job) -> Pool | None:
        index = self.layout.of_job.find(job)
        return None if index is None else self.all[index]

    @property
    def open_pool(self) -> Pool | None:
        """The pool for tenants without their own pool, and for jobs without a guarantee."""
        index = self.layout.of_job.open_pool
        return None if index is None else self.all[index]

    def named(self, name: str) -> Pool | None:
        return next((pool for pool in self.all if pool.spec.name == name), None)

    def move(self, layout: PoolLayout, ledger: GpuLedger, now: float) -> None:
        """Gives the same pools other GPUs or other cells; a new pool has no jobs yet."""
        self.layout = layout
        self.has_cells = layout.tenancy is not None
        for index, spec in enumerate(layout.specs):
            if index == len(self.all):
                self.all.append(self._pool(index, spec))
            self.all[index].move(spec, layout.gpus[index], ledger, now)
        self.has_quotas = any(pool.spec.quota for pool in self.all)

    def count_capacity(self, ledger: GpuLedger) -> None:
        for pool in self.all:
            pool.count_capacity(ledger)

    def recount(self, ledger: GpuLedger, now: float) -> None:
        """Recounts the GPUs of other pools after tenants have taken or released GPUs."""
        tenancy = self.layout.tenancy
        if tenancy is None or not (tenancy.shifted or tenancy.cells_shifted):
            return
        for pool in self.all:
            if tenancy.cells_shifted if pool.spec.reserves else tenancy.shifted:
                pool.count_capacity(ledger)
                pool.touch(now)
        tenancy.shifted = tenancy.cells_shifted = False
