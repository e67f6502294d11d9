"""Fairness and efficiency over time: rho by tenant and app, GPU-hours by type, prices, what was held and used."""

from __future__ import annotations

import time
from typing import Annotated, Any

from fastapi import APIRouter, Query
from sqlalchemy import Connection

from horae.service.api.database import LogClock, clock
from horae.service.api.fairness import efficiency, fairness_points, gpu_hours_rows, pool_prices
from horae.service.api.routes.cluster import visible_pools
from horae.service.api.routes.jobs import All, Moment, Text, Who
from horae.service.fairness_models import Efficiency, FairnessPoint, GpuHoursRow, PoolPrices

router = APIRouter(tags=["accounts"])
DAY, WEEK = 86_400.0, 7 * 86_400.0
JOBS_MAX = 1000
PRICES_SECONDS = 1.0  # how long the scheduler may take to tell them


def _log_time(unix: float | None, default_seconds: float, now: LogClock) -> float:
    return now.log(time.time() - default_seconds if unix is None else unix)


@router.get("/share/history")
async def share_history(who: Who, all_: All, tenant: Text = None, since: Moment = None) -> list[FairnessPoint]:
    """How tenants were treated since a moment (a day ago); with `tenant`, that one and its oldest apps."""

    def query(connection: Connection) -> list[FairnessPoint]:
        now = clock(connection)
        return fairness_points(connection, who, tenant, _log_time(since, DAY, now), now)

    return await all_.read(query)


@router.get("/gpus/hours")
async def gpu_hours(who: Who, all_: All, since: Moment = None) -> list[GpuHoursRow]:
    """GPU-hours that were held, idle and unusable, by type and hour, since a moment (a day ago)."""

    def query(connection: Connection) -> list[GpuHoursRow]:
        now = clock(connection)
        return gpu_hours_rows(connection, who, _log_time(since, DAY, now), now)

    return await all_.read(query)


@router.get("/prices")
async def prices(who: Who, all_: All) -> list[PoolPrices]:
    """By pool: what one more GPU of each type would add to the value of its policy's program; none if unknown."""
    known = await all_.read(all_.setups.read)
    visible = [pool.name for pool in visible_pools(known.setup.pools, who)]
    answer: dict[str, Any] = await all_.loop.ask_if_quick({"prices": True}, PRICES_SECONDS)
    told = answer.get("prices")
    now = await all_.read(clock)
    return pool_prices(told if isinstance(told, list) else (), visible, now)


@router.get("/efficiency")
async def show_efficiency(
    who: Who,
    all_: All,
    since: Moment = None,
    limit: Annotated[int, Query(ge=1, le=JOBS_MAX, description="jobs that are listed")] = 100,
) -> Efficiency:
    """GPUs held and used: jobs that have not ended, and those that ended since (a week ago)."""

    def query(connection: Connection) -> Efficiency:
        now = clock(connection)
        return efficiency(connection, who, _log_time(since, WEEK, now), limit, now)

    return await all_.read(query)
