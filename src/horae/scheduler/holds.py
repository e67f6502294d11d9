"""Holds: GPUs kept for a winner while their present holders leave.

A preemption is a transaction: if it takes too long, all of it is undone.
"""

from __future__ import annotations

from math import inf

from horae.model.arrays import Ints
from horae.model.job_table import NONE
from horae.model.plans import Hold, Placement
from horae.model.status import HOLDING, PENDING, Signal
from horae.scheduler.gpu_ledger import GpuLedger
from horae.scheduler.jobs import JobRegistry, is_loan
from horae.scheduler.leases import Leases
from horae.scheduler.pool import Pool


class Holds:
    def __init__(self, ledger: GpuLedger, jobs: JobRegistry, leases: Leases, acknowledge_seconds: float) -> None:
        self._ledger = ledger
        self._jobs = jobs
        self._leases = leases
        self._acknowledge_seconds = acknowledge_seconds
        self.by_serial: dict[int, Hold] = {}  # both jobs of a pair share one hold; changed by `put` and `_remove` only
        self._awaiting: dict[int, list[int]] = {}  # by epoch: serials of the jobs that await its end
        self._expires_at: float | None = inf  # None: to be computed

    def __bool__(self) -> bool:
        return bool(self.by_serial)

    @property
    def expires_at(self) -> float:
        if self._expires_at is None:
            self._expires_at = min((hold.expires_at for hold in self.by_serial.values()), default=inf)
        return self._expires_at

    def put(self, serial: int, hold: Hold) -> None:
        if serial in self.by_serial:
            self._remove(serial)
        self.by_serial[serial] = hold
        for epoch in hold.awaited:
            self._awaiting.setdefault(epoch, []).append(serial)
        self._expires_at = min(self.expires_at, hold.expires_at)

    def _remove(self, serial: int) -> None:
        hold = self.by_serial.pop(serial)
        for epoch in hold.awaited:
            awaiting = self._awaiting[epoch]
            awaiting.remove(serial)
            if not awaiting:
                del self._awaiting[epoch]
        if hold.expires_at == self._expires_at:
            self._expires_at = None

    def keep(self, pool: Pool, placement: Placement, awaited: frozenset[int], now: float) -> None:
        """Holds the GPUs for their winner until these leases have ended."""
        leaving = [serial for epoch in awaited for serial in self._leases.by_epoch[epoch].bundle]
        grace_seconds = max([self._jobs.job(serial).grace_seconds for serial in leaving])
        hold = Hold(placement, awaited, now + grace_seconds + self._acknowledge_seconds)
        self._ledger.hold(placement.gpus, placement.serial, self._leases.demand(pool, placement))
        for serial in placement.bundle:
            self.put(serial, hold)
            if self._jobs.status(pool, serial) == PENDING:
                self._jobs.signal(pool, serial, Signal.HOLD, now)

    def release(self, serial: int, now: float) -> None:
        """Undoes a hold: its jobs wait again, and its GPUs are free for any job."""
        hold = self.by_serial.get(serial)
        if hold is None:
            return
        self._ledger.release(hold.placement.gpus, hold.placement.serial)
        pool = self._jobs.where(serial)
        for member in hold.placement.bundle:
            self._remove(member)
            if self._jobs.status(pool, member) == HOLDING:
                self._jobs.signal(pool, member, Signal.RELEASE, now)
        pool.touch(now)

    def release_expired(self, now: float) -> None:
        for serial, hold in list(self.by_serial.items()):
            if hold.expires_at <= now:
                self.release(serial, now)  # the other job of a pair finds nothing left to undo

    def release_all(self, now: float) -> None:
        for serial in list(self.by_serial):
            self.release(serial, now)

    def lease_ended(self, epoch: int, now: float) -> None:
        """Updates the holds that waited for this lease; those that waited for nothing else start."""
        if epoch not in self._awaiting or epoch in self._leases.by_epoch:
            return
        for serial in self._awaiting.pop(epoch):
            placement, awaited, expires_at = self.by_serial[serial]
            bundle, awaited = placement.bundle, awaited - {epoch}
            self.by_serial[serial] = Hold(placement, awaited, expires_at)
            if not awaited and serial == bundle[-1]:  # the last job of a pair to be processed
                for member in bundle:
                    self._remove(member)
                # Before its GPUs are released, or a tenant's cells could be bound elsewhere.
                self._leases.start(self._jobs.where(serial), placement, now)
                self._ledger.release(placement.gpus, placement.serial)
                for member in filter(is_loan, bundle):
                    self._jobs.home(member).touch(now)  # the next job of its queue may borrow

    def contested(self, pool: Pool) -> dict[int, Ints]:
        """By row: GPUs held for a job of this pool that has no GPUs. Jobs that rank higher may take them over."""
        return {
            pool.table.row[serial]: hold.placement.gpus
            for serial, hold in self.by_serial.items()
            if len(hold.placement.bundle) == 1
            and self._jobs.where(serial) is pool
            and self._jobs.status(pool, serial) == HOLDING
        }

    def on(self, gpus: Ints) -> list[int]:
        """Serials of the jobs for which any of these GPUs are held."""
        serials = set(self._ledger.held_for[gpus].tolist())
        serials.discard(NONE)
        return sorted(serials)

    def awaited(self) -> frozenset[int]:
        """Leases whose end any job awaits."""
        return frozenset(self._awaiting)

    def counts_on(self, pool: Pool, epoch: int, now: float) -> bool:
        """Whether the pool's last decision already accounted for the end of this lease, so that it is no news.

        It is news if that decision was made before, or found the lease about to end, and some GPUs are held for no job:
        those of the lease, which later jobs might use, or others, which the job that has left might use.
        """
        if pool not in map(self._jobs.where, self._awaiting.get(epoch, ())):
            return False
        if now <= pool.decided_at and epoch not in pool.found_ending:
            return True
        ledger = self._ledger
        return not (pool.open_gpus & (ledger.holder == NONE) & (ledger.held_for == NONE)).any()
