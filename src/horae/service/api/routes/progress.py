"""Progress: jobs report it with their own token, users read it."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from sqlalchemy import Connection, select

from horae.service.api.identity import JobBearer, not_authenticated
from horae.service.api.job_queries import find_job
from horae.service.api.routes.jobs import All, JobId, Who
from horae.service.models import Point, Progress, ProgressView
from horae.service.store.schema import points, progress

router = APIRouter(tags=["progress"])


@router.post("/jobs/{job_id}/progress", status_code=204)
async def report(job_id: JobId, body: Progress, request: Request, all_: All) -> Response:
    """A job reports its steps, saved steps, loss and speed. It needs the token of exactly this job and lease."""
    bearer = request.scope["state"]["identity"]
    if bearer != JobBearer(job_id, body.epoch):
        raise not_authenticated()

    def change(connection: Connection) -> None:
        known = all_.setups.find(connection)
        all_.memory["reports"].take(connection, job_id, body, known.setup if known else None)

    await all_.write(change)
    return Response(status_code=204)


@router.get("/jobs/{job_id}/progress")
async def show(job_id: JobId, who: Who, all_: All) -> ProgressView:
    """The latest report of a job, and its progress and losses over time."""

    def query(connection: Connection) -> ProgressView:
        job = find_job(connection, who, job_id)
        row = connection.execute(select(progress).where(progress.c.job_id == job_id)).first()
        rows = connection.execute(select(points).where(points.c.job_id == job_id).order_by(points.c.steps))
        return ProgressView(
            job_id=job_id,
            epoch=row.epoch if row else None,
            at=row.wall if row else None,
            steps=row.steps if row else job.steps,
            saved=max(row.saved, job.steps) if row else job.steps,
            steps_total=job.steps_total,
            loss=row.loss if row else None,
            steps_per_second=row.steps_per_second if row else None,
            resumable=bool(job.resumable or (row and row.resumable)),
            points=[
                Point(steps=each.steps, at=each.wall, loss=each.loss, steps_per_second=each.steps_per_second)
                for each in rows
            ],
        )

    return await all_.read(query)
