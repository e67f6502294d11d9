"""What was used: apps, ended jobs, usage by month, and how fairly apps and tenants were treated."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Query, Response
from sqlalchemy import Connection, func, select

from horae.service.api.accounting import ShareKind, UsageFilter, share_rows, usage_rows
from horae.service.api.database import clock
from horae.service.api.identity import Identity
from horae.service.api.job_queries import Sort
from horae.service.api.job_views import ON_GPUS
from horae.service.api.problems import Refused
from horae.service.api.routes.jobs import All, Cursor, Limit, Moment, Text, Wanted, Who, job_page
from horae.service.api.services import Services
from horae.service.api.trials import trial_views
from horae.service.models import ENDED, AppPage, AppView, Page, ShareRow, TrialView, UsageRow
from horae.service.store.schema import jobs

router = APIRouter(tags=["accounts"])
WEEK = 7 * 86_400.0
Column = Literal["month", "tenant", "user", "gpu_type", "kind"]
_CELL_STARTS = ("=", "+", "-", "@", "\t", "\r")  # which spreadsheets take for formulas


@router.get("/apps")
async def list_apps(
    who: Who,
    all_: All,
    tenant: Text = None,
    cursor: Cursor = None,
    limit: Limit = 100,
) -> AppPage:
    """Apps in the order of their names, with their jobs counted by state."""
    return await all_.read(lambda connection: _apps(connection, who, tenant, cursor, limit))


def _apps(connection: Connection, who: Identity, tenant: str | None, cursor: str | None, limit: int) -> AppPage:
    table = jobs.c
    conditions = [] if who.sees_all else [table.tenant == who.tenant]
    conditions += [] if tenant is None else [table.tenant == tenant]
    conditions += [] if cursor is None else [table.app > cursor]
    names = select(table.app).where(*conditions).distinct().order_by(table.app).limit(limit + 1)
    found = list(connection.scalars(names))
    chosen = found[:limit]
    sums = func.count(), func.sum(table.held_gpus), func.sum(table.gpu_seconds), func.max(table.rho)
    query = select(table.app, table.tenant, table.state, *sums).where(table.app.in_(chosen), *conditions)
    views: dict[tuple[str, str], AppView] = {}
    for app, owner, state, count, held, used, rho in connection.execute(
        query.group_by(*list(query.selected_columns)[:3])
    ):
        empty = AppView(name=app, tenant=owner, jobs=0, states={}, running_gpus=0, gpu_hours=0.0, rho_max=None)
        view = views.setdefault((app, owner), empty)
        view.jobs += count
        view.states[state] = count
        view.running_gpus += held
        view.gpu_hours += used / 3600
        view.rho_max = max((value for value in (view.rho_max, rho) if value is not None), default=None)
    items = [views[key] for key in sorted(views)]
    return AppPage(items=items, next=chosen[-1] if len(found) > limit else None)


@router.get("/trials")
async def list_trials(app: Annotated[str, Query(min_length=1, max_length=500)], who: Who, all_: All) -> list[TrialView]:
    """The jobs of one app as trials: parameters, losses, and which of them were stopped and why."""
    found = await all_.read(lambda connection: trial_views(connection, who, app, clock(connection)))
    if not found:
        raise Refused(404, "there is no such app", field="app", remedy="list them with GET /v1/apps")
    return found


@router.get("/history")
async def history(
    who: Who,
    all_: All,
    wanted: Wanted,
    sort: Sort = "-ended_at",
    cursor: Cursor = None,
    limit: Limit = 100,
) -> Page:
    """Jobs that have ended, the last one first."""
    states: list[Any] = [each for each in wanted.state or ENDED if each in ENDED]
    return await job_page(all_, who, wanted._replace(state=states or ["none"]), sort, cursor, limit)


@router.get("/usage", responses={200: {"content": {"text/csv": {"schema": {"type": "string"}}}}}, response_model=None)
async def usage(
    who: Who,
    all_: All,
    by: Annotated[list[Column] | None, Query()] = None,
    month: Annotated[str | None, Query(pattern=r"^\d{4}-\d{2}$")] = None,
    tenant: Text = None,
    accept: Annotated[str, Header()] = "",
) -> list[UsageRow] | Response:
    """GPU-hours by month, tenant, user, GPU type and kind, or summed up by some of these.

    `Accept: text/csv` gives a table for spreadsheets.
    """
    wanted = UsageFilter(tuple(dict.fromkeys(by or ())), month, tenant)

    def query(connection: Connection) -> list[UsageRow]:
        return usage_rows(connection, who, wanted, all_.setups.find(connection), clock(connection))

    rows = await all_.read(query)
    if "text/csv" not in accept:
        return rows
    return Response(_csv(rows), media_type="text/csv; charset=utf-8")


def _csv(rows: list[UsageRow]) -> str:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(UsageRow.model_fields)
    for row in rows:
        cells = [getattr(row, name) for name in UsageRow.model_fields]
        writer.writerow(
            [f"'{cell}" if isinstance(cell, str) and cell.startswith(_CELL_STARTS) else cell for cell in cells]
        )
    return text.getvalue()


@router.get("/share")
async def share(
    who: Who,
    all_: All,
    by: ShareKind = "tenant",
    since: Moment = None,
) -> list[ShareRow]:
    """How apps or tenants were treated: jobs that have not ended, and those that ended since (a week ago)."""
    return (await shares(who, all_, (by,), since))[by]


async def shares(
    who: Identity, all_: Services, kinds: Sequence[ShareKind], since: float | None
) -> dict[ShareKind, list[ShareRow]]:
    """What `share` answers, of several kinds at once: jobs are read, and the scheduler is asked, once for all."""
    begin = time.time() - WEEK if since is None else since
    query = select(jobs.c.id).where(jobs.c.state.in_(ON_GPUS))
    query = query if who.sees_all else query.where(jobs.c.tenant == who.tenant)
    ids = await all_.read(lambda connection: list(connection.scalars(query.limit(5000))))
    answer = await all_.loop.ask_if_quick({"rho": ids}) if ids else {}
    told = answer.get("rho")
    rho = (
        {job: value for job, value in told.items() if isinstance(value, int | float)} if isinstance(told, dict) else {}
    )
    return await all_.read(lambda c: share_rows(c, who, kinds, begin, rho, all_.setups.find(c), clock(c)))
