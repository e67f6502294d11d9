"""The inbox: requests that the API has written, and the answers of the loop, which are kept for an hour."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

from sqlalchemy import Connection, delete, insert, select

from horae.model.events import JobSubmitted
from horae.service.loop.job_rows import JobRow, read_rows
from horae.service.store.schema import answers, inbox

REQUESTS_AT_A_TIME = 2000
ANSWERS_SECONDS = 3600.0
_IDS_AT_A_TIME = 500


@dataclass(frozen=True)
class Request:
    """A row of the inbox."""

    id: int
    kind: str
    payload: dict[str, Any]


def next_requests(connection: Connection) -> tuple[list[Request], list[JobRow]]:
    """The oldest requests, and the rows of the jobs that they submit."""
    rows = connection.execute(select(inbox).order_by(inbox.c.id).limit(REQUESTS_AT_A_TIME)).all()
    requests = [Request(row.id, row.kind, json.loads(row.payload)) for row in rows]
    submitted = [each.payload["job"]["id"] for each in requests if each.kind == JobSubmitted.__name__]
    return requests, list(read_rows(connection, submitted).values())


@dataclass
class Answered:
    """The requests that were applied since the last transaction, each with what was wrong with it, or an empty text."""

    problems: dict[int, str] = field(default_factory=dict)
    _forgotten_at: float = -inf

    def __bool__(self) -> bool:
        return bool(self.problems)

    def write(self, connection: Connection, now: float) -> None:
        """Writes the answers, removes their requests, and forgets old answers, as part of a transaction."""
        _write(connection, self.problems, now)
        if now >= self._forgotten_at + ANSWERS_SECONDS:
            connection.execute(delete(answers).where(answers.c.at < now - ANSWERS_SECONDS))

    def written(self, now: float) -> None:
        self.problems = {}
        if now >= self._forgotten_at + ANSWERS_SECONDS:
            self._forgotten_at = now


def _write(connection: Connection, problems: Mapping[int, str], now: float) -> None:
    ids = list(problems)
    for start in range(0, len(ids), _IDS_AT_A_TIME):
        connection.execute(delete(inbox).where(inbox.c.id.in_(ids[start : start + _IDS_AT_A_TIME])))
    if problems:
        rows = [{"inbox_id": number, "at": now, "problem": problem} for number, problem in problems.items()]
        connection.execute(insert(answers), rows)
