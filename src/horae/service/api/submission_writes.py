"""Writes submissions: those that wait together take their numbers and are inserted by the same few statements."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from hashlib import sha256
from typing import Any, Self

from sqlalchemy import Connection, Integer, Row, bindparam, insert, or_, select, update

from horae.model.events import JobSubmitted
from horae.model.jobs import Job
from horae.model.safe_text import shown
from horae.service.api.database import insert_into
from horae.service.api.identity import Identity
from horae.service.api.limits import INTERACTIVE, Owner, QueuedJobs, admit_interactive
from horae.service.api.problems import Refused
from horae.service.api.services import AUDIT, audit_row, compact
from horae.service.api.submissions import Prepared
from horae.service.models import ENDED, JobSpec
from horae.service.store import schema
from horae.service.store.statements import Statement
from horae.service.sweeps import trial_rows

SUBMISSION = JobSubmitted.__name__
_CHUNK = 500  # ids in one query

_INBOX = Statement(insert(schema.inbox).inline(), ("kind", "payload", "wall"))
_TAKE = Statement(
    update(schema.counters)
    .where(schema.counters.c.name == bindparam("counter"))
    .values(value=schema.counters.c.value + bindparam("count", type_=Integer))
    .returning(schema.counters.c.value)
)


class Submission:
    """The change that writes the jobs of one request; its result are their ids."""

    def __init__(
        self,
        groups: Sequence[Sequence[Prepared]],
        who: Identity,
        queued: QueuedJobs,
        key: str | None = None,
        specs: Sequence[JobSpec] = (),
    ) -> None:
        self.groups = groups  # of one job, or of the elements of one array or sweep
        self.who = who
        self.queued = queued
        self.weight = sum(map(len, groups))
        self.scope, self.fingerprint = _fingerprints(who, key, specs)

    def __call__(self, connection: Connection) -> list[str]:
        (result,) = self.together(connection, [self])
        if isinstance(result, Refused):
            raise result
        return result

    @classmethod
    def together(cls, connection: Connection, waiting: Sequence[Self]) -> list[list[str] | Refused]:
        """The results of several requests, in their order; what is refused has written nothing."""
        known = _earlier(connection, [each for each in waiting if each.scope])
        results: list[list[str] | Refused] = []
        accepted: list[tuple[Self, list[str]]] = []
        for each in waiting:
            try:
                ids = each.answered_before(known)
                if ids is None:
                    each.check(connection, [other for other, _ in accepted])
                    ids = []  # filled in below
                    accepted.append((each, ids))
                    if each.scope:
                        known[each.scope] = each.fingerprint, ids
                results.append(ids)
            except Refused as refused:
                results.append(refused)
        if accepted:
            _insert(connection, accepted)
        return results

    def answered_before(self, known: dict[str, tuple[str, list[str]]]) -> list[str] | None:
        """The jobs that an earlier request with this key has made; None: there was none."""
        if self.scope not in known:
            return None
        fingerprint, ids = known[self.scope]
        if fingerprint != self.fingerprint:
            raise Refused(
                422,
                "this idempotency key was used for another request",
                field="Idempotency-Key",
                remedy="use a new key for each new request",
            )
        return ids

    @property
    def interactive(self) -> Counter[Owner]:
        """How many of the jobs are interactive, by the user to which they belong."""
        return Counter(
            (each.job.tenant, each.job.user)
            for group in self.groups
            if group[0].element.spec.priority == INTERACTIVE
            for each in group
        )

    def check(self, connection: Connection, accepted: Sequence[Submission]) -> None:
        """Raises unless the jobs may be added to those that are there, and to those accepted in this transaction."""
        wanted = {name for group in self.groups for name in group[0].element.spec.after}
        if wanted:
            _check_dependencies(connection, self.who, sorted(wanted))
        if self.interactive:
            mine: Counter[Owner] = Counter()
            for each in accepted:
                mine.update(each.interactive)
            admit_interactive(connection, self.who, self.interactive, mine, self.queued.limits)
        owners = Counter((each.job.tenant, each.job.user) for group in self.groups for each in group)
        self.queued.admit(connection, self.who, owners)

    def rows(self, number: int, each: Prepared, index: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """The row of a job and that of its event, once it has a number; `index`: within the request."""
        element, spec, job = each.element, each.element.spec, each.job
        job_id = str(number) if element.position is None else f"{number}_{element.position}"
        app = f"{spec.tenant}/{spec.app}" if spec.app else str(number)
        row = {
            "id": job_id,
            "number": number,
            "name": spec.name,
            "app": app,
            "tenant": job.tenant,
            "user": job.user,
            "model": job.model,
            "spec": each.spec,
            "gpus": job.gpus,
            "gpu_type": _requested_types(job) if spec.gpu_type else "",
            "submitted_at": job.submitted_at,
            "steps_total": job.steps_total,
            "idempotency_key": f"{self.fingerprint}#{index:06}" if self.scope else None,
            **_NEW,
        }
        names = {"id": job_id} if app == job_id else {"id": job_id, "app": app}
        payload = f'{{"event":"{SUBMISSION}","at":0.0,"job":{compact(names)[:-1]},{each.event}}}\n'
        return row, {"kind": SUBMISSION, "payload": payload, "wall": time.time()}


_NEW: dict[str, Any] = {
    "state": "submitted",
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
_JOBS = Statement(
    insert(schema.jobs).inline(),
    (
        "id", "number", "name", "app", "tenant", "user", "model", "spec", "gpus", "gpu_type", "submitted_at",
        "steps_total", "idempotency_key", *_NEW,
    ),
)  # fmt: skip


def _fingerprints(who: Identity, key: str | None, specs: Sequence[JobSpec]) -> tuple[str, str]:
    """The scope of an idempotency key, which is its user's own, and its fingerprint with the request."""
    if not key:
        return "", ""
    scope = sha256(f"{who.tenant}\0{who.user}\0{key}".encode("utf-8", "surrogatepass")).hexdigest()
    body = sha256("\n".join(spec.model_dump_json() for spec in specs).encode()).hexdigest()[:16]
    return scope, f"{scope}#{body}"


def _earlier(connection: Connection, keyed: Sequence[Submission]) -> dict[str, tuple[str, list[str]]]:
    """By scope of an idempotency key that was used: the fingerprint of its request, and the jobs that it made."""
    if not keyed:
        return {}
    column = schema.jobs.c.idempotency_key
    # What follows the scope is a hexadecimal number, which lies between these in every collation.
    ranges = [(column >= f"{scope}#0") & (column < f"{scope}#g") for scope in {each.scope for each in keyed}]
    found: dict[str, tuple[str, list[str]]] = {}
    for job_id, key in connection.execute(select(schema.jobs.c.id, column).where(or_(*ranges)).order_by(column)):
        fingerprint = key.rpartition("#")[0]
        found.setdefault(key.partition("#")[0], (fingerprint, []))[1].append(job_id)
    return found


def _check_dependencies(connection: Connection, who: Identity, wanted: Sequence[str]) -> None:
    table = schema.jobs.c
    found: dict[str, Row[Any]] = {}
    for start in range(0, len(wanted), _CHUNK):
        query = select(table.id, table.tenant, table.state).where(table.id.in_(wanted[start : start + _CHUNK]))
        found |= {row.id: row for row in connection.execute(query)}
    for name in wanted:
        row = found.get(name)
        if row is None or not who.sees(row.tenant):
            raise Refused(422, f"there is no job {shown(name)}", field="after", remedy="give the id of a job")
        if row.state in ENDED and row.state != "finished":
            raise Refused(422, f"job {shown(name)} is {row.state}", field="after", remedy="remove it")


def _insert(connection: Connection, accepted: Sequence[tuple[Submission, list[str]]]) -> None:
    """Inserts the jobs of all requests, and fills in their ids."""
    number = _next_numbers(connection, sum(len(submission.groups) for submission, _ in accepted))
    rows: list[dict[str, Any]] = []
    events: list[dict[str, Any]] = []
    audited: list[dict[str, Any]] = []
    trials: list[dict[str, Any]] = []
    for submission, ids in accepted:
        for group in submission.groups:
            for each in group:
                row, event = submission.rows(number, each, len(ids))
                ids.append(row["id"])
                rows.append(row)
                events.append(event)
            trials += trial_rows(number, ids[len(ids) - len(group) :], group[0].element.spec)
            number += 1
        audited.append(audit_row(submission.who, "submit", _named(ids), submission.groups[0][0].element.spec.name))
    _JOBS.run_all(connection, rows)
    if trials:
        connection.execute(insert(schema.trials), trials)
    _INBOX.run_all(connection, events)
    AUDIT.run_all(connection, audited)


def _next_numbers(connection: Connection, count: int) -> int:
    """Takes this many numbers from the counter; returns the first."""
    last = _TAKE.run(connection, {"counter": "jobs", "count": count}).scalar()
    if last is None:
        connection.execute(
            insert_into(connection, schema.counters).values(name="jobs", value=0).on_conflict_do_nothing()
        )
        last = _TAKE.run(connection, {"counter": "jobs", "count": count}).scalar()
    assert last is not None
    return int(last) - count + 1


def _requested_types(job: Job) -> str:
    return " ".join(dict.fromkeys(option.shape.accelerator for option in job.options))


def _named(ids: Sequence[str]) -> str:
    return ids[0] if len(ids) == 1 else f"{ids[0]} ... {ids[-1]} ({len(ids):,} jobs)"
