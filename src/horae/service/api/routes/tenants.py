"""Tenants: their weights, limits and reservations. A tenant's users see their own tenant only."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Response
from sqlalchemy import Connection, case, func, select

from horae.model.events import TenantChange as Change
from horae.model.events import TenantsChanged
from horae.model.setup import PoolSpec, Setup
from horae.service.api.identity import Identity, require
from horae.service.api.problems import Refused, no_such
from horae.service.api.routes.cluster import answered
from horae.service.api.routes.jobs import All, Who
from horae.service.models import Done, Reservation, Reservations, TenantChange, TenantView
from horae.service.store.schema import jobs, notices, tenants

router = APIRouter(tags=["tenants"])
Name = Annotated[str, Path(min_length=1, max_length=200)]
_PENDING = ("submitted", "waiting", "pending", "holding", "suspended")


@router.get("/tenants")
async def list_tenants(who: Who, all_: All) -> list[TenantView]:
    def query(connection: Connection) -> list[TenantView]:
        known = all_.setups.find(connection)
        return _views(connection, who, known.setup if known else None)

    return await all_.read(query)


def _views(connection: Connection, who: Identity, setup: Setup | None) -> list[TenantView]:
    table = jobs.c
    held, pending = func.sum(table.held_gpus), func.sum(case((table.state.in_(_PENDING), 1), else_=0))
    guaranteed = func.sum(case((table.guaranteed, table.held_gpus), else_=0))
    running = func.sum(case((table.held_gpus > 0, 1), else_=0))
    live = table.state.in_((*_PENDING, "starting", "running", "stopping", "cancelling"))
    rows = connection.execute(
        select(table.tenant, held, guaranteed, pending, running).where(live).group_by(table.tenant)
    )
    counts = {row[0]: [int(value or 0) for value in row[1:]] for row in rows}
    weights = {row.name: row.weight for row in connection.execute(select(tenants))}
    pools = () if setup is None else setup.pools
    if setup is not None:
        weights = {tenant: 1.0 for pool in pools for tenant in pool.tenants} | weights | dict(setup.tenant_weights)
    names = sorted({*weights, *counts})
    views = [_view(name, weights.get(name, 1.0), pool_of(pools, name), counts) for name in names if who.sees(name)]
    waiting = select(notices.c.tenant, func.count()).where(notices.c.delivered_at.is_(None)).group_by(notices.c.tenant)
    undelivered = {row[0]: int(row[1]) for row in connection.execute(waiting)}
    return [each.model_copy(update={"undelivered_notices": undelivered.get(each.name, 0)}) for each in views]


def _view(name: str, weight: float, pool: PoolSpec | None, counts: dict[str, list[int]]) -> TenantView:
    held, guaranteed, pending, running = counts.get(name, [0, 0, 0, 0])
    is_own = pool is not None and name in pool.tenants
    return TenantView(
        name=name,
        weight=weight,
        cells=dict(pool.cells) if pool is not None and is_own else {},
        quota=dict(pool.quota) if pool is not None and is_own else {},
        policy=pool.policy if pool is not None else "",
        running_gpus=held,
        guaranteed_gpus=guaranteed,
        pending_jobs=pending,
        running_jobs=running,
    )


def pool_of(pools: tuple[PoolSpec, ...], tenant: str) -> PoolSpec | None:
    """The tenant's own pool, or the one for all tenants without one."""
    own = next((pool for pool in pools if tenant in pool.tenants), None)
    return own or next((pool for pool in pools if not pool.tenants), None)


@router.patch("/tenants/{name}")
async def change_tenant(name: Name, body: TenantChange, who: Who, all_: All, response: Response) -> Done:
    """Change a tenant's weight, cells or quota. No job is stopped."""
    require(who, "operator", "changing tenants")
    known = await all_.read(all_.setups.read)
    views = await all_.read(lambda connection: _views(connection, who, known.setup))
    if name not in [view.name for view in views]:
        raise no_such("tenant", name)
    change = Change(body.cells, body.weight, body.quota)
    if change == Change():
        raise Refused(422, "the request changes nothing", remedy="give weight, cells or quota")
    event = TenantsChanged(0.0, {name: change})
    number = await all_.send_event(who, event, "tenant", name, body.model_dump_json(exclude_none=True))
    return await answered(all_, number, response)


@router.get("/reservations")
async def list_reservations(who: Who, all_: All) -> list[Reservation]:
    """The cells that tenants reserve."""
    known = await all_.read(all_.setups.read)
    return [
        Reservation(tenant=tenant, pool=pool.name, cells=dict(pool.cells), pinned=dict(pool.pinned))
        for pool in known.setup.pools
        for tenant in pool.tenants
        if pool.reserves and who.sees(tenant)
    ]


@router.put("/reservations")
async def set_reservations(body: Reservations, who: Who, all_: All, response: Response) -> Done:
    """Replace the reserved cells of the tenants that are named, all or none. No job is stopped."""
    require(who, "operator", "changing reservations")
    if not body.tenants:
        raise Refused(422, "names no tenant", field="tenants", remedy="give cells by tenant")
    known = await all_.read(all_.setups.read)
    changes: dict[str, Any] = {}
    for tenant, cells in body.tenants.items():
        pool = next((each for each in known.setup.pools if tenant in each.tenants), None)
        if pool is None:
            raise no_such("tenant", tenant)
        changes[tenant] = Change({**dict.fromkeys(pool.cells, 0), **cells})
    event = TenantsChanged(0.0, changes)
    number = await all_.send_event(who, event, "reservations", ", ".join(changes), body.model_dump_json())
    return await answered(all_, number, response)
