"""Changes by operators while jobs run: nodes added and removed, tenants, policies.

No change stops a job. A change that is not possible is rejected or postponed, with a notice to the operator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import numpy as np

from horae.cells.pool_layout import PoolLayout
from horae.model.cluster import Cluster, Gpu, Node
from horae.model.errors import ClusterError, InputError
from horae.model.events import (
    ClusterChanged,
    Health,
    NodeChanged,
    PolicyChanged,
    TenantChange,
    TenantsChanged,
)
from horae.model.jobs import Job
from horae.model.notices import ChangeRefused, GuaranteeLost, NodeInUse, Notice
from horae.model.setup import PoolSpec, Setup
from horae.model.status import PENDING, RUNNING, STARTING
from horae.policies.registry import make_policy
from horae.scheduler.gpu_ledger import GpuLedger
from horae.scheduler.hardware import Hardware
from horae.scheduler.holds import Holds
from horae.scheduler.intake import Intake
from horae.scheduler.interning import Interned
from horae.scheduler.jobs import JobRegistry, is_loan
from horae.scheduler.leases import Leases
from horae.scheduler.loans import Loans
from horae.scheduler.placer import Placer
from horae.scheduler.pool import Pool
from horae.scheduler.pool_set import PoolSet

_NOT_THERE = object()


class Administration:
    def __init__(
        self,
        setup: Setup,
        pools: PoolSet,
        ledger: GpuLedger,
        placer: Placer,
        interned: Interned,
        jobs: JobRegistry,
        leases: Leases,
        holds: Holds,
        intake: Intake,
        loans: Loans,
        hardware: Hardware,
        tell: Callable[[Notice], None],
    ) -> None:
        self._static_binding = setup.static_binding
        self._pools = pools
        self._ledger = ledger
        self._placer = placer
        self._interned = interned
        self._jobs = jobs
        self._leases = leases
        self._holds = holds
        self._intake = intake
        self._loans = loans
        self._hardware = hardware
        self._tell = tell
        # Nodes to be removed, or replaced by another of their name, as soon as no job is in the way.
        self.leaving: dict[str, Node | None] = {}
        self.has_moved = False  # the cluster, cells or limits differ from those at the start

    # Jobs moving between pools

    def see_that_it_fits(self, pool: Pool, serial: int, now: float) -> None:
        """Moves or rejects a pending job whose pool is no longer its own, or can no longer hold it."""
        if is_loan(serial):
            self._see_that_a_loan_fits(pool, serial, now)
            return
        row = pool.table.row[serial]
        job, number = pool.table.jobs[row], int(pool.table.demand[row])
        demand = self._interned.demands.all[number]
        own = self._pools.of(job)
        never = pool.never(number, demand, self._placer)
        spare = self._pools.open_pool
        choices = [own] if own is not pool else []
        if never is not None and pool.spec.reserves:
            choices.append(spare)
        for other in choices:
            if other not in (None, pool) and other.never(number, demand, self._placer) is None:
                self._loans.drop(serial, now)
                if self._loans.can_move(serial):
                    self._intake.reenter(other, self._jobs.withdraw(pool, serial, now), now)
                    self._loans.move_home(serial, now)
                return
        if never is not None and not self._loans.is_running(serial):
            self._loans.drop(serial, now)
            self._jobs.withdraw(pool, serial, now)
            del self._jobs.id_of[serial]
            self._jobs.failures.pop(serial, None)
            self._jobs.to_suspend.discard(serial)
            self._jobs.refuse(job, never, now)

    def _see_that_a_loan_fits(self, pool: Pool, loan: int, now: float) -> None:
        number = int(pool.table.demand[pool.table.row[loan]])
        if pool.never(number, self._interned.demands.all[number], self._placer) is not None:
            self._loans.withdraw(loan, now)

    # Policies, tenants and the cluster

    def on_policy(self, event: PolicyChanged, now: float) -> bool:
        """Changes the policy of a pool; an unknown policy changes nothing."""
        pool = self._pools.named(event.pool)
        change = f"policy {event.policy!r} for pool {event.pool!r}"
        if pool is None:
            known = ", ".join(each.spec.name for each in self._pools)
            self._tell(ChangeRefused(change, "there is no such pool", f"use {known}"))
            return False
        try:
            policy = make_policy(event.policy, event.options)
            spec = _with_cadence(pool.spec, event)
        except InputError as error:
            self._tell(ChangeRefused(change, error.problem, error.remedy))
            return False
        is_new = (spec.policy, dict(spec.options)) != (event.policy, dict(event.options)) or spec == pool.spec
        pool.spec = replace(spec, policy=event.policy, options=dict(event.options))
        pool.wake_at = min(pool.wake_at, pool.spec.boundary_after(now))
        if is_new:
            pool.take_over(policy, now)
        else:
            pool.touch(now)
        return True

    def on_tenants(self, event: TenantsChanged, now: float) -> bool:
        """Changes cells, weights or limits of tenants. Every job keeps its GPUs."""
        specs = [pool.spec for pool in self._pools]
        try:
            for name, change in event.tenants.items():
                if change.weight is not None and not 0 < change.weight < np.inf:
                    raise InputError(f"weight is {change.weight}", remedy="give a positive number")
                if change.cells is not None or change.quota is not None:
                    specs = with_tenant_change(specs, name, change)
            layout = self._layout(self._ledger.real_cluster, specs)
        except InputError as error:
            self._tell(ChangeRefused(f"tenants {', '.join(event.tenants)}", error.problem, error.remedy))
            return False
        for name, change in event.tenants.items():
            if change.weight is not None:
                self._interned.tenants.set_weight(name, change.weight)
        if specs == [pool.spec for pool in self._pools]:
            for pool in self._pools:
                pool.touch(now)
            return True
        self._move(layout, now)
        self.remove_idle_nodes(now)
        return True

    def on_cluster(self, event: ClusterChanged, now: float) -> bool:
        """Adds, changes and removes nodes. Where jobs run, the change waits for their end."""
        nodes = {node.name: node for node in self._ledger.real_cluster.nodes}
        in_use = {node.name: self._beyond(nodes[node.name], node) for node in event.nodes if node.name in nodes}
        nodes |= {node.name: node for node in event.nodes if not in_use.get(node.name)}
        unknown = [name for name in event.removed if name not in nodes]
        if unknown:
            self._tell(ChangeRefused(f"removal of {', '.join(unknown)}", "there is no such node"))
        try:
            layout = self._layout(self._with_nodes(nodes.values()), [pool.spec for pool in self._pools])
        except InputError as error:
            names = ", ".join(node.name for node in event.nodes) or "nodes"
            self._tell(ChangeRefused(f"change of {names}", error.problem, error.remedy))
            return False
        for node in event.nodes:
            if in_use.get(node.name):
                self._close(node.name, node, in_use[node.name], now)
            else:
                self._reopen(node.name, now)
        if layout.real != self._ledger.real_cluster:
            self._move(layout, now)
        self.remove(event.removed, now)
        return True

    def remove(self, names: Iterable[str], now: float) -> None:
        """Removes nodes: at once where no job runs, otherwise as soon as none does."""
        for name in names:
            if name in self._ledger.real_cluster.node_index:
                self._close(name, None, self._jobs_on(self._ledger.of_node(name)), now)
        self.remove_idle_nodes(now)

    def _close(self, name: str, replacement: Node | None, busy: list[str], now: float) -> None:
        """Closes a node to new jobs until it is removed or changed."""
        if busy and (name not in self.leaving or self.leaving[name] != replacement):
            self._tell(NodeInUse(name, tuple(busy)))
        self.leaving[name] = replacement
        if name not in self._ledger.closing:
            self._ledger.set_closing(name, on=True)
            self._hardware.change(self._ledger.of_node(name), False, None, now)

    def _reopen(self, name: str, now: float) -> None:
        replacement = self.leaving.pop(name, _NOT_THERE)
        if replacement is not _NOT_THERE and name in self._ledger.closing:
            self._ledger.set_closing(name, on=False)
            if replacement is None:  # it joins again as a new, healthy node
                self._ledger.set_health(name, Health.HEALTHY)
            self._hardware.change(self._ledger.of_node(name), True, None, now)

    def remove_idle_nodes(self, now: float) -> None:
        """Removes or changes the due nodes on which no job is in the way:
        all together, or else one by one where possible."""
        present = {node.name: node for node in self._ledger.real_cluster.nodes}
        idle = [name for name, node in self.leaving.items() if not self._in_the_way(present[name], node)]
        if not idle or self._remove_now(idle, now) is None:
            return
        for name in idle:
            error = self._remove_now([name], now)
            if error is None or self._jobs_on(self._ledger.of_node(name)):
                continue
            if self._ledger.health_of(name) is not Health.FAILED:
                # Reservations of tenants need it: it stays, and counts as failed once no job is on it.
                self._tell(ChangeRefused(f"removal of {name}", error.problem, error.remedy or "change the cells"))
                self._hardware.on_node(NodeChanged(now, name, Health.FAILED), now)

    def _remove_now(self, names: list[str], now: float) -> InputError | None:
        """Removes or replaces these nodes; returns what prevents it, if anything."""
        present = self._ledger.real_cluster.nodes
        nodes = [self.leaving[node.name] if node.name in names else node for node in present]
        try:
            there = [node for node in nodes if node is not None]
            layout = self._layout(self._with_nodes(there), [pool.spec for pool in self._pools])
        except InputError as error:
            return error
        for name in names:
            del self.leaving[name]
        self._ledger.closing -= set(names)
        self._move(layout, now)
        return None

    def _in_the_way(self, present: Node, replacement: Node | None) -> list[str]:
        """Jobs that prevent a node from being removed or changed."""
        if replacement is None:
            return self._jobs_on(self._ledger.of_node(present.name))
        return self._beyond(present, replacement)

    def _with_nodes(self, nodes: Iterable[Node]) -> Cluster:
        cluster = self._ledger.real_cluster
        return Cluster(cluster.name, tuple(nodes), cluster.restart_seconds)

    def _layout(self, cluster: Cluster, specs: list[PoolSpec]) -> PoolLayout:
        return PoolLayout(cluster, specs, static_binding=self._static_binding)

    def _beyond(self, before: Node, after: Node) -> list[str]:
        """Jobs on GPUs that the changed node would lack, or have of another type."""
        if before.accelerator != after.accelerator:
            return self._jobs_on(self._ledger.of_node(before.name))
        gone = [gpu for gpu in self._ledger.of_node(before.name) if gpu.number >= after.gpus]
        return self._jobs_on(gone) if gone else []

    def _jobs_on(self, gpus: list[Gpu]) -> list[str]:
        epochs, _ = self._ledger.on(gpus)
        return [self._jobs.id_of[serial] for epoch in epochs.tolist() for serial in self._leases.by_epoch[epoch].bundle]

    def _move(self, layout: PoolLayout, now: float) -> None:
        """Transfers all leases, on their GPUs, to another layout;
        jobs no longer covered by their cells become preemptible."""
        self.has_moved = True
        self._holds.release_all(now)
        names = {epoch: self._ledger.names(lease.gpus) for epoch, lease in sorted(self._leases.by_epoch.items())}
        was_covered = {
            epoch: self._ledger.tenancy is not None and bool(self._ledger.tenancy.is_virtual[lease.gpus[0]])
            for epoch, lease in self._leases.by_epoch.items()
        }
        self._ledger.move(layout.real, layout.cluster, layout.tenancy)
        self._placer.move()
        self._interned.shapes.move(layout.cluster)
        uncovered: list[int] = []
        for epoch, gpus in names.items():
            lease = self._leases.by_epoch[epoch]
            pool = self._jobs.where(lease.bundle[0])
            positions, covered = _find(layout, layout.specs[pool.index], self._jobs.job(lease.bundle[0]), gpus)
            self._leases.by_epoch[epoch] = lease._replace(gpus=positions)
            self._ledger.take(positions, epoch, self._leases.demand(pool, lease))
            if was_covered[epoch] and not covered:
                uncovered.append(epoch)
        self._pools.move(layout, self._ledger, now)
        self._uncover(uncovered, now)
        for pool in self._pools:
            for serial in sorted(pool.table.row):
                self._mask_options(pool, serial)
                if self._jobs.status(pool, serial) == PENDING:
                    self.see_that_it_fits(pool, serial, now)

    def _uncover(self, epochs: Iterable[int], now: float) -> None:
        """Lets leases no longer covered by their tenants' cells continue without a guarantee."""
        job_ids: list[str] = []
        for epoch in epochs:
            lease = self._leases.by_epoch[epoch]
            job_ids += [self._jobs.id_of[serial] for serial in lease.bundle]
            pool, serial = self._jobs.where(lease.bundle[0]), lease.bundle[0]
            if len(lease.bundle) == 1 and self._jobs.status(pool, serial) in (STARTING, RUNNING):
                self._loans.release_cells(pool, serial, now)
        if job_ids:
            self._tell(GuaranteeLost(tuple(job_ids)))

    def _mask_options(self, pool: Pool, serial: int) -> None:
        row = pool.table.row[serial]
        number = int(pool.table.demand[row])
        shapes = tuple([self._interned.shapes.number(option.shape) for option in pool.table.jobs[row].options])
        pool.mask_options(serial, shapes, pool.fitting(number, self._interned.demands.all[number], self._placer))


def _find(layout: PoolLayout, spec: PoolSpec, job: Job, gpus: tuple[Gpu, ...]) -> tuple[np.ndarray, bool]:
    """The position of a lease in a layout: in its tenant's cells if they cover it, otherwise on the real GPUs."""
    real = layout.real.positions(gpus)
    if layout.tenancy is None:
        return real, False
    own = layout.tenancy.adopt(spec.name, real, job.pinned, members=job.members) if spec.reserves else None
    return (layout.tenancy.wide_of(real), False) if own is None else (own, True)


def _with_cadence(spec: PoolSpec, event: PolicyChanged) -> PoolSpec:
    given = {
        "cadence": event.cadence,
        "round_seconds": event.round_seconds,
        "admits_between_rounds": event.admits_between_rounds,
    }
    return replace(spec, **{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]


def with_tenant_change(specs: list[PoolSpec], name: str, change: TenantChange) -> list[PoolSpec]:
    """The specs with changed cells or limits for a tenant; a tenant without its own pool gets one."""
    changes: dict[str, Mapping[str, int]] = {}
    if change.cells is not None:
        changes["cells"] = dict(change.cells)
    if change.quota is not None:
        changes["quota"] = dict(change.quota)
    for index, spec in enumerate(specs):
        if spec.name == name or name in spec.tenants:
            if spec.nodes and changes.get("cells"):
                raise ClusterError(f"pool {spec.name!r} has nodes of its own", remedy="give it cells or nodes")
            if "cells" in changes:  # a pool that loses its last cell remains a reserving pool, with nothing reserved
                changes["cells"] = {**dict.fromkeys(spec.cells, 0), **changes["cells"]}
            return [*specs[:index], replace(spec, **changes), *specs[index + 1 :]]  # type: ignore[arg-type]
    pattern = next((spec for spec in specs if not spec.tenants), PoolSpec(name))
    fresh = PoolSpec(name, pattern.policy, pattern.options, pattern.cadence, pattern.round_seconds, (name,))
    return [*specs, replace(fresh, **changes)]  # type: ignore[arg-type]
