"""Queue: all jobs, sorted and filtered by the store, in pages that stay the same while they are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast, get_args

from sqlalchemy import Connection, func, select

from horae.service.api.identity import Identity
from horae.service.api.job_queries import JobFilter, Sort
from horae.service.api.problems import Refused
from horae.service.api.routes.jobs import job_page
from horae.service.dashboard.page import View
from horae.service.models import ENDED, JobView, State
from horae.service.store.schema import jobs

ROWS = 200
IDS_MAX = 1000
FIELDS = (
    "id", "name", "app", "tenant", "user", "state", "reason", "gpus", "held_gpus", "gpu_type", "guaranteed",
    "submitted_at", "first_started_at", "ended_at", "wait_seconds", "run_seconds", "preemptions", "steps",
    "steps_total", "rho",
)  # fmt: skip
WAITING: tuple[State, ...] = ("submitted", "waiting", "pending", "holding", "suspended")
RUNNING: tuple[State, ...] = ("starting", "running", "stopping", "cancelling")
SHOWN: Mapping[str, Sequence[State] | None] = {
    "live": (*WAITING, *RUNNING),
    "waiting": WAITING,
    "running": RUNNING,
    "ended": [state for state in get_args(State) if state in ENDED],
    "all": None,
}


async def data(view: View) -> dict[str, Any]:
    """One page of jobs; with `ids`, the present values of these, for a page that is open."""
    ids = view.query.get("ids")
    shown, sort = view.query.get("show", "live"), cast(Sort, view.query.get("sort", "number"))
    if shown not in SHOWN:
        raise Refused(422, "is not known", field="show", remedy=f"use one of {', '.join(SHOWN)}")
    if sort not in get_args(Sort):
        raise Refused(422, "is not known", field="sort", remedy=f"use one of {', '.join(get_args(Sort))}")
    wanted = JobFilter(state=_states(shown), text=view.query.get("text", "")[:300] or None)
    if ids is not None:
        wanted = JobFilter(id=ids.split(",")[:IDS_MAX])
    cursor = None if ids is not None else view.query.get("cursor") or None
    page = await job_page(view.all_, view.who, wanted, sort, cursor, ROWS if ids is None else IDS_MAX)
    positions = await _asked(view, "positions", [job.id for job in page.items if job.state in ("pending", "holding")])
    rho = await _asked(view, "rho", [job.id for job in page.items if job.state not in ENDED])
    counts = await view.all_.read(lambda connection: _counts(connection, view.who))
    items = [_row(job, positions, rho) for job in page.items]
    return {"jobs": items, "next": page.next, "counts": counts, "show": shown, "sort": sort, "rows": ROWS}


def _states(shown: str) -> list[State] | None:
    states = SHOWN[shown]
    return None if states is None else list(states)


def _row(job: JobView, positions: Mapping[str, Any], rho: Mapping[str, Any]) -> dict[str, Any]:
    row = {name: getattr(job, name) for name in FIELDS}
    live_rho = rho.get(job.id)
    return {**row, "rho": job.rho if live_rho is None else live_rho, "position": positions.get(job.id)}


async def _asked(view: View, what: str, ids: list[str]) -> Mapping[str, Any]:
    """By job: what only the scheduler knows; nothing where it does not answer quickly."""
    answer = await view.all_.loop.ask_if_quick({what: ids}) if ids else {}
    found = answer.get(what)
    return found if isinstance(found, dict) else {}


def _counts(connection: Connection, who: Identity) -> dict[str, int]:
    """Jobs by state, as far as the requester sees them."""
    query = select(jobs.c.state, func.count()).group_by(jobs.c.state)
    query = query if who.sees_all else query.where(jobs.c.tenant == who.tenant)
    return {state: int(count) for state, count in connection.execute(query)}
