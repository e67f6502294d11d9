"""The log: what happened, as a list and as a stream."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Header, Query
from fastapi.responses import StreamingResponse
from sqlalchemy import Connection

from horae.service.api.event_queries import EventFilter, last_seq, read_events
from horae.service.api.identity import Identity
from horae.service.api.job_queries import PAGE_MAX
from horae.service.api.problems import Refused
from horae.service.api.routes.jobs import All, Who
from horae.service.api.services import Services
from horae.service.api.streams import counted
from horae.service.models import EventPage

router = APIRouter(tags=["events"])
Seq = Annotated[int | None, Query(ge=0, le=2**62, description="events after this number")]
Kinds = Annotated[list[str] | None, Query(max_length=30)]
OneJob = Annotated[str | None, Query(max_length=300)]
POLL_SECONDS = 0.2
ALIVE_SECONDS = 15.0
STREAMED = 200  # events read at a time


@router.get("/events")
async def list_events(
    who: Who,
    all_: All,
    since: Seq = None,
    kind: Kinds = None,
    job: OneJob = None,
    limit: Annotated[int, Query(ge=1, le=PAGE_MAX)] = 100,
) -> EventPage:
    """Events after `since`, oldest first; without it, the latest ones."""
    wanted = EventFilter(tuple(kind or ()), job)
    if since is None and job is None:
        since = max(0, await all_.read(last_seq) - 5 * limit)
        page = await all_.read(lambda connection: read_events(connection, who, since, wanted, 5 * limit))
        return EventPage(items=page.items[-limit:], next=page.next)
    return await all_.read(lambda connection: read_events(connection, who, since or 0, wanted, limit))


@router.get(
    "/events/stream",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
)
async def stream_events(
    who: Who,
    all_: All,
    since: Seq = None,
    kind: Kinds = None,
    job: OneJob = None,
    last_event_id: Annotated[str | None, Header(max_length=30)] = None,
) -> StreamingResponse:
    """Events as they happen, as server-sent events. `Last-Event-ID` or `since` resume without a gap."""
    if last_event_id:
        if not (last_event_id.isascii() and last_event_id.isdigit() and int(last_event_id) <= 2**62):
            raise Refused(422, "is no event's number", field="Last-Event-ID", remedy="use the id of the last event")
        since = int(last_event_id)
    if since is None:
        since = await all_.read(last_seq)
    stream = counted(all_, who, _stream(all_, who, since, EventFilter(tuple(kind or ()), job)))
    return StreamingResponse(stream, media_type="text/event-stream", headers={"Cache-Control": "no-store"})


async def _stream(all_: Services, who: Identity, since: int, wanted: EventFilter) -> AsyncIterator[str]:
    told_at = time.monotonic()
    yield ": events of Horae\n\n"
    while not all_.memory.get("stopping"):
        page, latest = await all_.read(partial(_after, who=who, since=since, wanted=wanted))
        for item in page.items:
            yield f"id: {item.seq}\nevent: {item.kind}\ndata: {item.model_dump_json()}\n\n"
            told_at = time.monotonic()
        if page.next > since:
            since = page.next  # there may be more
            continue
        since = latest
        if time.monotonic() - told_at >= ALIVE_SECONDS:
            yield f"id: {since}\n\n"  # moves the client's position past events that it may not see
            told_at = time.monotonic()
        await asyncio.sleep(POLL_SECONDS)


def _after(connection: Connection, who: Identity, since: int, wanted: EventFilter) -> tuple[EventPage, int]:
    """The next events, and the last one of the log; both at the same moment."""
    latest = max(since, last_seq(connection))
    if latest == since:
        return EventPage(items=[], next=since), latest
    return read_events(connection, who, since, wanted, STREAMED), latest
