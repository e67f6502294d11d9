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
from horae.service.api.log_files import TAIL_BYTES, TAIL_BYTES_MAX, Follower, LeaseOutput, epochs
from horae.service.api.loop_client import LoopAway
from horae.service.api.masking import ReasonMask, visible_ids
from horae.service.api.problems import Refused
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
    epoch: Annotated[int | None, Query(ge=0, le=2**62, description="a lease; the last one if absent")] = None,
    tail: Annotated[int, Query(ge=0, le=TAIL_BYTES_MAX, description="bytes from the end")] = TAIL_BYTES,
    offset: Annotated[int | None, Query(ge=0, le=2**62, description="byte from which to read, instead of tail")] = None,
    follow: Annotated[bool, Query(description="go on until the job has ended")] = False,
) -> Response:
    """The output of a job. `Horae-Log-Next` is the `offset` of what comes after it."""
    await all_.read(lambda connection: find_job(connection, who, job_id))
    state = all_.context.state
    known = await to_thread.run_sync(epochs, state, job_id)
    if epoch is None:
        epoch = known[-1] if known else None
    elif epoch not in known:
        raise Refused(404, f"lease {epoch} of job {job_id} has no output", field="epoch", remedy="leave it out")
    if follow:
        start = (
            0 if epoch is None else await to_thread.run_sync(_start, LeaseOutput(state, job_id, epoch), offset, tail)
        )
        stream = _follow(all_, job_id, epoch, start)
        return StreamingResponse(counted(all_, stream), media_type="text/plain; charset=utf-8")
    if epoch is None:
        return Response(b"", media_type="text/plain; charset=utf-8", headers={"Horae-Log-Next": "0"})
    output = LeaseOutput(state, job_id, epoch)
    start = await to_thread.run_sync(_start, output, offset, tail)
    data = await to_thread.run_sync(output.read, start, TAIL_BYTES_MAX)
    headers = {"Horae-Log-Epoch": str(epoch), "Horae-Log-Next": str(start + len(data))}
    return Response(data, media_type="text/plain; charset=utf-8", headers=headers)


def _start(output: LeaseOutput, offset: int | None, tail: int) -> int:
    return max(0, output.size() - tail) if offset is None else offset


async def _follow(all_: Services, job_id: str, epoch: int | None, start: int) -> AsyncIterator[bytes]:
    """The output of a lease and of those after it, until the job has ended."""
    state = all_.context.state
    follower = Follower(state, job_id, -1 if epoch is None else epoch, start)
    try:
        while not all_.memory.get("stopping"):
            # Whether there will be more is asked before the last look, so that what is written meanwhile is not lost.
            has_ended = await all_.read(lambda c: c.scalar(select(jobs.c.state).where(jobs.c.id == job_id))) in ENDED
            known = await to_thread.run_sync(epochs, state, job_id)
            while data := await to_thread.run_sync(follower.read):
                yield data
            later = [each for each in known if epoch is None or each > epoch]
            if later:
                follower.close()
                epoch = later[0]
                follower = Follower(state, job_id, epoch, 0)
            elif has_ended:
                return
            else:
                await asyncio.sleep(FOLLOW_SECONDS)
    finally:
        follower.close()
