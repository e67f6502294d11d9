"""The rows of live jobs as the loop keeps them in memory, and how they are read and written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from sqlalchemy import Connection, bindparam, insert, select, update

from horae.service.models import ENDED, LIVE
from horae.service.store.schema import jobs
from horae.service.store.statements import Statement

_IDS_AT_A_TIME = 500


@dataclass(slots=True)
class JobRow:
    """A row of the table of jobs."""

    id: str
    number: int
    name: str
    app: str
    tenant: str
    user: str
    model: str
    state: str
    reason: str
    spec: str
    gpus: int
    gpu_type: str
    held_gpus: int
    held_type: str
    places: str
    guaranteed: bool
    epoch: int | None
    submitted_at: float
    first_started_at: float | None
    started_at: float | None
    ended_at: float | None
    run_seconds: float
    gpu_seconds: float
    preemptions: int
    failures: int
    steps: float
    steps_total: float | None
    resumable: bool
    rho: float | None
    idempotency_key: str | None
    changed_seq: int
    own_wait_seconds: float = 0.0  # records of older versions lack it
    unused_gpu_seconds: float | None = None  # likewise

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED


def row_of(values: Mapping[str, Any]) -> JobRow:
    """A row from values that another version may have written: unknown ones are left out, missing ones are empty."""
    empty = {"str": "", "int": 0, "float": 0.0, "bool": False}
    return JobRow(**{each.name: values.get(each.name, empty.get(str(each.type))) for each in fields(JobRow)})


MUTABLE = (
    "state", "reason", "held_gpus", "held_type", "places", "guaranteed", "epoch", "submitted_at", "first_started_at",
    "started_at", "ended_at", "run_seconds", "gpu_seconds", "preemptions", "failures", "steps", "resumable", "rho",
    "changed_seq", "own_wait_seconds", "unused_gpu_seconds",
)  # fmt: skip
_UPDATE = Statement(
    update(jobs).where(jobs.c.id == bindparam("job_id")).values({name: bindparam(f"new_{name}") for name in MUTABLE})
)


def read_rows(connection: Connection, job_ids: Sequence[str]) -> dict[str, JobRow]:
    found: dict[str, JobRow] = {}
    for start in range(0, len(job_ids), _IDS_AT_A_TIME):
        some = job_ids[start : start + _IDS_AT_A_TIME]
        for row in connection.execute(select(jobs).where(jobs.c.id.in_(some))):
            found[row.id] = JobRow(**row._mapping)
    return found


def read_live(connection: Connection) -> dict[str, JobRow]:
    rows = connection.execute(select(jobs).where(jobs.c.state.in_(LIVE)))
    return {row.id: JobRow(**row._mapping) for row in rows}


def write_rows(connection: Connection, rows: Iterable[JobRow]) -> None:
    _UPDATE.run_all(
        connection,
        [{"job_id": row.id, **{f"new_{name}": getattr(row, name) for name in MUTABLE}} for row in rows],
    )


def insert_rows(connection: Connection, rows: Iterable[JobRow]) -> None:
    """Adds jobs that no request has inserted: those that were found running after a part of the log was lost."""
    values: list[dict[str, Any]] = [{each.name: getattr(row, each.name) for each in fields(row)} for row in rows]
    if values:
        connection.execute(insert(jobs), values)
