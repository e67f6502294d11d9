"""Keeps the tables that the API reads in step with the scheduler.

After every event, the rows of the jobs that it touched are compared with the scheduler's state: a lease that has begun
or ended there begins or ends here. Nothing is derived from a command or an event alone, so that surveys, adoptions and
rejected events need no cases of their own.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from operator import add, attrgetter
from typing import Any, NamedTuple

from sqlalchemy import Connection, bindparam, delete, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite

from horae.model.cluster import Gpu
from horae.model.commands import Start, Stop
from horae.model.events import (
    ClusterChanged,
    Ending,
    Event,
    GpuChanged,
    GpuState,
    JobCancelled,
    JobEnded,
    JobResumable,
    JobSubmitted,
    NodeChanged,
    PolicyChanged,
    SchedulerRestarted,
    Surveyed,
    TenantsChanged,
    Tick,
)
from horae.model.plans import Lease, Reaction
from horae.model.reasons import Preempted, Suspended
from horae.model.safe_text import printable
from horae.model.serialization import to_plain
from horae.model.status import FINAL, Status
from horae.scheduler import Scheduler
from horae.service.loop.auction_rows import AuctionRows
from horae.service.loop.fairness_rows import FairnessRows
from horae.service.loop.gpu_hours import GpuHours
from horae.service.loop.idle_usage import HELD, IdleUsage
from horae.service.loop.job_rows import MUTABLE, JobRow, insert_rows, read_live, write_rows
from horae.service.loop.notices import Notices
from horae.service.loop.searches import Searches
from horae.service.store.log import get_meta, set_meta
from horae.service.store.schema import gpus, leases, nodes, pools, scheduler_notices, tenants, usage
from horae.service.store.statements import Statement

_STATES = {Status.BORROWING: "running"}
_CHANGES_SETUP = (ClusterChanged, PolicyChanged, TenantsChanged, NodeChanged, SchedulerRestarted)


@dataclass(slots=True)
class LeaseRow:
    """A row of the table of leases."""

    job_id: str
    epoch: int
    granted_at: float
    started_at: float | None
    until: float
    ended_at: float | None
    gpu_type: str
    level: str
    gpus: int
    places: str
    guaranteed: bool
    ending: str
    reason: str
    steps: float

    def values(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


_INSERT_LEASE = Statement(insert(leases).inline(), LeaseRow.__slots__)
_UPDATE_LEASE = Statement(
    update(leases)
    .where(leases.c.job_id == bindparam("of_job"), leases.c.epoch == bindparam("of_epoch"))
    .values({name: bindparam(name) for name in LeaseRow.__slots__ if name not in ("job_id", "epoch")})
)


class _Used(NamedTuple):
    """What is added to a row of the table of usage."""

    gpu_seconds: float = 0.0
    jobs: int = 0
    idle_seconds: float = 0.0


class Tables:
    """The changes of one transaction, and the rows of live jobs and open leases."""

    def __init__(self, connection: Connection, scheduler: Scheduler, webhooks: Collection[str] = ()) -> None:
        """`webhooks`: the tenants that have one."""
        self.rows = read_live(connection)
        open_leases = connection.execute(select(leases).where(leases.c.ended_at.is_(None)))
        self.leases = {(row.job_id, row.epoch): LeaseRow(**row._mapping) for row in open_leases}
        self._reserving = _reserving(scheduler)
        self._new_jobs: list[JobRow] = []
        self._changed: dict[str, JobRow] = {}
        self._changed_leases: dict[tuple[str, int], LeaseRow] = {}
        self._known_leases = set(self.leases)
        self._used: dict[tuple[str, str, str, str, str], _Used] = {}
        self._idle = IdleUsage()
        self._gpu_hours, self._fairness = GpuHours(), FairnessRows()
        self._notices: list[dict[str, Any]] = []
        self._gpus: list[GpuChanged] = []
        self._setup_changed = False
        self._stopped_because: dict[str, str] = {}
        self.searches = Searches(connection)
        self._auctions = AuctionRows(connection)
        self._webhooks = Notices(webhooks)
        self.ended: list[str] = []  # jobs that have just ended; the loop takes them

    # Collecting

    def add(self, row: JobRow, *, is_new: bool = False) -> None:
        """Registers a job before its submission is applied; `is_new`: it has no row yet."""
        self.rows[row.id] = row
        if is_new:
            self._new_jobs.append(row)

    def touch(self, row: JobRow) -> None:
        """Registers a change that was made outside of the scheduler."""
        self._changed[row.id] = row

    @property
    def has_changes(self) -> bool:
        rows = self._changed or self._new_jobs or self._setup_changed or self._gpus
        return bool(rows or self.searches.has_changes or self._auctions.has_changes)

    def note(self, event: Event, reaction: Reaction, scheduler: Scheduler, seq: int, rho: float | None = None) -> None:
        """Collects the changes of an event that the scheduler has just handled; `rho`: of its job, just before."""
        now = scheduler.now
        self._note_stops(reaction, scheduler)
        for job_id in self._touched(event, reaction):
            row = self.rows.get(job_id)
            if row is not None:
                epoch = row.epoch
                self._sync(row, event, scheduler, seq)
                if isinstance(event, JobEnded) and epoch == event.epoch != row.epoch:
                    self._webhooks.ended(row, event, now)
                if isinstance(event, JobEnded) and row.has_ended and rho is not None:
                    row.rho = rho
        for notice in reaction.notices:
            text = {"seq": seq, "at": now, "kind": type(notice).__name__, "text": str(notice)}
            self._notices.append(text)
        self._auctions.note(event, reaction, scheduler, self._app_of)
        if isinstance(event, GpuChanged):
            self._gpus.append(event)
        self._setup_changed |= isinstance(event, _CHANGES_SETUP)

    def _app_of(self, job_id: str) -> str | None:
        row = self.rows.get(job_id)
        return None if row is None else row.app

    def _touched(self, event: Event, reaction: Reaction) -> dict[str, None]:
        touched: dict[str, None] = {}
        if isinstance(event, Surveyed | SchedulerRestarted):
            touched.update(dict.fromkeys(self.rows))
        elif isinstance(event, JobSubmitted):
            touched[event.job.id] = None
        elif not isinstance(event, Tick):
            touched.update(dict.fromkeys(getattr(event, "job_ids", ()) or (getattr(event, "job_id", ""),)))
        for command in reaction.commands:
            if isinstance(command, Start):
                touched.update(dict.fromkeys(command.job_ids))
            elif isinstance(command, Stop):
                touched[command.job_id] = None
        return touched

    def _note_stops(self, reaction: Reaction, scheduler: Scheduler) -> None:
        """Keeps why jobs are told to stop. That a job is suspended is its state; a command may be sent again."""
        for command in reaction.commands:
            if not isinstance(command, Stop) or command.job_id in self._stopped_because:
                continue
            reason, row = scheduler.leases.stopped.get(command.job_id), self.rows.get(command.job_id)
            if reason is None or row is None or isinstance(reason, Suspended):
                continue
            self._stopped_because[row.id] = str(reason)
            if isinstance(reason, Preempted):
                row.preemptions += 1
                self._webhooks.preempted(row, str(reason), scheduler.now)

    def _sync(self, row: JobRow, event: Event, scheduler: Scheduler, seq: int) -> None:
        status = scheduler.status(row.id)
        if status is None:
            return  # it waits for other jobs, or was rejected as a whole
        before = _seen(row)
        running = scheduler.jobs.on_gpus(row.id)
        epoch = None if running is None else scheduler.jobs.epoch(*running)
        if row.epoch is not None and row.epoch != epoch:
            self._end_lease(row, event, _left_at(row, event, scheduler.now))
        if epoch is not None and row.epoch != epoch:
            self._begin_lease(row, scheduler.leases.by_epoch[epoch], scheduler)
        row.state = _STATES.get(status, status.name.lower())
        if status is Status.CANCELLED and row.id in self.searches.stopped:
            row.state = "stopped"
        if status is Status.RUNNING and row.started_at is None and epoch is not None:
            self._started(row, min(event.at, scheduler.now))
        self._describe(row, event, status, scheduler)
        if _seen(row) != before or row.id in self._changed:  # a survey touches all jobs, and changes few
            row.changed_seq = seq
            self._changed[row.id] = row

    def _describe(self, row: JobRow, event: Event, status: Status, scheduler: Scheduler) -> None:
        """Sets the fields that say how a job ended, was refused or is being stopped."""
        if isinstance(event, JobSubmitted) and event.job.id == row.id:
            row.submitted_at = event.at
        if isinstance(event, JobEnded) and event.job_id == row.id:
            row.steps = max(row.steps, event.steps)
            row.failures += event.ending is Ending.FAILED
            row.reason = printable(event.message) or row.reason
        if isinstance(event, JobCancelled) and event.job_id == row.id and event.reason:
            row.reason = self._stopped_because[row.id] = event.reason
            if row.id not in self.searches.stopped and row.ended_at is None:
                self._webhooks.exceeded(row, event, scheduler.now)
        row.resumable |= isinstance(event, JobResumable) and event.job_id == row.id
        if status is Status.REFUSED:
            row.reason = str(scheduler.why(row.id))
        if status is Status.STOPPING:
            row.reason = self._stopped_because.get(row.id, row.reason)
        if int(status) in FINAL and row.ended_at is None:
            row.ended_at = _left_at(row, event, scheduler.now)
            self._stopped_because.pop(row.id, None)
            self.ended.append(row.id)

    def _begin_lease(self, row: JobRow, lease: Lease, scheduler: Scheduler) -> None:
        names = scheduler.ledger.names(lease.gpus)
        cells = scheduler.ledger.cell_levels(lease.gpus)
        pool, serial = scheduler.jobs.on_gpus(row.id) or scheduler.jobs.live[row.id]
        row.epoch, row.held_gpus, row.held_type = lease.epoch, len(names), lease.shape.accelerator
        row.places, row.guaranteed = " ".join(map(str, names)), bool(cells)
        row.started_at = None
        until = float(pool.table.lease_until[pool.table.row[serial]])
        key = (row.id, lease.epoch)
        self.leases[key] = self._changed_leases[key] = LeaseRow(
            row.id, lease.epoch, scheduler.now, None, until, None, row.held_type, lease.shape.level, row.held_gpus,
            row.places, row.guaranteed, "", "", row.steps,
        )  # fmt: skip

    def _started(self, row: JobRow, at: float) -> None:
        row.started_at = at
        row.first_started_at = at if row.first_started_at is None else row.first_started_at
        row.reason = ""
        lease = self.leases.get((row.id, row.epoch or 0))
        if lease is not None:
            lease.started_at = at
            self._changed_leases[row.id, lease.epoch] = lease

    def _end_lease(self, row: JobRow, event: Event, now: float) -> None:
        is_own = isinstance(event, JobEnded) and event.job_id == row.id
        if not is_own:
            self._webhooks.lost(row, now)
        ending = event.ending.value if is_own and isinstance(event, JobEnded) else Ending.LOST.value
        seconds = 0.0 if row.started_at is None else max(now - row.started_at, 0.0)
        row.run_seconds += seconds
        row.gpu_seconds += seconds * row.held_gpus
        lease = self.leases.pop((row.id, row.epoch or 0), None)
        if lease is not None:
            lease.ended_at, lease.ending = now, ending
            message = printable(event.message) if is_own and isinstance(event, JobEnded) else ""
            lease.reason = self._stopped_because.pop(row.id, "") or message
            lease.steps = event.steps if is_own and isinstance(event, JobEnded) else row.steps
            self._changed_leases[row.id, lease.epoch] = lease
        self._use(row, seconds)
        row.epoch, row.held_gpus, row.held_type, row.places, row.started_at = None, 0, "", "", None
        row.guaranteed = False

    def _use(self, row: JobRow, seconds: float) -> None:
        self._add_usage(row.tenant, row.user, row.held_type, self._kind(row), _Used(seconds * row.held_gpus, 1))

    def _kind(self, row: JobRow) -> str:
        return "guaranteed" if row.guaranteed else "borrowed" if row.tenant in self._reserving else "shared"

    def _add_usage(self, tenant: str, user: str, gpu_type: str, kind: str, used: _Used) -> None:
        key = (time.strftime("%Y-%m"), tenant, user, gpu_type, kind)
        self._used[key] = _Used(*map(add, self._used.get(key, _Used()), used))

    def note_idle(self, scheduler: Scheduler, idle_seconds: Mapping[Gpu, float], now: float) -> None:
        """Accounts for GPUs that no job holds and, as far as the engine has measured it, that their jobs do not use."""
        if idle_seconds:
            holders = {place: row for row in self.rows.values() if row.held_gpus for place in row.places.split()}
            for gpu, seconds in idle_seconds.items():
                row = holders.get(str(gpu))
                if row is not None:
                    self._note_unused(row, seconds, now)
        if self._idle.is_due(now):
            found = self._idle.sample(scheduler, self.rows, now)
            self._gpu_hours.add(now, found.gpu_seconds)
            for (gpu_type, kind), seconds in found.gpu_seconds.items():
                if kind != HELD:
                    self._add_usage("", "", gpu_type, kind, _Used(seconds, 0, seconds if kind == "idle" else 0.0))
            self._fairness.waited(found.waited, found.seconds)
            for row in found.waited:
                self.touch(row)
        if self._fairness.is_due(now):
            self._fairness.sample(scheduler, self.rows, now)

    def _note_unused(self, row: JobRow, seconds: float, now: float) -> None:
        self._gpu_hours.add_unused(now, row.held_type, seconds)
        if seconds or row.unused_gpu_seconds is None:  # most GPUs are in use at most times: their rows do not change
            row.unused_gpu_seconds = (row.unused_gpu_seconds or 0.0) + seconds
            self.touch(row)
        if seconds:
            self._add_usage(row.tenant, row.user, row.held_type, self._kind(row), _Used(idle_seconds=seconds))

    # Writing

    def write(self, connection: Connection, scheduler: Scheduler) -> None:
        """Writes all changes as part of a transaction; `written` forgets them once that is durable."""
        insert_rows(connection, self._new_jobs)
        write_rows(connection, self._changed.values())
        self._write_leases(connection)
        self._write_usage(connection)
        self.searches.write(connection)
        self._auctions.write(connection)
        self._fairness.write(connection)
        self._gpu_hours.write(connection)
        self._webhooks.write(connection)
        if self._notices:
            connection.execute(insert(scheduler_notices), self._notices)
        for event in self._gpus:
            connection.execute(delete(gpus).where(gpus.c.gpu == str(event.gpu)))
            if event.state is not GpuState.USABLE:
                values = {"gpu": str(event.gpu), "state": event.state.value, "note": event.note, "at": event.at}
                connection.execute(insert(gpus).values(**values))
        if self._setup_changed:
            self._reserving = _reserving(scheduler)
            write_setup(connection, scheduler)

    def written(self) -> None:
        for row in self._changed.values():
            if row.has_ended:
                self.rows.pop(row.id, None)
        self._known_leases.update(self._changed_leases)
        self._known_leases -= {key for key, lease in self._changed_leases.items() if lease.ended_at is not None}
        self._new_jobs, self._changed, self._changed_leases = [], {}, {}
        self._used, self._notices, self._gpus, self._setup_changed = {}, [], [], False
        self.searches.written()
        self._auctions.written()
        self._fairness.written()
        self._gpu_hours.written()
        self._webhooks.written()

    def _write_leases(self, connection: Connection) -> None:
        new = [lease.values() for key, lease in self._changed_leases.items() if key not in self._known_leases]
        _INSERT_LEASE.run_all(connection, new)
        changed = [lease.values() for key, lease in self._changed_leases.items() if key in self._known_leases]
        values = [{**each, "of_job": each.pop("job_id"), "of_epoch": each.pop("epoch")} for each in changed]
        _UPDATE_LEASE.run_all(connection, values)

    def _write_usage(self, connection: Connection) -> None:
        upsert = sqlite.insert if connection.dialect.name == "sqlite" else postgresql.insert
        for (month, tenant, user, gpu_type, kind), used in self._used.items():
            values = {"month": month, "tenant": tenant, "user": user, "gpu_type": gpu_type, "kind": kind}
            statement = upsert(usage).values(**values, **used._asdict())
            added = {name: usage.c[name] + value for name, value in used._asdict().items()}
            connection.execute(statement.on_conflict_do_update(index_elements=list(values), set_=added))


_seen = attrgetter(*(name for name in MUTABLE if name != "changed_seq"))


def _reserving(scheduler: Scheduler) -> frozenset[str]:
    """The tenants that reserve cells: what they use elsewhere is borrowed."""
    return frozenset(tenant for pool in scheduler.pools if pool.spec.reserves for tenant in pool.spec.tenants)


def _left_at(row: JobRow, event: Event, now: float) -> float:
    """When a job left its GPUs: a service that was down learns of an end late, and does not charge that time."""
    if not isinstance(event, JobEnded) or event.job_id != row.id:
        return now
    return max(min(event.at, now), row.started_at or row.first_started_at or row.submitted_at)


def write_setup(connection: Connection, scheduler: Scheduler) -> None:
    """The setup in force, for the API: as a whole, and as rows."""
    dump = scheduler.present_setup()
    set_meta(connection, "setup", json.dumps(to_plain(dump)))
    version = int(get_meta(connection, "setup_version") or 0) + 1
    set_meta(connection, "setup_version", str(version))
    connection.execute(delete(pools))
    rows = [
        {"name": spec.name, "spec": json.dumps(to_plain(spec)), "position": place}
        for place, spec in enumerate(dump.pools)
    ]
    connection.execute(insert(pools), rows)
    _write_nodes(connection, scheduler)
    weights = {tenant: 1.0 for spec in dump.pools for tenant in spec.tenants} | dict(dump.tenant_weights)
    known = set(connection.execute(select(tenants.c.name)).scalars())
    for name, weight in weights.items():
        if name in known:
            connection.execute(update(tenants).where(tenants.c.name == name).values(weight=weight))
        else:
            connection.execute(insert(tenants).values(name=name, weight=weight, webhook=""))


def _write_nodes(connection: Connection, scheduler: Scheduler) -> None:
    kept = {row.name: row for row in connection.execute(select(nodes))}
    connection.execute(delete(nodes))
    health = scheduler.ledger.health
    rows: list[dict[str, Any]] = []
    for place, node in enumerate(scheduler.ledger.real_cluster.nodes):
        state = health[node.name].value if node.name in health else "healthy"
        former = kept.get(node.name)
        rows.append(
            {
                "name": node.name, "gpu_type": node.accelerator, "gpus": node.gpus, "health": state,
                "reason": former.reason if former and state != "healthy" else "",
                "drain_at": former.drain_at if former else None, "position": place,
            }
        )  # fmt: skip
    connection.execute(insert(nodes), rows)
