"""Jobs that wait for others to finish; the scheduler does not have them yet."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, bindparam, delete, insert, select

from horae.model.jobs import Job
from horae.model.serialization import from_plain, to_plain
from horae.service.loop.job_rows import JobRow
from horae.service.models import ENDED
from horae.service.store.schema import jobs, waiting

ENDED_AS = {
    "failed": "failed",
    "cancelled": "was cancelled",
    "stopped": "was stopped by its search",
    "refused": "was refused",
    "finished": "finished",
}
_NO_LONGER = delete(waiting).where(waiting.c.job_id == bindparam("waits"))


class WaitingJobs:
    """The jobs by id, and the changes of one transaction."""

    def __init__(self, connection: Connection) -> None:
        self.jobs: dict[str, Job] = {
            row.job_id: from_plain(Job, json.loads(row.job)) for row in connection.execute(select(waiting))
        }
        self._changed: dict[str, Job | None] = {}  # None: it waits no longer

    def add(self, job_id: str, job: Job) -> None:
        self.jobs[job_id] = self._changed[job_id] = job

    def remove(self, job_id: str) -> None:
        if self.jobs.pop(job_id, None) is not None:
            self._changed[job_id] = None

    def write(self, connection: Connection) -> None:
        """Writes all changes as part of a transaction; `written` forgets them once that is durable."""
        if self._changed:
            connection.execute(_NO_LONGER, [{"waits": job_id} for job_id in self._changed])
        added = [
            {"job_id": job_id, "job": json.dumps(to_plain(job))}
            for job_id, job in self._changed.items()
            if job is not None
        ]
        if added:
            connection.execute(insert(waiting), added)

    def written(self) -> None:
        self._changed = {}


def states_of(connection: Connection, job_ids: Sequence[str]) -> dict[str, str]:
    """By job that has a row: its state."""
    query = select(jobs.c.id, jobs.c.state).where(jobs.c.id.in_(job_ids))
    return {row.id: row.state for row in connection.execute(query)}


def unfinished(after: Sequence[str], live: Mapping[str, JobRow], stored: Mapping[str, str]) -> list[str] | str:
    """The jobs that have yet to finish, or why one never will."""
    left: list[str] = []
    for job_id in after:
        state = live[job_id].state if job_id in live else stored.get(job_id)
        if state is None:
            return f"there is no job {job_id}, after which it shall run"
        if state in ENDED and state != "finished":
            return f"{job_id}, after which it shall run, {ENDED_AS[state]}"
        if state != "finished":
            left.append(job_id)
    return left
