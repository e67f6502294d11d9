"""GPU-hours by month and owner, and shares of apps and tenants, from the tables."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

from sqlalchemy import Connection, func, or_, select

from horae.service.api.database import LogClock
from horae.service.api.identity import Identity
from horae.service.api.job_views import ON_GPUS
from horae.service.api.setup_reader import Known
from horae.service.models import LIVE, ShareRow, UsageRow
from horae.service.store.schema import jobs, tenants, usage

COLUMNS = ("month", "tenant", "user", "gpu_type", "kind")
HOUR = 3600.0
ShareKind: TypeAlias = Literal["tenant", "app"]


class UsageFilter(NamedTuple):
    by: tuple[str, ...] = ()  # none: all columns
    month: str | None = None
    tenant: str | None = None


def usage_rows(
    connection: Connection, who: Identity, wanted: UsageFilter, known: Known | None, clock: LogClock
) -> list[UsageRow]:
    """GPU-hours of leases that have ended, and of those that run, which count for the present month."""
    totals: dict[tuple[str, ...], list[float]] = defaultdict(lambda: [0.0, 0, 0.0])
    query = select(usage) if who.sees_all else select(usage).where(usage.c.tenant == who.tenant)
    rows = [dict(row) for row in connection.execute(query).mappings()] + _running(connection, who, known, clock)
    for row in rows:
        if wanted.month not in (None, row["month"]) or wanted.tenant not in (None, row["tenant"]):
            continue
        key = tuple(row[name] if not wanted.by or name in wanted.by else "" for name in COLUMNS)
        totals[key][0] += row["gpu_seconds"] / HOUR
        totals[key][1] += row["jobs"]
        totals[key][2] += row["idle_seconds"] / HOUR
    return [
        UsageRow(**dict(zip(COLUMNS, key, strict=True)), gpu_hours=hours, jobs=int(count), idle_gpu_hours=idle)
        for key, (hours, count, idle) in sorted(totals.items())
    ]


def _running(connection: Connection, who: Identity, known: Known | None, clock: LogClock) -> list[dict[str, Any]]:
    table = jobs.c
    columns = table.tenant, table.user, table.held_type, table.held_gpus, table.guaranteed, table.started_at
    query = select(*columns).where(table.state.in_(ON_GPUS), table.started_at.is_not(None))
    query = query if who.sees_all else query.where(table.tenant == who.tenant)
    reserving = _reserving(known)
    month, now = time.strftime("%Y-%m"), clock.now
    made = []
    for tenant, user, gpu_type, gpus, guaranteed, started_at in connection.execute(query):
        kind = "guaranteed" if guaranteed else "borrowed" if tenant in reserving else "shared"
        row = {"month": month, "tenant": tenant, "user": user, "gpu_type": gpu_type, "kind": kind}
        made.append({**row, "gpu_seconds": max(0.0, now - started_at) * gpus, "jobs": 1, "idle_seconds": 0.0})
    return made


def _reserving(known: Known | None) -> set[str]:
    """The tenants that reserve cells."""
    return {tenant for pool in known.setup.pools if pool.reserves for tenant in pool.tenants} if known else set()


@dataclass(slots=True)
class _Total:
    jobs: int = 0
    running: int = 0
    finished: int = 0
    gpu_seconds: float = 0.0
    guaranteed_seconds: float = 0.0
    own_wait_seconds: float = 0.0
    rho: list[float] = field(default_factory=list)

    def add(self, row: Any, running_seconds: float, rho: float | None) -> None:
        """Adds a job, with the GPU-seconds of its present lease and its rho, if that is known."""
        self.jobs += 1
        self.running += row.held_gpus > 0
        self.finished += row.state == "finished"
        self.gpu_seconds += row.gpu_seconds + running_seconds
        self.guaranteed_seconds += running_seconds if row.guaranteed else 0.0
        self.own_wait_seconds += row.own_wait_seconds
        self.rho += [] if rho is None else [float(rho)]


def share_rows(
    connection: Connection,
    who: Identity,
    kinds: Sequence[ShareKind],
    since: float,
    live_rho: Mapping[str, float],
    known: Known | None,
    clock: LogClock,
) -> dict[ShareKind, list[ShareRow]]:
    """One row per app or tenant that the requester may see; shares are of what all tenants used."""
    table, now, used_by_all = jobs.c, clock.now, 0.0
    columns = table.id, table.app, table.tenant, table.state, table.gpu_seconds, table.held_gpus, table.started_at
    recent = or_(table.state.in_(LIVE), table.ended_at >= clock.log(since))
    totals: dict[ShareKind, dict[tuple[str, str], _Total]] = {kind: defaultdict(_Total) for kind in kinds}
    for row in connection.execute(select(*columns, table.rho, table.guaranteed, table.own_wait_seconds).where(recent)):
        running = max(0.0, now - row.started_at) * row.held_gpus if row.started_at is not None else 0.0
        used_by_all += row.gpu_seconds + running
        if who.sees(row.tenant):
            for kind in kinds:
                name = row.tenant if kind == "tenant" else row.app
                totals[kind][name, row.tenant].add(row, running, live_rho.get(row.id, row.rho))
    if "tenant" in totals:
        _add_guaranteed(connection, totals["tenant"])
    weights = _weights(connection, known, {tenant for each in totals.values() for _, tenant in each})
    return {kind: _share_rows(each, used_by_all, weights, _reserving(known)) for kind, each in totals.items()}


def _share_rows(
    totals: Mapping[tuple[str, str], _Total],
    used_by_all: float,
    weights: Mapping[str, float],
    reserving: Collection[str],
) -> list[ShareRow]:
    return [
        ShareRow(
            name=name,
            tenant=tenant,
            jobs=total.jobs,
            running=total.running,
            finished=total.finished,
            gpu_hours=total.gpu_seconds / HOUR,
            share=total.gpu_seconds / used_by_all if used_by_all else 0.0,
            weight_share=weights.get(tenant, 1.0) / sum(weights.values()),
            rho_mean=sum(total.rho) / len(total.rho) if total.rho else None,
            rho_max=max(total.rho, default=None),
            guaranteed_gpu_hours=total.guaranteed_seconds / HOUR,
            waited_for_own_cells_seconds=total.own_wait_seconds if tenant in reserving else None,
        )
        for (name, tenant), total in sorted(totals.items())
    ]


def _weights(connection: Connection, known: Known | None, present: set[str]) -> dict[str, float]:
    weights = dict.fromkeys(present, 1.0)
    weights |= {row.name: row.weight for row in connection.execute(select(tenants.c.name, tenants.c.weight))}
    if known is not None:
        weights |= dict(known.setup.tenant_weights)
    return weights


def _add_guaranteed(connection: Connection, totals: Mapping[tuple[str, str], _Total]) -> None:
    """Adds what the present month's ended leases used in their tenants' cells."""
    query = select(usage.c.tenant, func.sum(usage.c.gpu_seconds)).where(
        usage.c.kind == "guaranteed", usage.c.month == time.strftime("%Y-%m")
    )
    for tenant, used in connection.execute(query.group_by(usage.c.tenant)):
        if (tenant, tenant) in totals:
            totals[tenant, tenant].guaranteed_seconds += used
