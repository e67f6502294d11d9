"""Who has which GPUs, until when, and for whom some are kept: the state of a scheduler, and how leases change it."""

from __future__ import annotations

from horae.guarantees.pools import Pools
from horae.model.commands import Command, Start, Stop
from horae.model.errors import BrokenInvariant
from horae.model.events import Health
from horae.model.jobs import Job
from horae.model.plans import Hold, Lease, Placement, Round
from horae.model.pools import Setup
from horae.model.reasons import Cancelled, Preempted, Refusal, StopReason
from horae.model.shapes import Demand
from horae.model.status import Signal, Status, after
from horae.model.table import NOBODY
from horae.policies.registry import make_policy
from horae.scheduler.auctions import Auctions
from horae.scheduler.books import DemandBook, NameBook, ShapeBook, SharingBook
from horae.scheduler.floor import Floor
from horae.scheduler.mailbox import Mailbox
from horae.scheduler.pool import Pool

# As plain numbers, for they are compared with numbers of the table all the time.
_PENDING, _HOLDING, _STARTING = int(Status.PENDING), int(Status.HOLDING), int(Status.STARTING)
_RUNNING, _STOPPING, _CANCELLING = int(Status.RUNNING), int(Status.STOPPING), int(Status.CANCELLING)
_UNSETTLED = frozenset({_PENDING, _HOLDING, _STOPPING})


class Leasing:
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
        for node in setup.absent_nodes:
            self._floor.set_health(node, Health.FAILED)
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
        self._auctions = Auctions(setup.bid_seconds)
        self._mailbox = Mailbox(setup.acknowledge_seconds, setup.survey_seconds)
        self._commands: list[Command] = []
        self._rounds: list[Round] = []

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
        if pool.spec.quota:
            for neighbour in self._pool:
                neighbour.touch(self.now)  # they share GPUs
        others = [other for other in lease.bundle if other != serial]
        if not others:
            self._floor.give_back(lease.gpus)
        for other in others:
            pool.table.bundles -= 1
            self._leases[epoch] = Lease(epoch, (other,), lease.gpus, lease.shape)
            self._floor.leave_to(lease.gpus, self._demands.all[pool.left_alone(other, self.now)])
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
        pool.leave_app(serial, self.now, is_finished=self._ended[job.id] is Status.FINISHED)
        pool.table.remove(serial)
        del self._live[job.id], self._id[serial]
        self._failures.pop(serial, None)
        pool.touch(self.now)
