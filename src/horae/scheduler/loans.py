"""Loans: jobs of a tenant on GPUs outside its cells.

A job that its tenant's policy would start, but for which the tenant's cells have no room, may borrow: it is also
entered in the open pool, as a *loan* with its own serial, and is ranked there by that pool's policy, without a
guarantee. It keeps its place in its tenant's pool, where borrowed time counts neither as service nor as entitlement
used; the work that it does is progress. When its tenant's turn comes, the lease moves into the tenant's cells without a
restart (*promotion*), or the job moves, if that is worth a restart.

The reverse is lazy preemption: a job that loses its cells continues where it is, as a loan (*downgrade*).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from math import isfinite

from horae.model.arrays import Bools, Ints
from horae.model.job_table import NONE
from horae.model.jobs import Job
from horae.model.plans import Departure, Lease, Placement, RoundPlan
from horae.model.reasons import Moved, Preempted, Won
from horae.model.status import HOLDING, ON_GPUS, PENDING, RUNNING, STARTING, Signal, Status
from horae.scheduler import accounting
from horae.scheduler.gpu_ledger import GpuLedger
from horae.scheduler.holds import Holds
from horae.scheduler.intake import Intake
from horae.scheduler.jobs import JobRegistry, home_of, loan_of
from horae.scheduler.leases import Leases
from horae.scheduler.pool import Pool
from horae.scheduler.pool_set import PoolSet

_HORIZON_SECONDS = 3600.0  # horizon over which a move of a job of unknown length must pay off


class Loans:
    def __init__(
        self,
        pools: PoolSet,
        ledger: GpuLedger,
        jobs: JobRegistry,
        leases: Leases,
        holds: Holds,
        intake: Intake,
    ) -> None:
        self._pools = pools
        self._ledger = ledger
        self._jobs = jobs
        self._leases = leases
        self._holds = holds
        self._intake = intake

    # Which jobs may borrow

    def offer(self, pool: Pool, now: float) -> None:
        """After a round of a tenant's pool, enters loans for exactly those of its jobs that found no room."""
        spare = self._pools.open_pool
        may_borrow = pool.spec.borrow and spare is not None and spare is not pool
        wanted = dict.fromkeys(self._without_room(pool)) if may_borrow else {}
        for serial in sorted(each for each in self._jobs.lent if home_of(each) in pool.table.row):
            if home_of(serial) not in wanted and self._status(serial) in (PENDING, HOLDING):
                self.withdraw(serial, now)
        for serial in wanted:
            if spare is not None and loan_of(serial) not in self._jobs.lent:
                self._lend(pool, serial, spare, now)

    def offer_next(self, plan: RoundPlan, now: float) -> None:
        """After a round that has started loans, enters loans for the jobs that waited behind these."""
        homes = {home.index: home for each in plan.placements for home in self._homes(each)}
        for index in sorted(homes):
            if homes[index].plan.head is not None:
                self.offer(homes[index], now)

    def _homes(self, placement: Placement) -> list[Pool]:
        return [self._jobs.home(serial) for serial in placement.bundle if serial in self._jobs.lent]

    def _without_room(self, pool: Pool) -> Iterable[int]:
        """Jobs that the last decision would start, and for which there was no room."""
        table, plan = pool.table, pool.plan
        if not plan.blocked:
            return
        if plan.head is not None:
            yield from self._next_in_line(pool)
            return
        claimants = pool.claimants()
        for serial, row in sorted(table.row.items()):
            if table.status[row] != PENDING or serial not in claimants or int(table.demand[row]) not in plan.blocked:
                continue
            if _may_borrow(table.jobs[row]):
                yield serial

    def _next_in_line(self, pool: Pool) -> Iterable[int]:
        """The head of a queue in which no job overtakes, and once it is on borrowed GPUs the next, and so on.

        Jobs behind the next one may borrow with it as far as all of them fit on GPUs that would stay idle otherwise. A
        job for which GPUs are held already keeps them, even if one before it has lost its own meanwhile: otherwise the
        two could take turns in stopping each other.
        """
        is_next, idle = True, None
        for serial in pool.line():
            job, status = pool.table.jobs[pool.table.row[serial]], self._status_of_loan(serial)
            if not _may_borrow(job):
                return
            if is_next or status == HOLDING:
                yield serial
            if is_next and status not in (STARTING, RUNNING, HOLDING):
                idle = self._idle_beside(pool) if idle is None else idle
                is_next = self._intake.take(idle, self._ledger.loads(), job)

    def _idle_beside(self, pool: Pool) -> Bools:
        """GPUs that would stay idle after all jobs that wait in the open pool, except for loans of this pool."""
        spare, ledger = self._pools.open_pool, self._ledger
        assert spare is not None
        idle = ledger.usable(spare.open_gpus) & (ledger.holder == NONE) & (ledger.held_for == NONE)
        table = spare.table
        for serial, row in sorted(table.row.items()):
            is_ours = serial in self._jobs.lent and self._jobs.home(serial) is pool
            if table.status[row] == PENDING and not is_ours:
                self._intake.take(idle, ledger.loads(), table.jobs[row])
        return idle

    def _status_of_loan(self, serial: int) -> int | None:
        loan = loan_of(serial)
        return self._status(loan) if loan in self._jobs.lent else None

    def first_waiting(self, pool: Pool) -> int | None:
        """The first job in line that runs nowhere."""
        return next((serial for serial in pool.line() if not self.is_running(serial)), None)

    def _lend(self, pool: Pool, serial: int, spare: Pool, now: float) -> bool:
        row = pool.table.row[serial]
        job = replace(pool.table.jobs[row], pinned="")  # outside its cells, a pin has no meaning
        if not self._intake.could_hold(spare, job):
            return False
        loan = loan_of(serial)
        self._jobs.lent[loan] = spare
        self._jobs.id_of[loan] = job.id
        self._intake.enter(spare, job, loan, now)
        mine = spare.table.row[loan]
        for name in ("steps_base", "runs", "preemptions_left", "curve_rate", "curve_start", "curve_floor"):
            spare.table.columns[name][mine] = pool.table.columns[name][row]
        options = len(job.options)
        spare.table.speed[mine, :options] = pool.table.speed[row, :options]
        return True

    def withdraw(self, loan: int, now: float) -> None:
        """Withdraws a loan: the job no longer waits for GPUs outside its cells."""
        spare = self._jobs.lent[loan]
        self._holds.release(loan, now)
        spare.unsettled -= 1
        self._remove(loan, now, is_finished=False)

    def _remove(self, loan: int, now: float, *, is_finished: bool) -> None:
        spare = self._jobs.lent.pop(loan)
        spare.leave_app(loan, now, is_finished=is_finished)
        spare.table.remove(loan)
        del self._jobs.id_of[loan]
        spare.touch(now)

    def drop(self, serial: int, now: float) -> None:
        """Ends the loan of a job that leaves its tenant's pool, unless it is on borrowed GPUs."""
        loan = loan_of(serial)
        if loan in self._jobs.lent and self._status(loan) in (PENDING, HOLDING):
            self.withdraw(loan, now)

    # Events of loans

    def is_running(self, serial: int) -> bool:
        """Whether a job is on borrowed GPUs, or about to be."""
        loan = loan_of(serial)
        return loan in self._jobs.lent and self._status(loan) in ON_GPUS

    def sync(self, loan: int) -> None:
        """Copies the progress made on borrowed GPUs to the job's row in its own pool."""
        spare, pool = self._jobs.lent[loan], self._jobs.home(loan)
        mine, row = spare.table.row[loan], pool.table.row[home_of(loan)]
        pool.table.steps_base[row] = max(pool.table.steps_base[row], spare.table.steps_base[mine])
        pool.table.runs[row] = spare.table.runs[mine]

    def ended(self, loan: int, status: Status, now: float) -> None:
        """Ends a job that has ended on borrowed GPUs."""
        pool, serial = self._jobs.home(loan), home_of(loan)
        self.sync(loan)
        self._remove(loan, now, is_finished=status is Status.FINISHED)
        self._holds.release(serial, now)
        self._return(pool, serial, now)
        signal = {Status.FINISHED: Signal.FINISH, Status.FAILED: Signal.FAIL}.get(status, Signal.CANCEL)
        self._jobs.signal(pool, serial, signal, now)
        self._jobs.end(pool, serial, now)

    def left(self, loan: int, now: float) -> None:
        """Requeues or suspends a job that has left borrowed GPUs with work left."""
        pool, serial = self._jobs.home(loan), home_of(loan)
        self.sync(loan)
        self._return(pool, serial, now)
        if serial in self._jobs.to_suspend:
            self.withdraw(loan, now)
            self._holds.release(serial, now)
            self._jobs.suspend(pool, serial, now)
        elif self._jobs.status(pool, serial) == HOLDING:
            self.withdraw(loan, now)  # it moves into its cells
        pool.touch(now)

    def _return(self, pool: Pool, serial: int, now: float) -> None:
        if self._jobs.status(pool, serial) == int(Status.BORROWING):
            self._jobs.signal(pool, serial, Signal.RETURN, now)

    # Into the tenant's cells, and out of them

    def welcome_home(self, pool: Pool, placement: Placement, plan: RoundPlan, now: float) -> bool:
        """Handles a borrowing job that has won cells; returns whether there is nothing left to start.

        That is so if its lease was promoted, or the job stays where it is. Otherwise it was told to leave its borrowed
        GPUs, or only waited for some.
        """
        loan = loan_of(placement.serial)
        if self._status(loan) in (PENDING, HOLDING):
            self.withdraw(loan, now)
            return False
        if self._status(loan) not in (STARTING, RUNNING):
            return False  # it is leaving them already
        if self._promote(pool, placement, _taken(plan, placement), now):
            return True
        if self._is_worth_moving(pool, placement):
            self._leases.stop(self._jobs.lent[loan], loan, Moved(placement.shape), now)
            return False
        self.stay(pool, placement.serial, now)
        return True

    def without_declined(self, pool: Pool, plan: RoundPlan) -> RoundPlan:
        """The plan without cells for jobs that stay on borrowed GPUs anyway, and without the preemptions for these."""
        while declined := [each.serial for each in plan.placements if self._declines(pool, each, plan)]:
            plan = self._without(pool, plan, declined)  # winners that depended on these preemptions decline next
        return plan

    def _without(self, pool: Pool, plan: RoundPlan, serials: list[int]) -> RoundPlan:
        by = {self._jobs.id_of[serial] for serial in serials}
        kept = tuple(each for each in plan.placements if each.serial not in serials)
        heirs = {  # by lease: another winner that needs its GPUs all the same
            epoch: self._jobs.id_of[each.serial]
            for each in reversed(kept)
            for epoch in (*each.leaving, *self._ledger.holder[each.gpus].tolist())
        }
        departures = []
        for each in plan.departures:
            epoch = self._jobs.epoch(pool, each.serial)
            if not isinstance(each.reason, Preempted) or each.reason.by not in by:
                departures.append(each)
            elif epoch in heirs:
                departures.append(each._replace(reason=Preempted(heirs[epoch])))
        return plan._replace(placements=kept, departures=tuple(departures), declined=(*plan.declined, *serials))

    def _declines(self, pool: Pool, placement: Placement, plan: RoundPlan) -> bool:
        """Whether a job on borrowed GPUs that has won cells stays where it is, and leaves the cells to the next job."""
        serial, tenancy = placement.serial, self._ledger.tenancy
        if not pool.spec.reserves or tenancy is None or len(placement.bundle) > 1:
            return False
        if loan_of(serial) not in self._jobs.lent:
            return False
        if self._status(loan_of(serial)) not in (STARTING, RUNNING) or self._is_worth_moving(pool, placement):
            return False
        lease, job = self._leases.by_epoch[self.epoch(serial)], pool.table.jobs[pool.table.row[serial]]
        if len(lease.bundle) > 1:
            return True
        with tenancy.trial():  # whether its cells could be bound where it runs, once others have released theirs
            for departure in plan.departures:
                if not self.is_downgraded(pool, departure):
                    continue  # it keeps its cells until it has left
                tenancy.claim(self._leases.by_epoch[self._jobs.epoch(pool, departure.serial)].gpus, claimed=False)
            real, taken = tenancy.real[lease.gpus], _taken(plan, placement)
            return tenancy.adopt(pool.spec.name, real, job.pinned, taken, job.members) is None

    def stay(self, pool: Pool, serial: int, now: float) -> None:
        """Keeps a job on borrowed GPUs: until it has left them, it claims no cells,
        and the next job may have them at once."""
        self._jobs.signal(pool, serial, Signal.LEND, now)
        pool.retry_at = min(pool.retry_at, now)

    def recall(self, pool: Pool, serial: int, placement: Placement, now: float) -> None:
        """Ends the loan of one of two jobs that are to share GPUs: it leaves its GPUs, or no longer waits for any."""
        loan = loan_of(serial)
        if self._status(loan) in (PENDING, HOLDING):
            self.withdraw(loan, now)
        elif self._status(loan) in (STARTING, RUNNING):
            self._leases.stop(self._jobs.lent[loan], loan, Moved(placement.shape), now)

    def epoch(self, serial: int) -> int:
        loan = loan_of(serial)
        return self._jobs.epoch(self._jobs.lent[loan], loan) if loan in self._jobs.lent else NONE

    def _promote(self, pool: Pool, placement: Placement, taken: Collection[int], now: float) -> bool:
        """Moves the lease into the tenant's cells without a restart, if they can be bound to its GPUs."""
        loan, tenancy = loan_of(placement.serial), self._ledger.tenancy
        lease = self._leases.by_epoch[self.epoch(placement.serial)]
        if tenancy is None or len(lease.bundle) > 1:
            return False
        job = pool.table.jobs[pool.table.row[placement.serial]]
        own = tenancy.adopt(pool.spec.name, tenancy.real[lease.gpus], job.pinned, taken, job.members)
        if own is None:
            return False
        spare = self._jobs.lent[loan]
        option = int(spare.table.option[spare.table.row[loan]])
        lease_seconds = placement.lease_seconds
        here = Placement(placement.serial, option, lease.shape, own, (), lease_seconds, placement.reason)
        self._ledger.give_back(lease.gpus)
        self._hand_over(spare, loan, pool, here, lease.epoch, now)
        self._remove(loan, now, is_finished=False)
        return True

    def downgrade(self, pool: Pool, serial: int, now: float) -> bool:
        """Lets a job continue on its GPUs without its cells; returns False where that is not possible."""
        spare, tenancy = self._pools.open_pool, self._ledger.tenancy
        lease = self._leases.by_epoch[self._jobs.epoch(pool, serial)]
        if spare is None or tenancy is None or not self.can_downgrade(pool, serial):
            return False
        if not self._lend(pool, serial, spare, now):
            return False
        real = tenancy.guests(lease.gpus).copy()
        self._ledger.give_back(lease.gpus)
        self._lend_lease(pool, serial, lease, real, now)
        return True

    def is_downgraded(self, pool: Pool, departure: Departure) -> bool:
        """Whether a preempted job continues where it is, without a guarantee, until its GPUs are needed."""
        if not pool.spec.reserves or not isinstance(departure.reason, Preempted):
            return False
        is_lazy = pool.table.jobs[pool.table.row[departure.serial]].lazy
        return is_lazy and self.can_downgrade(pool, departure.serial)

    def can_downgrade(self, pool: Pool, serial: int) -> bool:
        """Whether a job runs alone in cells of its tenant, is not leaving,
        and there is a pool for jobs without a guarantee."""
        spare, tenancy = self._pools.open_pool, self._ledger.tenancy
        lease = self._leases.by_epoch[self._jobs.epoch(pool, serial)]
        if spare is None or spare is pool or tenancy is None or len(lease.bundle) > 1:
            return False
        is_in_cells = bool(tenancy.is_virtual[lease.gpus[0]])
        return is_in_cells and self._jobs.status(pool, serial) in (STARTING, RUNNING)

    def release_cells(self, pool: Pool, serial: int, now: float) -> None:
        """Turns a lease on GPUs outside its tenant's cells into a loan, if there is a pool for those."""
        spare = self._pools.open_pool
        if spare is None or spare is pool or not self._lend(pool, serial, spare, now):
            return
        lease = self._leases.by_epoch[self._jobs.epoch(pool, serial)]
        self._ledger.give_back(lease.gpus)
        self._lend_lease(pool, serial, lease, lease.gpus, now)

    def _lend_lease(self, pool: Pool, serial: int, lease: Lease, gpus: Ints, now: float) -> None:
        option = int(pool.table.option[pool.table.row[serial]])
        here = Placement(loan_of(serial), option, lease.shape, gpus, (), 0.0, Won(0))
        self._hand_over(pool, serial, self._jobs.lent[loan_of(serial)], here, lease.epoch, now)
        self._jobs.signal(pool, serial, Signal.LEAVE, now)
        accounting.book(pool, serial, now)
        pool.touch(now)

    def can_move(self, serial: int) -> bool:
        """Whether a job may change its pool: it is not on borrowed GPUs, or has them alone and is not leaving."""
        if not self.is_running(serial):
            return True
        is_alone = len(self._leases.by_epoch[self.epoch(serial)].bundle) == 1
        return is_alone and self._status(loan_of(serial)) in (STARTING, RUNNING)

    def move_home(self, serial: int, now: float) -> None:
        """Makes a loan the job's own lease, after the job has moved to the pool from which it borrows."""
        loan = loan_of(serial)
        if loan not in self._jobs.lent:
            return
        spare = self._jobs.lent[loan]
        lease = self._leases.by_epoch[self.epoch(serial)]
        option = int(spare.table.option[spare.table.row[loan]])
        here = Placement(serial, option, lease.shape, lease.gpus, (), 0.0, Won(0))
        self._ledger.give_back(lease.gpus)
        self._hand_over(spare, loan, spare, here, lease.epoch, now)
        self._remove(loan, now, is_finished=False)

    def _hand_over(self, source: Pool, serial: int, target: Pool, placement: Placement, epoch: int, now: float) -> None:
        """Transfers a lease to another row: its progress is kept, its service is counted from here."""
        row = source.table.row[serial]
        done = float(source.table.view(now).steps_done[row])
        productive_at = float(source.table.productive_at[row])
        confirmed_at, is_confirmed = float(source.table.confirmed_at[row]), source.table.status[row] != STARTING
        steps, runs = float(source.table.steps_base[row]), int(source.table.runs[row])
        lease_until = float(source.table.lease_until[row])  # a promise that holds under either row
        self._leases.occupy(target, epoch, placement, now)
        table, mine = target.table, target.table.row[placement.serial]
        table.steps_base[mine] = max(table.steps_base[mine], steps)
        table.steps_ahead[mine] = max(done - float(table.steps_base[mine]), 0.0)
        table.productive_at[mine] = max(productive_at, now)
        table.confirmed_at[mine], table.runs[mine] = confirmed_at, runs
        table.lease_until[mine] = max(table.lease_until[mine], lease_until)
        if is_confirmed:
            self._jobs.signal(target, placement.serial, Signal.ACKNOWLEDGE, now)

    def _is_worth_moving(self, pool: Pool, placement: Placement) -> bool:
        """Whether the job would finish sooner in its cells, restart included."""
        loan = loan_of(placement.serial)
        spare = self._jobs.lent[loan]
        mine, row = spare.table.row[loan], pool.table.row[placement.serial]
        jobs = spare.table.view(spare.decided_at if isfinite(spare.decided_at) else 0.0)
        slow = float(spare.table.speed[mine, spare.table.option[mine]])
        fast = float(pool.table.speed[row, placement.option])
        steps = float(jobs.steps_left[mine])
        seconds = steps / slow if isfinite(steps) else _HORIZON_SECONDS
        return seconds * (1 - slow / fast) > float(pool.table.restart_seconds[row])

    def _status(self, loan: int) -> int:
        return self._jobs.status(self._jobs.lent[loan], loan)


def _taken(plan: RoundPlan, placement: Placement) -> list[int]:
    """GPUs allocated to other jobs in the plan."""
    return [gpu for other in plan.placements if other is not placement for gpu in other.gpus.tolist()]


def _may_borrow(job: Job) -> bool:
    """Whether a job may run outside its tenant's cells; one that is pinned requires its cell."""
    return job.borrows and not job.pinned
