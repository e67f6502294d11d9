"""Jobs: submit, list, show, cancel, hold, release."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from anyio import to_thread
from fastapi import APIRouter, Depends, Header, Path, Query, Response
from pydantic import Discriminator, Tag
from sqlalchemy import Connection

from horae.model.events import JobCancelled, JobHeld, JobReleased
from horae.service.api.database import LogClock, clock
from horae.service.api.identity import Identity, identity, require
from horae.service.api.job_queries import (
    PAGE_MAX,
    JobFilter,
    Sort,
    changeable_job,
    cursor_after,
    filtered,
    find_job,
    find_spec,
    page_of_jobs,
)
from horae.service.api.job_views import WAITING, job_rows, job_view
from horae.service.api.masking import ReasonMask
from horae.service.api.problems import Refused
from horae.service.api.services import Services, services
from horae.service.api.setup_reader import Present
from horae.service.api.submission_writes import Submission
from horae.service.api.submissions import Checker, ModelOf, prepare, read_speeds, tenant_of
from horae.service.job_file import Speeds
from horae.service.models import BULK_MAX, ENDED, JobSpec, JobView, Page, State, Submitted

router = APIRouter(tags=["jobs"])
KEY_CHARACTERS_MAX = 300
JobId = Annotated[str, Path(min_length=1, max_length=300)]
Who = Annotated[Identity, Depends(identity)]
All = Annotated[Services, Depends(services)]
Text = Annotated[str | None, Query(max_length=300)]
Moment = Annotated[float | None, Query(ge=0, le=1e12, description="Unix time", allow_inf_nan=False)]
Grace = Annotated[float | None, Query(ge=0, le=3.2e9, description="seconds", allow_inf_nan=False)]
Limit = Annotated[int, Query(ge=1, le=PAGE_MAX)]
Cursor = Annotated[str | None, Query(max_length=4000, description="`next` of the page before")]


async def job_filter(
    state: Annotated[list[State] | None, Query()] = None,
    tenant: Text = None,
    user: Text = None,
    app: Text = None,
    name: Text = None,
    since: Moment = None,
    until: Moment = None,
    text: Annotated[
        str | None, Query(max_length=300, description="words that id, name, app, tenant, user or model have")
    ] = None,
    id: Annotated[list[str] | None, Query(max_length=PAGE_MAX)] = None,
) -> JobFilter:
    """The parameters by which lists of jobs are filtered."""
    return JobFilter(state, tenant, user, app, name, since, until, text, id)


Wanted = Annotated[JobFilter, Depends(job_filter)]


def _kind(value: Any) -> str:
    return "many" if isinstance(value, list) else "one"


Body = Annotated[
    Annotated[JobSpec, Tag("one")] | Annotated[list[JobSpec], Tag("many")],
    Discriminator(_kind),
]


@router.post("/jobs", status_code=201)
async def submit(
    body: Body,
    response: Response,
    who: Who,
    all_: All,
    idempotency_key: Annotated[str | None, Header(max_length=KEY_CHARACTERS_MAX)] = None,
) -> Submitted:
    """Submit one job file or a list of them: all are accepted, or none.

    With an `Idempotency-Key`, a request that is sent again is answered with the jobs that the first one made.
    """
    ids = await accept(body, who, all_, idempotency_key)
    response.headers.update(location(ids))
    return Submitted(ids=ids)


async def accept(body: JobSpec | list[JobSpec], who: Identity, all_: Services, key: str | None) -> list[str]:
    """The ids of the jobs of a request, once they are durable."""
    require(who, "user", "submitting jobs")
    specs = body if isinstance(body, list) else [body]
    if not 1 <= len(specs) <= BULK_MAX:
        raise Refused(422, f"{len(specs):,} jobs in one request", remedy=f"send 1 to {BULK_MAX:,}")
    all_.memory["room"].require(len(specs))
    is_small = len(specs) == 1 and not specs[0].array and not specs[0].sweep
    if is_small and not specs[0].model:  # a thread would take longer than the checks
        submission = _checked(all_, who, specs, key, await all_.present.fresh(all_.read), {})
    else:
        submission = await to_thread.run_sync(_prepared, all_, who, specs, key)
    return await all_.write(submission)


def location(ids: Sequence[str]) -> dict[str, str]:
    return {"Location": f"/v1/jobs/{ids[0]}"} if len(ids) == 1 else {}


def check_submission(all_: Services, who: Identity, specs: Sequence[JobSpec]) -> tuple[Submission, LogClock]:
    """A submission that is ready to be written, and the clock by which it was checked."""
    require(who, "user", "submitting jobs")
    submission = _prepared(all_, who, specs, None)
    with all_.engine.connect() as connection:
        return submission, clock(connection)


def _prepared(all_: Services, who: Identity, specs: Sequence[JobSpec], key: str | None) -> Submission:
    with all_.engine.connect() as connection:
        present = all_.present.read(connection)
        models = {ModelOf(tenant_of(spec, who), spec.model) for spec in specs if not spec.speed}
        speeds = read_speeds(connection, models)
    return _checked(all_, who, specs, key, present, speeds)


def _checked(
    all_: Services,
    who: Identity,
    specs: Sequence[JobSpec],
    key: str | None,
    present: Present,
    speeds: dict[ModelOf, Speeds],
) -> Submission:
    known, now = present
    version, checker = all_.memory.get("checker", ("", None))
    if checker is None or version != known.version:
        checker = Checker(known.setup)
        all_.memory["checker"] = known.version, checker
    groups = prepare(specs, who, checker, now, speeds, all_.context)
    return Submission(groups, who, all_.memory["queued"], key, specs)


@router.get("/jobs")
async def list_jobs(
    who: Who,
    all_: All,
    wanted: Wanted,
    sort: Sort = "-number",
    cursor: Cursor = None,
    limit: Limit = 100,
) -> Page:
    """Jobs, newest first. A page is the same whatever is submitted meanwhile."""
    return await job_page(all_, who, wanted, sort, cursor, limit)


async def job_page(
    all_: Services, who: Identity, wanted: JobFilter, sort: Sort, cursor: str | None, limit: int
) -> Page:
    def query(connection: Connection) -> tuple[Sequence[Any], Any]:
        now = clock(connection)
        rows = page_of_jobs(filtered(job_rows(), wanted, who, now), sort, cursor, limit)
        return connection.execute(rows).all(), now

    rows, now = await all_.read(query)
    shown = rows[:limit]
    reasons = await live_reasons(all_, [row.id for row in shown if row.state in WAITING])
    texts = {row.id: reasons.get(row.id) or row.reason for row in shown}
    mask = await all_.read(lambda connection: ReasonMask(connection, who, texts.values()))
    items = [job_view(row, now, mask(texts[row.id])) for row in shown]
    return Page(items=items, next=cursor_after(shown[-1], sort) if len(rows) > limit else None)


async def live_reasons(all_: Services, ids: list[str]) -> dict[str, str]:
    """By job: why it waits, as far as the loop tells quickly."""
    if not ids:
        return {}
    answer = await all_.loop.ask_if_quick({"reasons": ids})
    reasons = answer.get("reasons", {})
    return reasons if isinstance(reasons, dict) else {}


@router.get("/jobs/{job_id}")
async def show(job_id: JobId, who: Who, all_: All) -> JobView:
    row, spec, now = await all_.read(lambda c: (find_job(c, who, job_id), find_spec(c, job_id), clock(c)))
    reasons = await live_reasons(all_, [job_id] if row.state in WAITING else [])
    text = reasons.get(job_id) or row.reason
    mask = await all_.read(lambda connection: ReasonMask(connection, who, [text]))
    return job_view(row, now, mask(text), spec)


@router.delete("/jobs/{job_id}", status_code=202)
async def cancel(job_id: JobId, who: Who, all_: All, grace: Grace = None) -> JobView:
    """Cancel a job: it gets SIGTERM, and is killed after its grace. Cancelling twice is no error.

    With `grace`, it has at most that many seconds, even if it is being cancelled already; 0 kills it at once.
    """
    row = await _changeable(all_, who, job_id, "cancelling jobs")
    if row.state != "cancelled" and (row.state != "cancelling" or grace is not None):
        _refuse_ended(row)
        detail = "" if grace is None else f"grace {grace:g} s"
        await all_.send_event(who, JobCancelled(0.0, job_id, grace_seconds=grace), "cancel", job_id, detail)
    return await show(job_id, who, all_)


@router.post("/jobs/{job_id}/hold", status_code=202)
async def hold(job_id: JobId, who: Who, all_: All) -> JobView:
    """Suspend a job: it saves its work, releases its GPUs and waits until it is released."""
    _refuse_ended(await _changeable(all_, who, job_id, "holding jobs"))
    await all_.send_event(who, JobHeld(0.0, job_id), "hold", job_id)
    return await show(job_id, who, all_)


@router.post("/jobs/{job_id}/release", status_code=202)
async def release(job_id: JobId, who: Who, all_: All) -> JobView:
    """Let a suspended job run again."""
    _refuse_ended(await _changeable(all_, who, job_id, "releasing jobs"))
    await all_.send_event(who, JobReleased(0.0, job_id), "release", job_id)
    return await show(job_id, who, all_)


async def _changeable(all_: Services, who: Identity, job_id: str, what: str) -> Any:
    return await all_.read(lambda connection: changeable_job(connection, who, job_id, what))


def _refuse_ended(row: Any) -> None:
    if row.state in ENDED:
        raise Refused(409, f"job {row.id} has ended: {row.state}", remedy="submit it again")
