"""Submissions: jobs are checked against the cluster, numbered, and written with their events in one transaction."""

from __future__ import annotations

import time
from collections.abc import Sequence
from hashlib import sha256
from typing import Any, NamedTuple

from sqlalchemy import Connection, Integer, Row, bindparam, insert, select, update

from horae.model.cluster import Cluster
from horae.model.errors import JobError
from horae.model.events import JobSubmitted
from horae.model.jobs import Job
from horae.model.safe_text import shown
from horae.model.serialization import Plain, to_plain
from horae.model.setup import PoolOfJob, Setup
from horae.model.shapes import Option
from horae.service.api.context import Limits
from horae.service.api.database import LogClock, insert_into
from horae.service.api.identity import Identity
from horae.service.api.limits import QueuedJobs, check_limits
from horae.service.api.problems import Refused, invalid
from horae.service.api.services import compact, record
from horae.service.job_file import EXAMPLE, Element, Speeds, check_fits, check_workdir, expand, to_job
from horae.service.models import BULK_MAX, ENDED, JobSpec
from horae.service.store import schema

SUBMISSION = JobSubmitted.__name__
PLAIN_MAX = 4096  # shapes of jobs that are remembered


class Prepared(NamedTuple):
    """One job, ready to be numbered: what takes time is done before the transaction, which blocks other writers."""

    element: Element
    job: Job  # with the number 0
    spec: str  # the job file as JSON
    event: str  # the end of the event's line, after the job's id and app


class Request(NamedTuple):
    """The jobs of one request, checked: groups of one job, or of the elements of one array or sweep."""

    groups: list[list[Prepared]]
    fingerprint: str  # of an idempotency key and the request; "": none
    scope: str  # the part of the fingerprint that is the same for every request with this key


class Checker:
    """Checks submissions against one setup; what it finds about the cluster is kept for the next submission."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self._pools = PoolOfJob(setup.pools)
        self._clusters: dict[int, Cluster] = {}
        self._plain: dict[tuple[Option, ...], Plain] = {}

    def check(self, job: Job) -> None:
        pool = self._pools.find(job)
        if pool is None:
            raise JobError(f"no pool serves tenant {shown(job.tenant)}", field="tenant", remedy="ask an operator")
        check_fits(job.options, [self._cluster(pool)])

    def plain_options(self, options: tuple[Option, ...]) -> Plain:
        """The plain form of a job's shapes; many jobs have the same."""
        if options not in self._plain:
            if len(self._plain) >= PLAIN_MAX:
                self._plain.clear()
            self._plain[options] = to_plain(options)
        return self._plain[options]

    def _cluster(self, pool: int) -> Cluster:
        """The nodes on which jobs of a pool may run."""
        if pool not in self._clusters:
            spec = self.setup.pools[pool]
            taken = {name for other in self.setup.pools if other is not spec for name in other.nodes}
            nodes = [
                node
                for node in self.setup.cluster.nodes
                if (node.name in spec.nodes if spec.nodes else node.name not in taken)
            ]
            is_whole = len(nodes) == len(self.setup.cluster.nodes) or not nodes
            self._clusters[pool] = self.setup.cluster if is_whole else Cluster("pool", tuple(nodes))
        return self._clusters[pool]


def owned(spec: JobSpec, who: Identity) -> JobSpec:
    """The job file with tenant and user filled in; raises unless the identity may submit for them."""
    tenant = spec.tenant or who.tenant or "default"
    user = spec.user or who.user
    if who.role != "operator":
        if tenant != who.tenant:
            raise Refused(
                403, f"you may not submit jobs of tenant {shown(tenant)}", field="tenant", remedy=f"use {who.tenant!r}"
            )
        if user != who.user and who.role != "tenant-admin":
            raise Refused(403, "you may not submit jobs of other users", field="user", remedy="leave it out")
    return spec.model_copy(update={"tenant": tenant, "user": user})


def prepare(
    specs: Sequence[JobSpec],
    who: Identity,
    checker: Checker,
    clock: LogClock,
    speeds: dict[str, Speeds],
    limits: Limits,
) -> list[list[Prepared]]:
    """The jobs of all files; the first problem is raised, with the number of its file where there are several."""
    groups: list[list[Prepared]] = []
    total, folders = 0, set[str]()
    for number, given in enumerate(specs):
        try:
            spec = check_limits(owned(given, who), who, limits)
            if spec.workdir not in folders:
                check_workdir(spec.workdir)
                folders.add(spec.workdir)
            elements = expand(spec)
            total += len(elements)
            if total > BULK_MAX:
                raise Refused(422, f"more than {BULK_MAX:,} jobs in one request", remedy="split the request")
            groups.append(_group(elements, who, checker, clock, speeds.get(spec.model, {})))
        except (JobError, Refused) as error:
            raise _located(error, number if len(specs) > 1 else None) from None
    return groups


def _group(
    elements: Sequence[Element], who: Identity, checker: Checker, clock: LogClock, speeds: Speeds
) -> list[Prepared]:
    """The jobs of one file: its elements differ in their command and environment only."""
    job = to_job(elements[0].spec, "0", who.user, checker.setup, clock.now, unix_offset=clock.offset, speeds=speeds)
    checker.check(job)
    plain = to_plain(_with(job, options=()))
    plain["options"] = checker.plain_options(job.options)
    del plain["id"]
    plain.pop("app", None)
    made: list[Prepared] = []
    for element in elements:
        event = compact({**plain, "command": element.spec.run})
        made.append(Prepared(element, job, element.spec.model_dump_json(exclude_none=True), event[1:]))
    return made


def _located(error: JobError | Refused, number: int | None) -> Refused:
    refused = invalid(error, example=EXAMPLE) if isinstance(error, JobError) else error
    if number is not None:
        field = refused.problem.field
        refused.problem.field = f"{number}.{field}" if field else str(number)
    return refused


def fingerprints(who: Identity, key: str | None, specs: Sequence[JobSpec]) -> tuple[str, str]:
    """The scope of an idempotency key, which is its user's own, and its fingerprint with the request."""
    if not key:
        return "", ""
    scope = sha256(f"{who.tenant}\0{who.user}\0{key}".encode("utf-8", "surrogatepass")).hexdigest()
    body = sha256("\n".join(spec.model_dump_json() for spec in specs).encode()).hexdigest()[:16]
    return scope, f"{scope}#{body}"


class Submission:
    """The change that writes the jobs of a request; it returns their ids."""

    def __init__(self, request: Request, who: Identity, queued: QueuedJobs) -> None:
        self._request = request
        self._who = who
        self._queued = queued

    def __call__(self, connection: Connection) -> list[str]:
        earlier = self._earlier(connection)
        if earlier:
            return earlier
        groups = self._request.groups
        self._check_dependencies(connection)
        self._queued.admit(connection, self._who, sum(map(len, groups)))
        first = _next_numbers(connection, len(groups))
        rows: list[dict[str, Any]] = []
        events: list[dict[str, Any]] = []
        for number, group in enumerate(groups, start=first):
            for each in group:
                row, event = self._rows(number, each, len(rows))
                rows.append(row)
                events.append(event)
        connection.execute(_JOBS, rows)
        connection.execute(_INBOX, events)
        ids = [row["id"] for row in rows]
        record(connection, self._who, "submit", _named(ids), rows[0]["name"])
        return ids

    def _earlier(self, connection: Connection) -> list[str]:
        """The jobs that an earlier request with this key has made."""
        scope, fingerprint = self._request.scope, self._request.fingerprint
        if not scope:
            return []
        column = schema.jobs.c.idempotency_key
        found = connection.execute(
            select(schema.jobs.c.id, column).where(column >= f"{scope}#", column < f"{scope}$").order_by(column)
        ).all()
        if found and not found[0].idempotency_key.startswith(fingerprint):
            raise Refused(
                422,
                "this idempotency key was used for another request",
                field="Idempotency-Key",
                remedy="use a new key for each new request",
            )
        return [row.id for row in found]

    def _check_dependencies(self, connection: Connection) -> None:
        wanted = {name for group in self._request.groups for name in group[0].element.spec.after}
        if not wanted:
            return
        table = schema.jobs.c
        found: dict[str, Row[Any]] = {}
        names = sorted(wanted)
        for start in range(0, len(names), 500):
            query = select(table.id, table.tenant, table.state).where(table.id.in_(names[start : start + 500]))
            found |= {row.id: row for row in connection.execute(query)}
        for name in names:
            row = found.get(name)
            if row is None or not self._who.sees(row.tenant):
                raise Refused(422, f"there is no job {shown(name)}", field="after", remedy="give the id of a job")
            if row.state in ENDED and row.state != "finished":
                raise Refused(422, f"job {shown(name)} is {row.state}", field="after", remedy="remove it")

    def _rows(self, number: int, each: Prepared, index: int) -> tuple[dict[str, Any], dict[str, Any]]:
        element, spec = each.element, each.element.spec
        job_id = str(number) if element.position is None else f"{number}_{element.position}"
        app = f"{spec.tenant}/{spec.app}" if spec.app else str(number)
        job = each.job
        key = f"{self._request.fingerprint}#{index:06}" if self._request.scope else None
        row = {
            "id": job_id,
            "number": number,
            "name": spec.name,
            "app": app,
            "tenant": job.tenant,
            "user": job.user,
            "model": job.model,
            "state": "submitted",
            "spec": each.spec,
            "gpus": job.gpus,
            "gpu_type": requested_types(job) if spec.gpu_type else "",
            "submitted_at": job.submitted_at,
            "steps_total": job.steps_total,
            "idempotency_key": key,
            **_NEW,
        }
        names = {"id": job_id} if app == job_id else {"id": job_id, "app": app}
        payload = f'{{"event":"{SUBMISSION}","at":0.0,"job":{compact(names)[:-1]},{each.event}}}\n'
        return row, {"kind": SUBMISSION, "payload": payload, "wall": time.time()}


_NEW: dict[str, Any] = {
    "reason": "",
    "held_gpus": 0,
    "held_type": "",
    "places": "",
    "guaranteed": False,
    "epoch": None,
    "first_started_at": None,
    "started_at": None,
    "ended_at": None,
    "run_seconds": 0.0,
    "gpu_seconds": 0.0,
    "preemptions": 0,
    "failures": 0,
    "steps": 0.0,
    "resumable": False,
    "rho": None,
    "changed_seq": 0,
}


def _with(job: Job, **changes: Any) -> Job:
    """A copy with other values, which skips the checks that the job has passed."""
    copy = object.__new__(Job)
    for name in Job.__slots__:
        object.__setattr__(copy, name, changes.get(name, getattr(job, name)))
    return copy


def requested_types(job: Job) -> str:
    return " ".join(dict.fromkeys(option.shape.accelerator for option in job.options))


_JOBS, _INBOX = insert(schema.jobs).inline(), insert(schema.inbox).inline()
_TAKE = (
    update(schema.counters)
    .where(schema.counters.c.name == "jobs")
    .values(value=schema.counters.c.value + bindparam("count", type_=Integer))
    .returning(schema.counters.c.value)
)


def _next_numbers(connection: Connection, count: int) -> int:
    """Takes this many numbers from the counter; returns the first."""
    last = connection.scalar(_TAKE, {"count": count})
    if last is None:
        first = insert_into(connection, schema.counters).values(name="jobs", value=0).on_conflict_do_nothing()
        connection.execute(first)
        last = connection.scalar(_TAKE, {"count": count})
    assert last is not None
    return int(last) - count + 1


def _named(ids: Sequence[str]) -> str:
    return ids[0] if len(ids) == 1 else f"{ids[0]} ... {ids[-1]} ({len(ids):,} jobs)"


def read_speeds(connection: Connection, models: set[str]) -> dict[str, Speeds]:
    """By model: its measured speeds by GPU type and number of GPUs."""
    found: dict[str, dict[tuple[str, int], float]] = {}
    table = schema.speeds
    for model in sorted(models - {""}):
        for row in connection.execute(select(table).where(table.c.model == model)):
            found.setdefault(model, {})[row.gpu_type, row.gpus] = row.steps_per_second
    return dict(found)
