"""What operators change while all goes on: nodes, policies and reservations; and who comes into a pool."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from horae.guarantees.pools import Pools
from horae.model.errors import ClusterError, PolicyError
from horae.model.events import Health, NodeChanged, PolicyChanged, ReservationsChanged
from horae.model.jobs import Job
from horae.model.reasons import NodeLost, Refusal
from horae.model.status import Status
from horae.model.table import NOBODY, Entry
from horae.policies.registry import make_policy
from horae.scheduler.leasing import Leasing
from horae.scheduler.pool import Pool

_PENDING, _STARTING, _RUNNING = int(Status.PENDING), int(Status.STARTING), int(Status.RUNNING)

# What a job has had so far, which it takes along into another pool.
KEPT_ON_THE_WAY = ("steps_base", "run_base", "service_base", "received_base", "preemptions_left", "queued_at")


class Operating(Leasing):
    def _enter(self, pool: Pool, job: Job, serial: int) -> None:
        app = pool.apps.join(job, self.now)
        tenant, user = self._tenants.number(job.tenant), self._users.number(job.owner)
        demand, model = self._demands.number(job.demand), self._models.number(job.model)
        shapes = tuple([self._shapes.number(option.shape) for option in job.options])
        fits = pool.fitting(demand, self._demands.all[demand], self._floor)
        if False in fits:
            shapes = tuple([shape if may else NOBODY for shape, may in zip(shapes, fits, strict=True)])
        pool.table.add(
            serial, job, Entry(app.number, tenant, user, demand, shapes, app.submitted_at, app.integral, model)
        )
        pool.unsettled += 1
        self._live[job.id] = (pool, serial)
        pool.touch(self.now)

    def _refuse(self, job: Job, refusal: Refusal) -> None:
        self._refused[job.id] = refusal
        self._ended[job.id] = Status.REFUSED

    def _on_node(self, event: NodeChanged) -> None:
        known = event.node in self.setup.cluster.node_index
        if not known or self._floor.health[event.node] is event.health:
            self.ignored += 1
            return
        self._floor.set_health(event.node, event.health)
        epochs, held_for = self._floor.on_node(event.node)
        if event.health is not Health.HEALTHY:
            for serial in held_for.tolist():
                self._release(serial)
        if event.health is Health.FAILED:
            for epoch in epochs.tolist():
                for serial in self._leases[epoch].bundle:
                    pool, _ = self._live[self._id[serial]]
                    if self._status(pool, serial) in (_STARTING, _RUNNING):
                        self._stop(pool, serial, NodeLost(event.node))
        for pool in self._pool:
            if self._pools.tenancy is not None or pool.gpus[self.setup.cluster.gpus_of_node(event.node)].any():
                pool.count_capacity(self._floor)
                pool.touch(self.now)

    def _on_policy(self, event: PolicyChanged) -> None:
        """Another policy for a pool; one that does not exist changes nothing."""
        for pool in self._pool:
            if pool.spec.name == event.pool:
                try:
                    policy = make_policy(event.policy, event.options)
                except PolicyError:
                    break
                pool.take_over(policy, self.now)
                return
        self.ignored += 1

    def _on_reservations(self, event: ReservationsChanged) -> None:
        """Other cells for tenants. Everybody goes on where it is; who is covered no more is there as a guest."""
        specs = [replace(spec, cells=dict(event.cells.get(spec.name, spec.cells))) for spec in self._pools.specs]
        reserves = [bool(spec.cells) for spec in specs]
        try:
            pools = Pools(self.setup.cluster, specs, static_binding=self.setup.static_binding)
        except ClusterError:
            self.ignored += 1
            return
        if pools.tenancy is None or reserves != [bool(spec.cells) for spec in self._pools.specs]:
            self.ignored += 1  # a pool has cells or has not
            return
        for serial in list(self._holds):
            self._release(serial)
        floor = self._floor.moved(pools.cluster, pools.tenancy)
        for epoch, lease in sorted(self._leases.items()):
            pool, _ = self._live[self._id[lease.bundle[0]]]
            real = np.array(self._floor.real(lease.gpus))
            own = pools.tenancy.adopt(pool.spec.name, real) if pool.spec.cells else None
            self._leases[epoch] = lease._replace(gpus=pools.tenancy.wide_of(real) if own is None else own)
            floor.take(self._leases[epoch].gpus, epoch, self._demand(pool, lease))
        self._pools, self._floor = pools, floor
        for pool, spec, gpus in zip(self._pool, specs, pools.gpus, strict=True):
            pool.move(spec, gpus, floor, self.now)
        for pool in self._pool:
            for serial in sorted(pool.table.row):
                self._mask_options(pool, serial)
                if self._status(pool, serial) == _PENDING:
                    self._see_that_it_fits(pool, serial)

    def _mask_options(self, pool: Pool, serial: int) -> None:
        row = pool.table.row[serial]
        demand = int(pool.table.columns["demand"][row])
        shapes = tuple([self._shapes.number(option.shape) for option in pool.table.jobs[row].options])
        pool.mask_options(serial, shapes, pool.fitting(demand, self._demands.all[demand], self._floor))

    def _see_that_it_fits(self, pool: Pool, serial: int) -> None:
        """A job that waits for cells which its tenant has no more goes on without a guarantee, or is refused."""
        row = pool.table.row[serial]
        job, demand = pool.table.jobs[row], int(pool.table.columns["demand"][row])
        never = pool.never(demand, self._demands.all[demand], self._floor)
        if never is None:
            return
        kept = {name: pool.table.columns[name][row : row + 1].copy() for name in KEPT_ON_THE_WAY}
        pool.unsettled -= 1
        pool.leave_app(serial, self.now, is_finished=False)
        pool.table.remove(serial)
        pool.touch(self.now)
        other = self._pools.for_all_else
        spare = None if other is None else self._pool[other]
        if spare is None or spare is pool or spare.never(demand, self._demands.all[demand], self._floor) is not None:
            del self._live[job.id], self._id[serial]
            self._failures.pop(serial, None)
            self._refuse(job, never)
            return
        self._enter(spare, job, serial)
        row = spare.table.row[serial]
        for name, values in kept.items():
            column = spare.table.columns[name][row : row + 1]
            options = min(column.shape[-1], values.shape[-1])  # tables differ in how many they have room for
            column[..., :options] = values[..., :options]
