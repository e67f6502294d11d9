"""`Scheduler.handle(event)`: facts change the state, a `Tick` makes the pools that are due decide."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf, isfinite
from typing import Any

from horae.mechanism.admit import Ground, admit
from horae.mechanism.claims import claim, next_contest_at, rotates, tries_everything
from horae.model.arrays import Bools
from horae.model.commands import Start, Stop
from horae.model.events import (
    BidGiven,
    CurveRevised,
    Ending,
    Event,
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
from horae.model.plans import Placement, Reaction, RoundPlan
from horae.model.pools import Setup
from horae.model.reasons import Cancelled, NoPool, Preempted, Reason
from horae.model.status import FINAL, ON_GPUS, Signal, Status
from horae.model.table import NOBODY
from horae.model.view import View
from horae.scheduler.auctions import hear, heard
from horae.scheduler.check import check_plan
from horae.scheduler.explain import Scene, blocker, explain
from horae.scheduler.operating import Operating
from horae.scheduler.pool import Pool

# As plain numbers, for they are compared with numbers of the table all the time.
_PENDING, _HOLDING, _STARTING = int(Status.PENDING), int(Status.HOLDING), int(Status.STARTING)
_RUNNING, _STOPPING, _CANCELLING = int(Status.RUNNING), int(Status.STOPPING), int(Status.CANCELLING)
_UNSETTLED = frozenset({_PENDING, _HOLDING, _STOPPING})


_NOTHING = Reaction((), ())


class Scheduler(Operating):
    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._handlers: dict[type, Callable[[Any], None]] = {
            JobSubmitted: self._on_submitted,
            JobCancelled: self._on_cancelled,
            JobStarted: self._on_started,
            JobProgressed: self._on_progressed,
            JobEnded: self._on_ended,
            NodeChanged: self._on_node,
            PolicyChanged: self._on_policy,
            ReservationsChanged: self._on_reservations,
            BidGiven: self._on_bid,
            CurveRevised: self._on_curve,
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
        pool.close_apps(decision, plan)
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
            len(pool.apps), pool.apps.seconds(self.now), partial(self._floor.fit, usable),
            cluster.price_per_hour, self._models.all, self._sharing.kept(self._models.all, shapes.all),
            pool.apps.columns(), *heard(pool), partial(self._floor.trial, usable, pool.table.columns["epoch"]),
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
        self._id[serial] = job.id
        self._enter(pool, job, serial)

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
        before, lease = self._status(pool, serial), self._leases.get(event.epoch)
        self._mailbox.ended(event.epoch, event.job_id)
        self._leave(pool, event.epoch, serial)
        if self._signal(pool, serial, self._signal_of(serial, event.ending)) in FINAL:
            self._release(serial)
            pool.report(serial, event.steps, event.at)
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
            # Somebody may have come after the decision that made it leave, and some of its GPUs may be kept for nobody.
            reckoned &= self.now <= pool.decided_at or (
                lease is not None and bool((self._floor.held_for[lease.gpus] != NOBODY).all())
            )
            if before != _STOPPING or event.ending is not Ending.STOPPED or not reckoned:
                pool.touch(self.now)
            if self._pools.tenancy is not None and self._status(pool, serial) == _PENDING:
                self._see_that_it_fits(pool, serial)
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

    def _on_speed(self, event: SpeedRevised) -> None:
        """Live jobs of the model take over the new belief; those still to come bring theirs with them."""
        if not (event.steps_per_second > 0 and isfinite(event.steps_per_second)):
            self.ignored += 1
            return
        model, shape = self._models.find(event.model), self._shapes.find(event.shape)
        for pool in self._pool:
            if pool.table.revise(model, shape, event.steps_per_second, self.now):
                pool.touch(self.now)

    def _on_curve(self, event: CurveRevised) -> None:
        found = self._live.get(event.job_id)
        if found is None or not event.curve.is_sound:
            self.ignored += 1
            return
        pool, serial = found
        columns, row = pool.table.columns, pool.table.row[serial]
        columns["curve_rate"][row], columns["curve_start"][row], columns["curve_floor"][row] = event.curve
        pool.touch(self.now)

    def _on_bid(self, event: BidGiven) -> None:
        if not hear(self._pool, event, self.now):
            self.ignored += 1

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
            if pool.wake_at <= self.now and not self._awaits_bids(pool):
                self._decide_round(pool)
                pool.auction = None

    def _awaits_bids(self, pool: Pool) -> bool:
        """Whether apps are still to be heard; if nobody has been asked who should be, they are asked now."""
        if pool.auction is None:
            call = self._auctions.open(pool, lambda: self._view(pool, self._floor.usable(pool.open_gpus)), self.now)
            self._commands.extend([] if call is None else [call])
        if pool.auction is None or pool.auction.is_over(self.now):
            return False
        pool.wake_at = pool.auction.closes_at
        return True

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
