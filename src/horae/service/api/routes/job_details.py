"""One job in detail: why it waits, its leases, its output."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any

from anyio import to_thread
from fastapi import APIRouter, Query, Response
from fastapi.responses import StreamingResponse
from sqlalchemy import Connection, select

from horae.service.api.database import clock
from horae.service.api.explanations import jobs_named, why_from_loop, why_from_tables
from horae.service.api.job_queries import find_job
from horae.service.api.job_views import lease_view
from horae.service.api.log_files import TAIL_BYTES, TAIL_BYTES_MAX, Follower, JobOutput
from horae.service.api.loop_client import LoopAway
from horae.service.api.masking import ReasonMask, visible_ids
from horae.service.api.routes.jobs import All, JobId, Who
from horae.service.api.services import Services
from horae.service.api.streams import counted
from horae.service.models import ENDED, LeaseView, Why
from horae.service.store.schema import jobs, leases

router = APIRouter(tags=["jobs"])
FOLLOW_SECONDS = 0.2


@router.get("/jobs/{job_id}/why")
async def why(job_id: JobId, who: Who, all_: All) -> Why:
    """Why a job waits and what would unblock it; without the scheduler, what the tables say."""
    row, now, story = await all_.read(lambda c: (find_job(c, who, job_id), clock(c), _story(c, job_id)))
    is_away = False
    try:
        answer = await all_.loop.ask({"why": job_id})
    except LoopAway:
        answer, is_away = {}, True
    plain = answer.get("explanation")
    texts = [row.reason, *[each.reason for each in story]]
    mask = await all_.read(lambda c: ReasonMask(c, who, texts))
    if not isinstance(plain, dict):
        found = why_from_tables(row, mask(row.reason), is_away=is_away)
    else:
        visible = None if who.sees_all else await all_.read(lambda c: visible_ids(c, who, jobs_named(plain)))
        found = why_from_loop(answer, row, now, visible)
    found.story = [_line(each, mask(each.reason)) for each in story]
    return found


def _story(connection: Connection, job_id: str) -> list[Any]:
    query = select(leases).where(leases.c.job_id == job_id).order_by(leases.c.epoch.desc()).limit(50)
    return list(reversed(connection.execute(query).all()))


def _line(lease: Any, reason: str) -> str:
    text = f"lease {lease.epoch}: {lease.gpus} x {lease.gpu_type} in one {lease.level}"
    if lease.ended_at is None:
        return f"{text}, running"
    return f"{text}, {lease.ending} after {lease.ended_at - lease.granted_at:,.0f} s" + (
        f": {reason}" if reason else ""
    )


@router.get("/jobs/{job_id}/leases")
async def list_leases(job_id: JobId, who: Who, all_: All) -> list[LeaseView]:
    """All leases of a job, oldest first."""

    def query(connection: Connection) -> list[LeaseView]:
        find_job(connection, who, job_id)
        rows = connection.execute(select(leases).where(leases.c.job_id == job_id).order_by(leases.c.epoch)).all()
        mask, now = ReasonMask(connection, who, [row.reason for row in rows]), clock(connection)
        return [lease_view(row, now, mask(row.reason)) for row in rows]

    return await all_.read(query)


@router.get(
    "/jobs/{job_id}/logs",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def logs(
    job_id: JobId,
    who: Who,
    all_: All,
    tail: Annotated[int, Query(ge=0, le=TAIL_BYTES_MAX, description="bytes from the end")] = TAIL_BYTES,
    offset: Annotated[int | None, Query(ge=0, le=2**62, description="byte from which to read, instead of tail")] = None,
    follow: Annotated[bool, Query(description="go on until the job has ended")] = False,
) -> Response:
    """The output of a job. `Horae-Log-Next` is the `offset` of what comes after it."""
    await all_.read(lambda connection: find_job(connection, who, job_id))
    state = all_.context.state
    output = JobOutput(state, job_id)
    start = await to_thread.run_sync(_start, output, offset, tail)
    if follow:
        stream = _follow(all_, job_id, start)
        return StreamingResponse(counted(all_, who, stream), media_type="text/plain; charset=utf-8")
    start, data = await to_thread.run_sync(output.read_from, start, TAIL_BYTES_MAX)
    headers = {"Horae-Log-Next": str(start + len(data))}
    return Response(data, media_type="text/plain; charset=utf-8", headers=headers)


def _start(output: JobOutput, offset: int | None, tail: int) -> int:
    return max(0, output.size() - tail) if offset is None else offset


async def _follow(all_: Services, job_id: str, start: int) -> AsyncIterator[bytes]:
    """The output of a job until it has ended."""
    follower = Follower(all_.context.state, job_id, start)
    try:
        while not all_.memory.get("stopping"):
            # Whether there will be more is asked before the last look, so that what is written meanwhile is not lost.
            has_ended = await all_.read(lambda c: c.scalar(select(jobs.c.state).where(jobs.c.id == job_id))) in ENDED
            while data := await to_thread.run_sync(follower.read):
                yield data
            if has_ended:
                return
            await asyncio.sleep(FOLLOW_SECONDS)
    finally:
        follower.close()
