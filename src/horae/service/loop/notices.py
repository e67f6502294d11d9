"""What the webhooks of tenants are told: collected with the changes of the tables, sent by the API process."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from sqlalchemy import Connection, insert

from horae.model.events import Ending, JobCancelled, JobEnded
from horae.service.loop.job_rows import JobRow
from horae.service.store.schema import notices


class Notices:
    """The notices of one transaction, of those tenants that have a webhook."""

    def __init__(self, tenants: Collection[str]) -> None:
        self._tenants = frozenset(tenants)
        self._found: list[tuple[JobRow, dict[str, Any], str]] = []  # with the reason

    def preempted(self, row: JobRow, reason: str, at: float) -> None:
        self._add(row, "preempted", reason, at)

    def ended(self, row: JobRow, event: JobEnded, at: float) -> None:
        """The end of a lease: a failure of the job, or a loss of its hardware."""
        if event.ending in (Ending.FAILED, Ending.LOST) and row.state not in ("cancelled", "stopped"):
            self._add(row, event.ending.value, event.message, at)

    def lost(self, row: JobRow, at: float) -> None:
        """A lease has ended without a message of its own."""
        self._add(row, Ending.LOST.value, "it was found no longer running", at)

    def exceeded(self, row: JobRow, event: JobCancelled, at: float) -> None:
        """The job is stopped because of a limit."""
        self._add(row, "limit", event.reason, at)

    def _add(self, row: JobRow, kind: str, reason: str, at: float) -> None:
        if row.tenant in self._tenants:
            self._found.append((row, {"at": at, "tenant": row.tenant, "job": row.id, "kind": kind}, reason))

    def write(self, connection: Connection) -> None:
        rows = [
            {**notice, "payload": json.dumps({"reason": reason, "state": row.state, "steps": row.steps})}
            for row, notice, reason in self._found
        ]
        if rows:
            connection.execute(insert(notices), rows)

    def written(self) -> None:
        self._found = []
