"""What happens when a node or a GPU fails, is drained or returns."""

from __future__ import annotations

from collections.abc import Iterable

from horae.model.cluster import Gpu
from horae.model.events import GpuChanged, GpuState, Health, NodeChanged
from horae.model.reasons import NodeLost
from horae.model.status import RUNNING, STARTING
from horae.scheduler.gpu_ledger import GpuLedger
from horae.scheduler.holds import Holds
from horae.scheduler.jobs import JobRegistry
from horae.scheduler.leases import Leases
from horae.scheduler.pool_set import PoolSet


class Hardware:
    """Jobs on failed hardware are stopped; jobs on a drained node or GPU run on, and no other job starts there."""

    def __init__(self, pools: PoolSet, ledger: GpuLedger, jobs: JobRegistry, leases: Leases, holds: Holds) -> None:
        self._pools = pools
        self._ledger = ledger
        self._jobs = jobs
        self._leases = leases
        self._holds = holds

    def absent(self, nodes: Iterable[str]) -> None:
        """Marks nodes as not present yet: they join when they are reported as healthy."""
        for node in nodes:
            self._ledger.set_health(node, Health.FAILED)

    def on_node(self, event: NodeChanged, now: float) -> bool:
        known = event.node in self._ledger.real_cluster.node_index
        if not known or self._ledger.health_of(event.node) is event.health:
            return False
        self._ledger.set_health(event.node, event.health)
        reason = NodeLost(event.node) if event.health is Health.FAILED else None
        self.change(self._ledger.of_node(event.node), event.health is Health.HEALTHY, reason, now)
        return True

    def on_gpu(self, event: GpuChanged, now: float) -> bool:
        if not self._ledger.real_cluster.has(event.gpu):
            return False
        if self._ledger.gpu_states.get(event.gpu, GpuState.USABLE) is event.state:
            return False
        self._ledger.set_gpu(event.gpu, event.state)
        reason = NodeLost(str(event.gpu)) if event.state is GpuState.FAILED else None
        self.change([event.gpu], event.state is GpuState.USABLE, reason, now)
        return True

    def refresh(self, gpus: Iterable[Gpu], now: float) -> None:
        """Counts these GPUs anew after runs that the scheduler did not start have appeared on them or left them."""
        self.change([gpu for gpu in gpus if self._ledger.real_cluster.has(gpu)], False, None, now)

    def change(self, gpus: list[Gpu], usable: bool, reason: NodeLost | None, now: float) -> None:
        """Follows a change of these GPUs: releases holds on them unless they are usable, stops jobs if there is a
        reason to, and lets the pools concerned decide again."""
        epochs, held_for = self._ledger.on(gpus)
        if not usable:
            for serial in held_for.tolist():
                self._holds.release(serial, now)
        if reason is not None:
            self._stop(epochs.tolist(), reason, now)
        positions = self._ledger.cluster.positions(gpus)
        for pool in self._pools:
            if self._pools.has_cells or pool.gpus[positions].any():
                pool.count_capacity(self._ledger)
                pool.touch(now)

    def _stop(self, epochs: Iterable[int], reason: NodeLost, now: float) -> None:
        for epoch in epochs:
            for serial in self._leases.by_epoch[epoch].bundle:
                pool = self._jobs.where(serial)
                if self._jobs.status(pool, serial) in (STARTING, RUNNING):
                    self._leases.stop(pool, serial, reason, now)
