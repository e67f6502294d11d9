"""Leases: which bundle has which GPUs. They begin with a `Start`, and end when the engine reports it."""

from __future__ import annotations

from math import inf

from horae.model.commands import Extend, Start, Stop
from horae.model.errors import BrokenInvariant
from horae.model.plans import Lease, Placement
from horae.model.reasons import Cancelled, Preempted, StopReason
from horae.model.shapes import Demand
from horae.model.speeds import SharingTable
from horae.model.status import CANCELLING, STARTING, STOPPING, Signal
from horae.scheduler import accounting
from horae.scheduler.gpu_ledger import GpuLedger
from horae.scheduler.interning import InternedDemands
from horae.scheduler.jobs import JobRegistry
from horae.scheduler.pool import Pool
from horae.scheduler.unacknowledged import Outbox

INCARNATION_BITS = 40  # an epoch is unique over all incarnations of a log, and still exact as a JSON number


class Leases:
    def __init__(
        self,
        ledger: GpuLedger,
        jobs: JobRegistry,
        outbox: Outbox,
        demands: InternedDemands,
        sharing: SharingTable,
        incarnation: int,
    ) -> None:
        self._ledger = ledger
        self._jobs = jobs
        self._outbox = outbox
        self._demands = demands
        self._sharing = sharing
        self.by_epoch: dict[int, Lease] = {}
        self.epoch_next = incarnation << INCARNATION_BITS
        # Ranges of epochs that a former incarnation may have used without a record.
        self.lost: list[tuple[int, int]] = [(0, self.epoch_next)] if self.epoch_next else []
        self.starting: dict[int, float] = {}  # by epoch: deadline to begin running; where the engine reports phases
        self.stopped: dict[str, StopReason] = {}  # by job: why it was told to stop, for the record

    def begin_incarnation(self, incarnation: int) -> None:
        """Begins a new range of epochs, distinct from all used before; some of those may not be on record."""
        first = incarnation << INCARNATION_BITS
        if first > self.epoch_next:
            self.lost.append((self.epoch_next, first))
            self.epoch_next = first

    def note(self, epoch: int) -> None:
        """Records an epoch that was not on record; earlier ones still are not."""
        if epoch >= self.epoch_next:
            self.lost.append((self.epoch_next, epoch))
            self.epoch_next = epoch + 1
        parts = [
            part for first, last in self.lost for part in ((first, min(last, epoch)), (max(first, epoch + 1), last))
        ]
        self.lost = sorted({(first, last) for first, last in parts if first < last})

    def is_unknown(self, epoch: int) -> bool:
        """Whether a lease of this epoch was never on record."""
        return epoch >= self.epoch_next or any(first <= epoch < last for first, last in self.lost)

    def demand(self, pool: Pool, taken: Placement | Lease) -> Demand:
        """The combined demand of a bundle."""
        table, bundle, demands = pool.table, taken.bundle, self._demands.all
        demand = demands[table.demand[table.row[bundle[0]]]]
        return demand if len(bundle) == 1 else demand.beside(demands[table.demand[table.row[bundle[1]]]])

    def start(self, pool: Pool, placement: Placement, now: float) -> None:
        epoch = self.epoch_next
        self.epoch_next += 1
        self.occupy(pool, epoch, placement, now)
        table = pool.table
        rows = [table.row[serial] for serial in placement.bundle]
        each = [(table.ids[row], float(table.steps_base[row]), table.has_run(row)) for row in rows]
        job_ids, steps_done, resumes = zip(*each, strict=True)
        gpus, lease_until = self._ledger.names(placement.gpus), float(table.lease_until[rows[0]])
        cells = self._ledger.cell_levels(placement.gpus)
        self._outbox.send(Start(epoch, job_ids, gpus, placement.shape, steps_done, resumes, lease_until, cells), now)

    def occupy(self, pool: Pool, epoch: int, placement: Placement, now: float) -> None:
        """Allocates the GPUs of a placement to its bundle from now on."""
        bundle = placement.bundle
        lease = self.by_epoch[epoch] = Lease(epoch, bundle, placement.gpus, placement.shape)
        self._ledger.take(placement.gpus, epoch, self.demand(pool, lease))
        for serial, option in zip(bundle, (placement.option, placement.partner_option), strict=False):
            self._jobs.signal(pool, serial, Signal.START, now)
            accounting.lease(pool, serial, option, epoch, placement, now)
        if len(bundle) > 1:
            pool.table.bundles += 1
            rows = [pool.table.row[serial] for serial in bundle]
            for row, other in zip(rows, rows[::-1], strict=True):
                jobs = pool.table.jobs
                pool.table.pace[row] = self._sharing.kept(jobs[row].model, jobs[other].model, placement.shape)

    def extend(self, pool: Pool, serial: int, seconds: float, now: float) -> None:
        row = pool.table.row[serial]
        until = pool.table.lease_until[row] = now - pool.spec.lateness(now) + seconds
        epoch = int(pool.table.epoch[row])
        if serial == self.by_epoch[epoch].bundle[0]:
            self._outbox.commands.append(Extend(epoch, until))

    def leaving(self, pool: Pool) -> frozenset[int]:
        """Leases of this pool whose jobs were all told to leave, and are not late."""
        told = self._outbox.unacknowledged.told_to_leave()
        return frozenset(
            epoch
            for epoch, count in told.items()
            if epoch in self.by_epoch
            and count == len(self.by_epoch[epoch].bundle)
            and all(
                self._jobs.where(serial) is pool and self._jobs.status(pool, serial) in (STOPPING, CANCELLING)
                for serial in self.by_epoch[epoch].bundle
            )
        )

    def stop(self, pool: Pool, serial: int, reason: StopReason, now: float, grace_seconds_max: float = inf) -> None:
        table, row = pool.table, pool.table.row[serial]
        self._jobs.signal(pool, serial, Signal.CANCEL if isinstance(reason, Cancelled) else Signal.STOP, now)
        if isinstance(reason, Preempted):
            table.preemptions_left[row] -= 1
        job, epoch = table.jobs[row], int(table.epoch[row])
        self.stopped[job.id] = reason
        self._outbox.unacknowledged.answered(Start, epoch, job.id)
        self._outbox.send(Stop(epoch, job.id, min(job.grace_seconds, grace_seconds_max)), now)

    def hasten(self, pool: Pool, serial: int, grace_seconds: float, now: float) -> bool:
        """Shortens the grace period of a job that was told to stop; returns whether it is shorter than its own."""
        row = pool.table.row[serial]
        job = pool.table.jobs[row]
        if grace_seconds >= job.grace_seconds:
            return False
        self._outbox.send(Stop(int(pool.table.epoch[row]), job.id, grace_seconds), now)
        return True

    def begun(self, epoch: int) -> None:
        """Records that one job of a bundle has begun to run; the start deadline holds until the last one has."""
        bundle = self.by_epoch[epoch].bundle
        if all(self._jobs.status(self._jobs.where(serial), serial) != STARTING for serial in bundle):
            self.starting.pop(epoch, None)

    def leave(self, pool: Pool, epoch: int, serial: int, now: float) -> Lease:
        """Removes a job from its GPUs; they are released when the last job of the bundle has left."""
        job_id = self._jobs.id_of[serial]
        lease = self.by_epoch.get(epoch)
        if lease is None or serial not in lease.bundle:
            raise BrokenInvariant(f"job {job_id} ends lease {epoch}, which is not its own")
        self._outbox.unacknowledged.ended(epoch, job_id)
        self.stopped.pop(job_id, None)
        del self.by_epoch[epoch]
        others = [other for other in lease.bundle if other != serial]
        if not others:
            self.starting.pop(epoch, None)
            self._ledger.give_back(lease.gpus)
        for other in others:
            pool.table.bundles -= 1
            self.by_epoch[epoch] = Lease(epoch, (other,), lease.gpus, lease.shape)
            self._ledger.leave_to(lease.gpus, self._demands.all[accounting.left_alone(pool, other, now)])
            self._outbox.unacknowledged.left(epoch, job_id, self._jobs.id_of[other])
        return lease
