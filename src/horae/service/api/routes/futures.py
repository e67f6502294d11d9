"""Questions about the future: when a job starts and ends, and what a new one would delay."""

from __future__ import annotations

import json
from collections.abc import Collection
from math import isfinite
from typing import Annotated, Any

from anyio import to_thread
from fastapi import APIRouter, Query

from horae.service.api.database import LogClock, clock
from horae.service.api.identity import Identity
from horae.service.api.job_queries import find_job
from horae.service.api.loop_client import LoopAway
from horae.service.api.masking import OTHER, visible_ids
from horae.service.api.problems import Refused
from horae.service.api.routes.jobs import All, JobId, Who, check_submission
from horae.service.api.services import Services
from horae.service.loop.futures import past_jobs
from horae.service.models import ENDED, DelayView, EtaView, JobSpec, MomentView, PlanView

router = APIRouter(tags=["futures"])
SECONDS, DRAWS = 2.0, 20
SLACK_SECONDS = 10.0  # for the copy of the loop to begin, and to sum up
NEW = "new"
Budget = Annotated[float, Query(ge=0.1, le=60, description="time budget of the answer, in seconds")]
Draws = Annotated[int, Query(ge=1, le=200, description="possible futures that are looked at")]


@router.get("/jobs/{job_id}/eta")
async def eta(job_id: JobId, who: Who, all_: All, seconds: Budget = SECONDS, draws: Draws = DRAWS) -> EtaView:
    """When a job starts and ends: the scheduler's state is run forward, with lengths drawn where they are not known."""
    row, now = await all_.read(lambda connection: (find_job(connection, who, job_id), clock(connection)))
    if row.state in ENDED:
        raise Refused(409, f"job {row.id} has ended: {row.state}", remedy="ask about a job that has not")
    found = (await _ask(all_, {"eta": job_id, "seconds": seconds, "draws": draws}, seconds))["eta"]
    return EtaView(
        job_id=job_id,
        asked_at=now.unix(found["asked_at"]),
        starts=_moment(found.get("starts"), now),
        ends=_moment(found["ends"], now) or MomentView(median=None, low=None, high=None),
        draws=found["draws"],
        cut_off=found["cut_off"],
        estimated=found.get("estimated", 0),
    )


@router.post("/plan")
async def plan(body: JobSpec, who: Who, all_: All, seconds: Budget = SECONDS, draws: Draws = DRAWS) -> PlanView:
    """What would happen if this job were submitted now: nothing is submitted."""
    submission, now = await to_thread.run_sync(check_submission, all_, who, [body])
    job = json.loads("{" + submission.groups[0][0].event) | {"id": NEW}
    answer = await _ask(all_, {"plan": job, "seconds": seconds, "draws": draws}, 2 * seconds)
    if "refused" in answer:
        return PlanView(
            fits=False, refusal=str(answer["refused"]), asked_at=now.unix(now.now), starts=None, ends=None, shapes=[],
            delays=[], draws=0, cut_off=0,
        )  # fmt: skip
    found = answer["plan"]
    delays = await _delays(all_, who, found.get("delays", []))
    return PlanView(
        fits=True,
        refusal="",
        asked_at=now.unix(found["asked_at"]),
        starts=_moment(found["starts"], now),
        ends=_moment(found["ends"], now),
        shapes=list(found.get("shapes", [])),
        delays=delays,
        draws=found["draws"],
        cut_off=found["cut_off"],
    )


async def _ask(all_: Services, question: dict[str, Any], seconds: float) -> dict[str, Any]:
    past = await all_.read(past_jobs)
    try:
        answer = await all_.loop.ask({**question, "past": past}, seconds + SLACK_SECONDS)
    except LoopAway:
        raise Refused(503, "the scheduler does not answer", remedy="try again", headers={"Retry-After": "2"}) from None
    problem = str(answer.get("problem", ""))
    if problem == "busy":
        raise Refused(
            503, "other questions are being answered", remedy="try again shortly", headers={"Retry-After": "2"}
        )
    if problem:
        raise Refused(409, problem)
    if not {"eta", "plan", "refused"} & answer.keys():
        raise Refused(503, "the scheduler gave no answer", remedy="try again", headers={"Retry-After": "2"})
    return answer


async def _delays(all_: Services, who: Identity, found: list[dict[str, Any]]) -> list[DelayView]:
    """Delays of jobs that the requester may see by name; of others, their largest delay."""
    named = [each["job_id"] for each in found]
    visible: Collection[str] = named if who.sees_all else await all_.read(lambda c: visible_ids(c, who, named))
    shown = [DelayView(**each) for each in found if each["job_id"] in visible]
    hidden = [each["seconds"] for each in found if each["job_id"] not in visible]
    return shown + ([DelayView(job_id=OTHER, seconds=max(hidden))] if hidden else [])


def _moment(plain: dict[str, Any] | None, now: LogClock) -> MomentView | None:
    if plain is None:
        return None
    values = {name: float(plain[name]) for name in ("median", "low", "high")}
    return MomentView(**{name: now.unix(value) if isfinite(value) else None for name, value in values.items()})
