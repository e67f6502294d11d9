"""`Scheduler.handle(event)`: facts change the state, a `Tick` makes the pools that are due decide."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import inf, isfinite
from typing import Any

import numpy as np

from horae.guarantees.pools import Pools
from horae.mechanism.admit import Ground, admit
from horae.mechanism.claims import claim, next_contest_at, rotates, tries_everything
from horae.model.arrays import Bools
from horae.model.commands import Command, Start, Stop
from horae.model.errors import BrokenInvariant, ClusterError, PolicyError
from horae.model.events import (
    Ending,
    Event,
    Health,
    JobCancelled,
    JobEnded,
    JobProgressed,
    JobStarted,
    JobSubmitted,
    NodeChanged,
    PolicyChanged,
    ReservationsChanged,
    SpeedRevised,
    Surveyed,
    Tick,
)
from horae.model.explanations import Explanation
from horae.model.jobs import Job
from horae.model.plans import Hold, Lease, Placement, Reaction, Round, RoundPlan
from horae.model.pools import Setup
from horae.model.reasons import Cancelled, NodeLost, NoPool, Preempted, Reason, Refusal, StopReason
from horae.model.shapes import Demand
from horae.model.status import FINAL, ON_GPUS, Signal, Status, after
from horae.model.table import NOBODY, Entry
from horae.model.view import View
from horae.policies.registry import make_policy
from horae.scheduler.books import DemandBook, NameBook, ShapeBook, SharingBook
from horae.scheduler.check import check_plan
from horae.scheduler.explain import Scene, blocker, explain
from horae.scheduler.floor import Floor
from horae.scheduler.mailbox import Mailbox
from horae.scheduler.pool import Pool

# As plain numbers, for they are compared with numbers of the table all the time.
_PENDING, _HOLDING, _STARTING = int(Status.PENDING), int(Status.HOLDING), int(Status.STARTING)
_RUNNING, _STOPPING, _CANCELLING = int(Status.RUNNING), int(Status.STOPPING), int(Status.CANCELLING)
_UNSETTLED = frozenset({_PENDING, _HOLDING, _STOPPING})


_NOTHING = Reaction((), ())


class Scheduler:
    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.now = 0.0
        self.ignored = 0  # events that were late, doubled or about nobody
        self._pools = Pools(setup.cluster, setup.pools, static_binding=setup.static_binding)
        self._floor = Floor(self._pools.cluster, self._pools.tenancy)
        self._pool = [
            Pool(index, spec, make_policy(spec.policy, spec.options), self._pools.gpus[index])
            for index, spec in enumerate(setup.pools)
        ]
        for pool in self._pool:
            pool.count_capacity(self._floor)
        self._shapes = ShapeBook(self._pools.cluster)
        self._demands = DemandBook()
        self._tenants = NameBook(setup.tenant_weights)
        self._users = NameBook({})
        self._models = NameBook({})
        self._sharing = SharingBook(setup.sharing)
        self._live: dict[str, tuple[Pool, int]] = {}  # job id: its pool and serial
        self._id: dict[int, str] = {}  # serial to job id, of live jobs
        self._ended: dict[str, Status] = {}
        self._refused: dict[str, Refusal] = {}
        self._leases: dict[int, Lease] = {}  # by epoch
        self._holds: dict[int, Hold] = {}  # by serial
        self._failures: dict[int, int] = {}  # by serial
        self._serial_next = 0
        self._epoch_next = 0
        self._mailbox = Mailbox(setup.acknowledge_seconds, setup.survey_seconds)
        self._commands: list[Command] = []
        self._rounds: list[Round] = []
        self._handlers: dict[type, Callable[[Any], None]] = {
            JobSubmitted: self._on_submitted,
            JobCancelled: self._on_cancelled,
            JobStarted: self._on_started,
            JobProgressed: self._on_progressed,
            JobEnded: self._on_ended,
            NodeChanged: self._on_node,
            PolicyChanged: self._on_policy,
            ReservationsChanged: self._on_reservations,
            SpeedRevised: self._on_speed,
            Surveyed: self._on_surveyed,
            Tick: self._on_tick,
        }

    def handle(self, event: Event) -> Reaction:
        self.now = max(self.now, event.at)
        self._handlers[type(event)](event)
        if self._pools.tenancy is not None:
            self._recount()
        if not self._commands and not self._rounds:
            return _NOTHING
        reaction = Reaction(tuple(self._commands), tuple(self._rounds))
        self._commands, self._rounds = [], []
        return reaction

    @property
    def next_wakeup_at(self) -> float:
        """When the scheduler wants a `Tick`, if nothing happens before."""
        wake_at = self._mailbox.due_at(busy=bool(self._leases))
        for pool in self._pool:
            wake_at = min(wake_at, pool.wake_at)
        for hold in self._holds.values():
            wake_at = min(wake_at, hold.expires_at)
        return wake_at

    # The round: views, decide, claim, admit, place, plan

    def _decide_round(self, pool: Pool) -> None:
        usable = self._floor.usable(pool.open_gpus)
        self._floor.spreads = pool.spec.spreads
        view = self._view(pool, usable)  # 1
        decision = pool.decide(view)  # 2
        claims = claim(decision, view.jobs, pool.standing(view, decision))  # 3
        floor = self._floor
        where = pool.spec.name, usable, floor.holder, floor.loads()
        ground = Ground(*where, self._demands.all, pool.table.ids, pool.quota_left(floor))
        plan = admit(claims, view.jobs, ground, self._floor)  # 4 and 5
        check_plan(plan, pool, self._pools, self._floor, usable)
        self._rounds.append(pool.name_round(view, decision, plan))
        self._carry_out(pool, plan)  # 6
        pool.decision, pool.plan = decision, plan
        settled = pool.table.view(self.now)
        stands_until = self.now if rotates(decision, settled) else decision.stands_until
        if (tries_everything(decision) or pool.unsolved is not None) and not settled.on_gpus.any():
            stands_until = inf  # nobody is there who could leave: only an event can help those who wait
        contest_at = self.now if stands_until <= self.now else next_contest_at(decision, settled)
        pool.settle(self.now, stands_until, contest_at)

    def _view(self, pool: Pool, usable: Bools) -> View:
        shapes, cluster = self._shapes, self._pools.cluster
        # By position, in the order of its fields: a view is made for every round.
        return View(
            self.now, self.setup.seed, pool.spec.round_seconds,
            cluster.accelerators, pool.capacity, pool.cpus, pool.memory_bytes,
            shapes.all, pool.accelerator_of(shapes), shapes.gpus, shapes.level, cluster.levels,
            pool.table.view(self.now), self._tenants.all, self._tenants.weight,
            pool.apps, pool.app_seconds(self.now), partial(self._floor.fit, usable),
            cluster.price_per_hour, self._models.all, self._sharing.kept(self._models.all, shapes.all),
        )  # fmt: skip

    def _carry_out(self, pool: Pool, plan: RoundPlan) -> None:
        columns, row = pool.table.columns, pool.table.row
        for departure in plan.departures:
            self._stop(pool, departure.serial, departure.reason)
        for placement in plan.placements:
            present = set(self._floor.holder[placement.gpus].tolist())
            present.update(int(columns["epoch"][row[serial]]) for serial in placement.bundle)
            if self._pools.tenancy is not None:
                present.update(self._send_away(pool, placement))
            awaited = frozenset(present.union(placement.leaving) - {NOBODY})
            if awaited:
                self._hold(pool, placement, awaited)
            else:
                self._start(pool, placement)
        for serial, lease_seconds in plan.extensions:
            columns["lease_until"][row[serial]] = self.now + lease_seconds

    def _send_away(self, pool: Pool, placement: Placement) -> list[int]:
        """Whoever is on a tenant's GPUs without a guarantee, or waits for them, leaves them: epochs of their leases."""
        guests, expected = self._floor.guests(placement.gpus, self._demand(pool, placement))
        for serial in expected:
            self._release(serial)
        for epoch in guests:
            for serial in self._leases[epoch].bundle:
                theirs, _ = self._live[self._id[serial]]
                if self._status(theirs, serial) in (_STARTING, _RUNNING):
                    self._stop(theirs, serial, Preempted(self._id[placement.serial]))
                    theirs.touch(self.now)
        return guests

    # Leases and holds

    def _start(self, pool: Pool, placement: Placement) -> None:
        epoch = self._epoch_next
        self._epoch_next += 1
        self._leases[epoch] = Lease(epoch, placement.bundle, placement.gpus, placement.shape)
        self._floor.take(placement.gpus, epoch, self._demand(pool, placement))
        for serial, option in zip(placement.bundle, (placement.option, placement.partner_option), strict=False):
            self._signal(pool, serial, Signal.START)
            pool.lease(serial, option, epoch, placement, self.now)
        rows = [pool.table.row[serial] for serial in placement.bundle]
        jobs = [pool.table.jobs[row] for row in rows]
        if len(jobs) > 1:
            pool.table.bundles += 1
            for row, job, other in zip(rows, jobs, jobs[::-1], strict=True):
                pool.table.columns["pace"][row] = self._sharing.of(job.model, other.model, placement.shape)
        steps_done = tuple([float(pool.table.columns["steps_base"][row]) for row in rows])
        job_ids = tuple([job.id for job in jobs])
        self._send(Start(epoch, job_ids, self._floor.real(placement.gpus), placement.shape, steps_done))

    def _demand(self, pool: Pool, taken: Placement | Lease) -> Demand:
        numbers = [int(pool.table.columns["demand"][pool.table.row[serial]]) for serial in taken.bundle]
        demand = self._demands.all[numbers[0]]
        return demand if len(numbers) == 1 else demand.beside(self._demands.all[numbers[1]])

    def _hold(self, pool: Pool, placement: Placement, awaited: frozenset[int]) -> None:
        """Keep the GPUs for their winner; should those who leave take too long, all of it is undone."""
        leaving = [self._job(serial) for epoch in awaited for serial in self._leases[epoch].bundle]
        grace_seconds = max(job.grace_seconds for job in leaving)
        expires_at = self.now + grace_seconds + self.setup.acknowledge_seconds
        self._floor.hold(placement.gpus, placement.serial, self._demand(pool, placement))
        for serial in placement.bundle:
            self._holds[serial] = Hold(placement, awaited, expires_at)
            if self._status(pool, serial) == _PENDING:
                self._signal(pool, serial, Signal.HOLD)

    def _release(self, serial: int) -> None:
        """Undo a hold: its jobs wait again, and its GPUs are anybody's."""
        hold = self._holds.get(serial)
        if hold is None:
            return
        self._floor.release(hold.placement.gpus)
        pool, _ = self._live[self._id[serial]]
        for member in hold.placement.bundle:
            del self._holds[member]
            if self._status(pool, member) == _HOLDING:
                self._signal(pool, member, Signal.RELEASE)
        pool.touch(self.now)

    def _stop(self, pool: Pool, serial: int, reason: StopReason) -> None:
        columns, row = pool.table.columns, pool.table.row[serial]
        self._signal(pool, serial, Signal.CANCEL if isinstance(reason, Cancelled) else Signal.STOP)
        if isinstance(reason, Preempted):
            columns["preemptions_left"][row] -= 1
        job = pool.table.jobs[row]
        epoch = int(columns["epoch"][row])
        self._mailbox.answered(Start, epoch, job.id)
        self._send(Stop(epoch, job.id, job.grace_seconds))

    def _leave(self, pool: Pool, epoch: int, serial: int) -> None:
        """A job has left its GPUs; they are free when the last of its bundle has."""
        lease = self._leases.pop(epoch, None)
        if lease is None or serial not in lease.bundle:
            raise BrokenInvariant(f"job {self._id[serial]} ends lease {epoch}, which is not its own")
        self._floor.give_back(lease.gpus)
        if pool.spec.quota:
            for neighbour in self._pool:
                neighbour.touch(self.now)  # they share GPUs
        for other in lease.bundle:
            if other != serial:
                pool.table.bundles -= 1
                self._leases[epoch] = Lease(epoch, (other,), lease.gpus, lease.shape)
                self._floor.take(lease.gpus, epoch, self._demands.all[pool.left_alone(other, self.now)])
                self._mailbox.left(epoch, self._id[serial], self._id[other])

    def _start_whom_this_frees(self, epoch: int) -> None:
        """Holds that waited for this lease move on; those that waited for nothing else start."""
        if epoch in self._leases:
            return
        for serial, hold in list(self._holds.items()):
            if epoch not in hold.awaited:
                continue
            awaited = hold.awaited - {epoch}
            self._holds[serial] = Hold(hold.placement, awaited, hold.expires_at)
            if not awaited and serial == hold.placement.bundle[-1]:  # the last that is told of a pair
                pool, _ = self._live[self._id[serial]]
                for member in hold.placement.bundle:
                    del self._holds[member]
                self._start(pool, hold.placement)  # before its GPUs are released, or a tenant's would be somewhere else
                self._floor.release(hold.placement.gpus)

    # Events

    def _on_submitted(self, event: JobSubmitted) -> None:
        job = event.job
        if job.id in self._live or job.id in self._ended:
            self.ignored += 1
            return
        index = self._pools.pool_of(job)
        if index is None:
            self._refuse(job, NoPool(job.tenant))
            return
        pool = self._pool[index]
        demand = self._demands.number(job.demand)
        never = pool.never(demand, self._demands.all[demand], self._floor)
        if never is not None:
            self._refuse(job, never)
            return
        serial = self._serial_next
        self._serial_next += 1
        app = pool.join_app(job, self.now)
        tenant, user = self._tenants.number(job.tenant), self._users.number(job.owner)
        model = self._models.number(job.model)
        shapes = tuple([self._shapes.number(option.shape) for option in job.options])
        pool.table.add(
            serial, job, Entry(app.number, tenant, user, demand, shapes, app.submitted_at, app.integral, model)
        )
        pool.unsettled += 1
        self._live[job.id] = (pool, serial)
        self._id[serial] = job.id
        pool.touch(self.now)

    def _refuse(self, job: Job, refusal: Refusal) -> None:
        self._refused[job.id] = refusal
        self._ended[job.id] = Status.REFUSED

    def _on_cancelled(self, event: JobCancelled) -> None:
        found = self._live.get(event.job_id)
        if found is None or self._status(*found) == _CANCELLING:
            self.ignored += 1
            return
        pool, serial = found
        self._release(serial)
        if self._status(pool, serial) in ON_GPUS:
            self._stop(pool, serial, Cancelled())
        else:
            self._signal(pool, serial, Signal.CANCEL)
            self._remove(pool, serial)

    def _on_started(self, event: JobStarted) -> None:
        found = self._current(event.job_id, event.epoch)
        if found is None:
            return
        self._mailbox.answered(Start, event.epoch, event.job_id)
        pool, serial = found
        if self._status(pool, serial) == _STARTING:
            self._signal(pool, serial, Signal.ACKNOWLEDGE)
            if pool.unsettled and self.now > pool.table.columns["since"][pool.table.row[serial]]:
                pool.touch(self.now)  # only now may it be contested

    def _on_progressed(self, event: JobProgressed) -> None:
        found = self._current(event.job_id, event.epoch)
        if found is not None:
            pool, serial = found
            pool.report(serial, event.steps, event.at)

    def _on_ended(self, event: JobEnded) -> None:
        found = self._current(event.job_id, event.epoch)
        if found is None:
            return
        pool, serial = found
        before = self._status(pool, serial)
        self._mailbox.ended(event.epoch, event.job_id)
        self._leave(pool, event.epoch, serial)
        if self._signal(pool, serial, self._signal_of(serial, event.ending)) in FINAL:
            self._release(serial)
            self._remove(pool, serial)
        else:
            pool.report(serial, event.steps, event.at)
            pool.book(serial, self.now)
            if serial in self._holds:
                self._signal(pool, serial, Signal.HOLD)
            reckoned = any(
                event.epoch in hold.awaited and self._live[self._id[member]][0] is pool
                for member, hold in self._holds.items()
            )
            if before != _STOPPING or event.ending is not Ending.STOPPED or not reckoned:
                pool.touch(self.now)
        if self._holds:
            self._start_whom_this_frees(event.epoch)

    def _signal_of(self, serial: int, ending: Ending) -> Signal:
        if ending is Ending.FINISHED:
            return Signal.FINISH
        if ending is not Ending.FAILED:
            return Signal.LEAVE
        failures = self._failures.get(serial, 0) + 1
        self._failures[serial] = failures
        return Signal.FAIL if failures > self._job(serial).retries_max else Signal.LEAVE

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

    def _on_speed(self, event: SpeedRevised) -> None:
        """Live jobs of the model take over the new belief; those still to come bring theirs with them."""
        if not (event.steps_per_second > 0 and isfinite(event.steps_per_second)):
            self.ignored += 1
            return
        model, shape = self._models.find(event.model), self._shapes.find(event.shape)
        for pool in self._pool:
            if pool.table.revise(model, shape, event.steps_per_second, self.now):
                pool.touch(self.now)

    def _on_surveyed(self, event: Surveyed) -> None:
        """Believe the engine: what it does not run any more has ended, whatever became of the message."""
        self._mailbox.surveyed(self.now)
        running = {(job_id, epoch): steps for job_id, epoch, steps in event.running}
        for job_id, (pool, serial) in list(self._live.items()):
            row = pool.table.row[serial]
            epoch = int(pool.table.columns["epoch"][row])
            status = self._status(pool, serial)
            # A start may have crossed the survey on its way.
            if epoch == NOBODY or status == _STARTING or pool.table.columns["since"][row] >= event.at:
                continue
            steps = running.get((job_id, epoch))
            if steps is None:
                self._on_ended(JobEnded(event.at, job_id, epoch, Ending.LOST, 0.0, "not found by a survey"))
            else:
                pool.report(serial, steps, event.at)
        for (job_id, epoch), _ in sorted(running.items()):
            found = self._live.get(job_id)
            if found is not None and self._epoch(*found) == epoch:
                if self._status(*found) == _STARTING:
                    self._on_started(JobStarted(event.at, job_id, epoch))
            elif epoch < self._epoch_next:
                # A lease that nobody knows any more, e.g. of a start that was given up: it must not go on.
                self._commands.append(Stop(epoch, job_id, 0.0))

    def _on_tick(self, event: Tick) -> None:
        for serial, hold in list(self._holds.items()):
            if hold.expires_at <= self.now:
                self._release(serial)  # the other one of a pair finds nothing left to undo
        self._commands.extend(self._mailbox.overdue(self.now, busy=bool(self._leases)))
        for pool in self._pool:
            if self._pools.tenancy is not None:
                self._recount()
            if pool.wake_at <= self.now:
                self._decide_round(pool)

    def _recount(self) -> None:
        """Tenants have taken GPUs, or left them: others may use fewer or more."""
        tenancy = self._pools.tenancy
        if tenancy is None or not (tenancy.shifted or tenancy.cells_shifted):
            return
        for pool in self._pool:
            if tenancy.cells_shifted if pool.spec.cells else tenancy.shifted:
                pool.count_capacity(self._floor)
                pool.touch(self.now)
        tenancy.shifted = tenancy.cells_shifted = False

    # Small things

    def _send(self, command: Start | Stop) -> None:
        self._commands.append(command)
        self._mailbox.sent(command, self.now)

    def _current(self, job_id: str, epoch: int) -> tuple[Pool, int] | None:
        """The job, if this epoch is its present lease; anything else is old news."""
        found = self._live.get(job_id)
        if found is None or epoch == NOBODY or self._epoch(*found) != epoch:
            self.ignored += 1
            return None
        return found

    def _epoch(self, pool: Pool, serial: int) -> int:
        return int(pool.table.columns["epoch"][pool.table.row[serial]])

    def _status(self, pool: Pool, serial: int) -> int:
        return int(pool.table.columns["status"][pool.table.row[serial]])

    def _job(self, serial: int) -> Job:
        pool, _ = self._live[self._id[serial]]
        return pool.table.jobs[pool.table.row[serial]]

    def _signal(self, pool: Pool, serial: int, signal: Signal) -> int:
        columns, row = pool.table.columns, pool.table.row[serial]
        before = int(columns["status"][row])
        status = after(pool.table.ids[row], before, signal)
        columns["status"][row] = status
        pool.unsettled += (status in _UNSETTLED) - (before in _UNSETTLED)
        if status == _PENDING and signal != Signal.RELEASE:
            columns["queued_at"][row] = self.now
        return status

    def _remove(self, pool: Pool, serial: int) -> None:
        row = pool.table.row[serial]
        job = pool.table.jobs[row]
        self._ended[job.id] = Status(pool.table.columns["status"][row])
        pool.leave_app(job, self.now)
        pool.table.remove(serial)
        del self._live[job.id], self._id[serial]
        self._failures.pop(serial, None)
        pool.touch(self.now)

    # Questions

    def status(self, job_id: str) -> Status | None:
        if job_id in self._ended:
            return self._ended[job_id]
        return Status(self._status(*self._live[job_id])) if job_id in self._live else None

    def why(self, job_id: str) -> Reason | None:
        """Why a job waits or was refused; None for one that runs, has ended or is unknown."""
        if job_id in self._refused:
            return self._refused[job_id]
        if job_id not in self._live:
            return None
        pool, serial = self._live[job_id]
        hold = self._holds.get(serial)
        leaving = [self._id[s] for epoch in sorted(hold.awaited) for s in self._leases[epoch].bundle] if hold else []
        return blocker(pool, serial, self.now, tuple(leaving))

    def explain(self, job_id: str) -> Explanation | None:
        """What stands in a job's way, who, and what would unblock it; None for a job that was never submitted."""
        if job_id in self._live:
            scene = Scene(self.now, self._floor, self._leases, self._demands.all)
            return explain(*self._live[job_id], self.why(job_id), scene)
        ended = self._ended.get(job_id)
        return None if ended is None else Explanation(job_id, self.now, ended, self._refused.get(job_id))
