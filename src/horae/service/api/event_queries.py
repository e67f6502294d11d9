"""Reads the log: the events after a number that a requester may see."""

from __future__ import annotations

from typing import Any, NamedTuple

from sqlalchemy import Connection, func, select

from horae.service.api.event_texts import HIDDEN, event_view, jobs_of, payload_of
from horae.service.api.identity import Identity
from horae.service.api.job_queries import find_job
from horae.service.api.problems import Refused
from horae.service.models import EventPage, EventView
from horae.service.store.schema import events, jobs

_ROWS = 500  # read at a time
_SCANNED_MAX = 20_000  # rows per request, however few of them the requester may see
_SEARCHED_MAX = 200_000  # events per request that are searched for one job
_MARGIN_SECONDS = 120.0  # before and after a job: a submission may be accepted before its event, and an end come late


class EventFilter(NamedTuple):
    kind: tuple[str, ...] = ()
    job: str | None = None


def last_seq(connection: Connection) -> int:
    return int(connection.scalar(select(func.max(events.c.seq))) or 0)


def read_events(connection: Connection, who: Identity, since: int, wanted: EventFilter, limit: int) -> EventPage:
    """Up to `limit` events after `since`; `next` is the last one that was looked at."""
    found: list[EventView] = []
    scanned = 0
    until = last_seq(connection)
    if wanted.job is not None:
        first, last = _span(connection, who, wanted.job, until)
        since = max(since, min(first - 1, until))
        until = max(since, min(last, since + _SEARCHED_MAX))
    while len(found) < limit and scanned < _SCANNED_MAX:
        rows = connection.execute(_query(since, until, wanted, min(_ROWS, max(limit, 50)))).all()
        for row, view in _views(connection, who, rows):
            since = row.seq
            if view is not None and (wanted.job is None or view.job_id == wanted.job):
                found.append(view)
                if len(found) == limit:
                    break
        scanned += len(rows)
        if len(rows) < min(_ROWS, max(limit, 50)):
            since = since if len(found) == limit else max(since, until)
            break
    return EventPage(items=found, next=since)


def _span(connection: Connection, who: Identity, job_id: str, latest: int) -> tuple[int, int]:
    """The numbers between which all events of a job lie: others need not be searched for its name."""
    try:
        row = find_job(connection, who, job_id)
    except Refused:
        return latest + 1, latest  # none, or none that the requester may see
    first = _first_since(connection, row.submitted_at - _MARGIN_SECONDS, latest)
    if row.ended_at is None:
        return first, latest
    return first, _first_since(connection, row.ended_at + _MARGIN_SECONDS, latest)


def _first_since(connection: Connection, at: float, latest: int) -> int:
    """The number of the first event at this time of the log or later, by halving: times have no index."""
    low, high = 1, latest
    while low < high:
        middle = (low + high) // 2
        found = connection.scalar(select(events.c.at).where(events.c.seq >= middle).order_by(events.c.seq).limit(1))
        low, high = (low, middle) if found is None or found >= at else (middle + 1, high)
    return low


def _query(since: int, until: int, wanted: EventFilter, limit: int) -> Any:
    query = select(events.c.seq, events.c.wall, events.c.kind, events.c.payload)
    query = query.where(events.c.seq > since, events.c.seq <= until)
    query = query.where(events.c.kind.in_(wanted.kind) if wanted.kind else events.c.kind.not_in(HIDDEN))
    if wanted.job is not None:
        query = query.where(events.c.payload.contains(f'"{wanted.job}"', autoescape=True))
    return query.order_by(events.c.seq).limit(limit)


def _views(connection: Connection, who: Identity, rows: Any) -> list[tuple[Any, EventView | None]]:
    payloads = [payload_of(row) for row in rows]
    named = sorted({job_id for payload in payloads for job_id in jobs_of(payload)})
    tenant_of: dict[str, str] = {}
    for start in range(0, len(named), _ROWS):
        chosen = jobs.c.id.in_(named[start : start + _ROWS])
        tenant_of |= {row.id: row.tenant for row in connection.execute(select(jobs.c.id, jobs.c.tenant).where(chosen))}
    return [(row, event_view(row, payload, tenant_of, who)) for row, payload in zip(rows, payloads, strict=True)]
