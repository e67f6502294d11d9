"""Carries out a round's plan: jobs are told to stop, GPUs are held while they do, and winners start."""

from __future__ import annotations

from horae.model.job_table import NONE
from horae.model.plans import Placement, RoundPlan
from horae.model.reasons import Preempted
from horae.model.status import HOLDING, RUNNING, STARTING
from horae.scheduler.gpu_ledger import GpuLedger
from horae.scheduler.holds import Holds
from horae.scheduler.jobs import JobRegistry, home_of, is_loan, loan_of
from horae.scheduler.leases import Leases
from horae.scheduler.loans import Loans
from horae.scheduler.pool import Pool


class Execution:
    def __init__(self, ledger: GpuLedger, jobs: JobRegistry, leases: Leases, holds: Holds, loans: Loans) -> None:
        self._ledger = ledger
        self._jobs = jobs
        self._leases = leases
        self._holds = holds
        self._loans = loans

    def carry_out(self, pool: Pool, plan: RoundPlan, now: float) -> None:
        for serial in plan.declined:
            self._loans.stay(pool, serial, now)
        downgraded = self._stop_victims(pool, plan, now)
        for placement in plan.placements:
            self._place(pool, placement, plan, downgraded, now)
        for serial, lease_seconds in dict(plan.extensions).items():  # a job may be named twice; the last counts
            self._leases.extend(pool, serial, lease_seconds, now)

    def _stop_victims(self, pool: Pool, plan: RoundPlan, now: float) -> set[int]:
        """Tells preempted jobs to stop. Returns the leases of those that may stay without their guarantee."""
        downgraded = set()
        for departure in plan.departures:
            epoch = int(pool.table.epoch[pool.table.row[departure.serial]])
            if self._loans.is_downgraded(pool, departure) and self._loans.downgrade(pool, departure.serial, now):
                downgraded.add(epoch)
            else:
                self._leases.stop(pool, departure.serial, departure.reason, now)
        return downgraded

    def _place(self, pool: Pool, placement: Placement, plan: RoundPlan, downgraded: set[int], now: float) -> None:
        """Starts a winner, or holds its GPUs until the leases on them have ended."""
        epochs, row, bundle = pool.table.epoch, pool.table.row, placement.bundle
        present = set(self._ledger.holder[placement.gpus].tolist())
        for serial in bundle:
            present.add(int(epochs[row[serial]]))
        if self._jobs.lent and self._returns_home(pool, placement, plan, present, now):
            return
        for serial in bundle if self._holds.by_serial else ():
            if self._jobs.status(pool, serial) == HOLDING:
                self._holds.release(serial, now)  # its held GPUs were taken over, and it was placed elsewhere
        present.update(placement.leaving)
        present -= downgraded
        if self._ledger.tenancy is not None:
            guests = self._evict_guests(pool, placement, now)
            if guests is None:  # its cells cannot be bound on nodes that it accepts: it waits, others may use them
                for serial in bundle:
                    self._jobs.retry_at[home_of(serial)] = now + pool.spec.round_seconds
                pool.retry_at = min(pool.retry_at, now)
                return
            present.update(guests)
        taken_over = self._holds.on(placement.gpus) if self._holds.by_serial else ()
        present.discard(NONE)
        if present:
            self._holds.keep(pool, placement, frozenset(present), now)
        else:
            self._leases.start(pool, placement, now)
        for serial in taken_over:  # only now, or cells that were bound for them could be bound elsewhere
            self._holds.release(serial, now)

    def _returns_home(self, pool: Pool, placement: Placement, plan: RoundPlan, present: set[int], now: float) -> bool:
        """Returns borrowing jobs of the bundle to their cells; returns whether there is nothing left to start."""
        borrowing = [each for each in placement.bundle if not is_loan(each) and loan_of(each) in self._jobs.lent]
        if not borrowing:
            return False
        if len(placement.bundle) > 1:
            for serial in borrowing:
                self._loans.recall(pool, serial, placement, now)
        elif self._loans.welcome_home(pool, placement, plan, now):
            return True
        present.update(self._loans.epoch(serial) for serial in borrowing)
        return False

    def _evict_guests(self, pool: Pool, placement: Placement, now: float) -> list[int] | None:
        """Evicts jobs without a guarantee from a tenant's GPUs, and releases their holds there;
        returns their epochs."""
        found = self._ledger.guests(placement.gpus, self._leases.demand(pool, placement))
        if found is None:
            return None
        guests, expected = found
        for serial in expected:
            self._holds.release(serial, now)
        for epoch in guests:
            for serial in self._leases.by_epoch[epoch].bundle:
                theirs = self._jobs.where(serial)
                if self._jobs.status(theirs, serial) in (STARTING, RUNNING):
                    self._leases.stop(theirs, serial, Preempted(self._jobs.id_of[placement.serial]), now)
                    theirs.touch(now)
        return guests
