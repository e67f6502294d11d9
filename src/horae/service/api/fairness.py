"""How tenants were treated over time, and what was held and used, from the tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, and_, case, func, or_, select, true

from horae.service.api.database import LogClock
from horae.service.api.identity import Identity
from horae.service.api.job_views import ON_GPUS
from horae.service.fairness_models import (
    Efficiency,
    FairnessPoint,
    GpuHoursRow,
    PoolPrices,
    SpeedRow,
    TypePrice,
    TypeUse,
    UsedRow,
)
from horae.service.models import LIVE
from horae.service.store.schema import fairness, gpu_hours, gpus, jobs, nodes, progress, speeds

HOUR = 3600.0
POINTS = 300  # per line, about
SPEEDS_SHOWN = 1000


def fairness_points(
    connection: Connection, who: Identity, tenant: str | None, since: float, clock: LogClock
) -> list[FairnessPoint]:
    """The points since a time of the log, thinned: of all tenants, or of one tenant and its apps."""
    conditions = [fairness.c.at > since]
    conditions += [] if who.sees_all else [fairness.c.tenant == who.tenant]
    conditions += [fairness.c.app == ""] if tenant is None else [fairness.c.tenant == tenant]
    kept: dict[tuple[str, str], FairnessPoint] = {}
    waited: Counter[tuple[str, str]] = Counter()  # by points that are left out
    found = []
    rows = connection.execute(select(fairness).where(*conditions).order_by(fairness.c.at, fairness.c.app)).all()
    step = (rows[-1].at - rows[0].at) / POINTS if rows else 0.0
    for row in rows:
        key, at = (row.tenant, row.app), clock.unix(row.at)
        last = kept.get(key)
        waited[key] += row.own_wait_seconds
        is_end = row.rho is None or (last is not None and last.rho_mean is None)  # where a line is interrupted
        if last is not None and at < last.at + step and not is_end:
            continue
        kept[key] = point = FairnessPoint.model_construct(
            at=at, tenant=row.tenant, app=row.app, rho_mean=row.rho, rho_max=row.rho_max, gpus=row.gpus,
            guaranteed_gpus=row.guaranteed_gpus, waiting_jobs=row.waiting_jobs,
            waited_for_own_cells_seconds=waited.pop(key),
        )  # fmt: skip
        found.append(point)
    return found


def gpu_hours_rows(connection: Connection, who: Identity, since: float, clock: LogClock) -> list[GpuHoursRow]:
    """GPU-hours by hour and type. They name no tenant; what jobs did not use is for those who may see all of them."""
    query = select(gpu_hours).where(gpu_hours.c.at > since - HOUR).order_by(gpu_hours.c.at, gpu_hours.c.gpu_type)
    return [
        GpuHoursRow(
            at=clock.unix(row.at),
            gpu_type=row.gpu_type,
            held=row.held / HOUR,
            idle=row.idle / HOUR,
            unusable=row.unusable / HOUR,
            unused=row.unused / HOUR if who.sees_all and row.unused is not None else None,
        )
        for row in connection.execute(query)
    ]


def pool_prices(told: Iterable[Mapping[str, Any]], visible: Iterable[str], clock: LogClock) -> list[PoolPrices]:
    """The loop's answer, of these pools."""
    wanted = set(visible)
    return [
        PoolPrices(
            pool=each["pool"],
            policy=each["policy"],
            decided_at=clock.unix_or_none(each.get("decided_at")),
            objective=each.get("objective", ""),
            value=each.get("value"),
            bound=each.get("bound"),
            types=[TypePrice(gpu_type=name, price=price, is_full=full) for name, price, full in each.get("prices", ())],
        )
        for each in told
        if each["pool"] in wanted
    ]


def efficiency(connection: Connection, who: Identity, since: float, limit: int, clock: LogClock) -> Efficiency:
    """Jobs that have not ended, or ended after a time of the log."""
    its: ColumnElement[bool] = true() if who.sees_all else jobs.c.tenant == who.tenant
    held = _held(clock)
    recent = its & (held > 0) & or_(jobs.c.state.in_(LIVE), jobs.c.ended_at >= since)
    count = connection.scalar(select(func.count()).select_from(jobs).where(recent)) or 0
    query = _used_jobs(held).where(recent).order_by(held.desc(), jobs.c.number).limit(limit)
    found = [_used_job(row) for row in connection.execute(query)]
    return Efficiency(
        types=_types(connection, its),
        tenants=_tenants(connection, held, recent),
        jobs=found,
        more_jobs=count - len(found),
        speeds=_speeds(connection, who),
    )


def _held(clock: LogClock) -> ColumnElement[float]:
    """GPU-seconds of a job, those of its present lease included."""
    is_running = jobs.c.started_at.is_not(None) & (jobs.c.started_at < clock.now)
    running = case((is_running, (clock.now - jobs.c.started_at) * jobs.c.held_gpus), else_=0.0)
    return jobs.c.gpu_seconds + running


def _used_jobs(held: ColumnElement[float]) -> Select[Any]:
    is_current = and_(progress.c.job_id == jobs.c.id, progress.c.epoch == jobs.c.epoch)
    names = ("id", "name", "tenant", "user", "state", "held_type", "gpu_type", "held_gpus", "unused_gpu_seconds")
    columns = [jobs.c[name] for name in names]
    reported = progress.c.steps_per_second
    return select(*columns, held.label("held"), reported).select_from(jobs.outerjoin(progress, is_current))


def _used_job(row: Any) -> UsedRow:
    is_known = row.unused_gpu_seconds is not None
    return UsedRow(
        job_id=row.id,
        name=row.name,
        tenant=row.tenant,
        user=row.user,
        state=row.state,
        gpu_type=row.held_type or row.gpu_type,
        held_gpus=row.held_gpus,
        gpu_hours=row.held / HOUR,
        measured_gpu_hours=row.held / HOUR if is_known else 0.0,
        used_gpu_hours=max(row.held - row.unused_gpu_seconds, 0.0) / HOUR if is_known else None,
        steps_per_second=row.steps_per_second,
    )


def _tenants(connection: Connection, held: ColumnElement[float], recent: ColumnElement[bool]) -> list[UsedRow]:
    unused = jobs.c.unused_gpu_seconds
    measured = func.sum(case((unused.is_not(None), held), else_=0.0))
    sums = func.sum(jobs.c.held_gpus), func.sum(held), measured, func.sum(unused)
    query = select(jobs.c.tenant, *sums).where(recent).group_by(jobs.c.tenant).order_by(jobs.c.tenant)
    return [
        UsedRow(
            job_id="",
            name=tenant,
            tenant=tenant,
            user="",
            state="",
            gpu_type="",
            held_gpus=int(gpus_),
            gpu_hours=hours / HOUR,
            measured_gpu_hours=known / HOUR,
            used_gpu_hours=None if left is None else max(known - left, 0.0) / HOUR,
            steps_per_second=None,
        )
        for tenant, gpus_, hours, known, left in connection.execute(query)
    ]


def _types(connection: Connection, its: ColumnElement[bool]) -> list[TypeUse]:
    """The GPUs of each type: two jobs on one GPU hold it once; GPUs in use are not counted as unusable."""
    speed = func.sum(progress.c.steps_per_second)
    reporting = jobs.outerjoin(progress, and_(progress.c.job_id == jobs.c.id, progress.c.epoch == jobs.c.epoch))
    count = select(jobs.c.held_type, func.count(), speed).select_from(reporting).group_by(jobs.c.held_type)
    running = {
        row[0]: row[1:] for row in connection.execute(count.where(its, jobs.c.state.in_(ON_GPUS), jobs.c.held_gpus > 0))
    }
    holding = select(jobs.c.places).where(jobs.c.state.in_(ON_GPUS), jobs.c.held_gpus > 0)
    used = {place for places in connection.scalars(holding) for place in places.split()}
    broken = set(connection.scalars(select(gpus.c.gpu))) - used
    total, held, unusable = Counter[str](), Counter[str](), Counter[str]()
    used_on, broken_on = (Counter(each.rpartition("/")[0] for each in places) for places in (used, broken))
    for node in connection.execute(select(nodes).order_by(nodes.c.position)):
        total[node.gpu_type] += node.gpus
        held[node.gpu_type] += used_on[node.name]
        out = broken_on[node.name] if node.health == "healthy" else node.gpus - used_on[node.name]
        unusable[node.gpu_type] += out
    return [
        TypeUse(
            gpu_type=each,
            gpus=total[each],
            held=held[each],
            unusable=unusable[each],
            running_jobs=running.get(each, (0, None))[0],
            steps_per_second=running.get(each, (0, None))[1],
        )
        for each in total
    ]


def _speeds(connection: Connection, who: Identity) -> list[SpeedRow]:
    query = select(speeds) if who.sees_all else select(speeds).where(speeds.c.tenant == who.tenant)
    names = tuple(SpeedRow.model_fields)
    latest = query.order_by(speeds.c.wall.desc(), *(speeds.c[name] for name in names[:4])).limit(SPEEDS_SHOWN)
    return [SpeedRow(**{name: getattr(row, name) for name in names}) for row in connection.execute(latest)]
