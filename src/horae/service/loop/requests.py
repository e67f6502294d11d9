"""The inbox: requests that the API has written, and the answers of the loop, which are kept for an hour."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

from sqlalchemy import Connection, bindparam, delete, insert, select

from horae.model.events import JobSubmitted
from horae.service.loop.job_rows import JobRow, read_rows
from horae.service.store.schema import answers, inbox
from horae.service.store.statements import Statement

REQUESTS_AT_A_TIME = 2000
ANSWERS_SECONDS = 3600.0
SUBMISSION = JobSubmitted.__name__
_REMOVE = Statement(delete(inbox).where(inbox.c.id == bindparam("applied")))
_ANSWER = Statement(insert(answers).inline(), ("inbox_id", "at", "problem"))


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
    submitted = [each.payload["job"]["id"] for each in requests if each.kind == SUBMISSION]
    return requests, list(read_rows(connection, submitted).values())


@dataclass
class Answered:
    """The requests that were applied since the last transaction, each with what was wrong with it, or an empty text.

    Submissions are answered by the API: the loop tells only what was wrong with them.
    """

    problems: dict[int, str | None] = field(default_factory=dict)
    _forgotten_at: float = -inf

    def __bool__(self) -> bool:
        return bool(self.problems)

    def add(self, request: Request, problem: str) -> None:
        is_told = bool(problem) or request.kind != SUBMISSION
        self.problems[request.id] = problem if is_told else None

    def write(self, connection: Connection, now: float) -> None:
        """Writes the answers, removes their requests, and forgets old answers, as part of a transaction."""
        _write(connection, self.problems, now)
        if now >= self._forgotten_at + ANSWERS_SECONDS:
            connection.execute(delete(answers).where(answers.c.at < now - ANSWERS_SECONDS))

    def written(self, now: float) -> None:
        self.problems = {}
        if now >= self._forgotten_at + ANSWERS_SECONDS:
            self._forgotten_at = now


def _write(connection: Connection, problems: Mapping[int, str | None], now: float) -> None:
    _REMOVE.run_all(connection, [{"applied": number} for number in problems])
    told = {number: problem for number, problem in problems.items() if problem is not None}
    _ANSWER.run_all(connection, [{"inbox_id": number, "at": now, "problem": told[number]} for number in told])
