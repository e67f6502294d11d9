"""Every GPU with its node and its job, as far as the requester may see it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, select

from horae.model.cluster import Node
from horae.model.setup import Setup
from horae.service.api.database import LogClock, clock
from horae.service.api.identity import Identity
from horae.service.api.job_views import ON_GPUS
from horae.service.api.masking import OTHER
from horae.service.gpu_map_models import GpuMap, JobColumns, NodeColumns
from horae.service.store.schema import gpus, jobs, nodes

_COLUMNS = ("id", "name", "tenant", "app", "user", "state", "guaranteed", "held_gpus", "places", "started_at")


def read_gpu_map(connection: Connection, who: Identity, setup: Setup) -> GpuMap:
    """All GPUs at one moment; `rho` is empty, because only the scheduler knows it."""
    now, order = clock(connection), setup.cluster.nodes
    first, count = _first_gpus(order)
    holding = select(*(jobs.c[name] for name in _COLUMNS)).where(jobs.c.state.in_(ON_GPUS), jobs.c.held_gpus > 0)
    rows = connection.execute(holding.order_by(jobs.c.number, jobs.c.id)).all()
    seen = [row for row in rows if who.sees(row.tenant)]
    place_of = {row.id: place for place, row in enumerate(seen)}
    holder, second = [-1] * count, {}
    for row in rows:
        place = place_of.get(row.id, len(seen))
        for gpu in _numbers(row.places.split(), first, count):
            if holder[gpu] < 0:
                holder[gpu] = place
            else:
                second[gpu] = place
    return GpuMap.model_construct(
        cluster=setup.cluster.name,
        nodes=_node_columns(order, {row.name: row for row in connection.execute(select(nodes))}),
        jobs=_job_columns(seen, _reserving(setup), now, len(rows) > len(seen)),
        holder=holder,
        second=second,
        unusable=_unusable(connection, who, first, count),
    )


def _first_gpus(order: Sequence[Node]) -> tuple[dict[str, int], int]:
    first, count = {}, 0
    for node in order:
        first[node.name] = count
        count += node.gpus
    return first, count


def _numbers(places: Sequence[str], first: Mapping[str, int], count: int) -> list[int]:
    """The GPUs with these names; a node that has just been removed has none."""
    found = []
    for place in places:
        node, _, number = place.rpartition("/")
        gpu = first.get(node, count) + int(number)
        if gpu < count:
            found.append(gpu)
    return found


def _node_columns(order: Sequence[Node], rows: Mapping[str, Any]) -> NodeColumns:
    inside = [node.levels[-1] if node.levels else ("", 0) for node in order]
    groups = [node.groups[0] if node.groups else ("", "") for node in order]
    known = [rows.get(node.name) for node in order]
    return NodeColumns.model_construct(
        name=[node.name for node in order],
        gpu_type=[node.accelerator for node in order],
        gpus=[node.gpus for node in order],
        group=[name if name.startswith(level) else f"{level} {name}" for level, name in groups],
        inside=[size for _, size in inside],
        inside_level=[level for level, _ in inside],
        health=["healthy" if row is None else row.health for row in known],
        reason=["" if row is None else row.reason for row in known],
    )


def _job_columns(rows: Sequence[Any], reserving: frozenset[str], now: LogClock, has_others: bool) -> JobColumns:
    columns: tuple[Sequence[Any], ...] = tuple(zip(*rows, strict=True)) if rows else ((),) * len(_COLUMNS)
    of = dict(zip(_COLUMNS, columns, strict=True))  # ten thousand rows at once: reading each field takes much longer
    uses = zip(of["guaranteed"], of["tenant"], strict=True)
    kinds = ["guaranteed" if own else "borrowed" if tenant in reserving else "shared" for own, tenant in uses]
    other = [""] if has_others else []
    texts: dict[str, Any] = {name: [*of[name], *other] for name in ("name", "tenant", "app", "user", "state")}
    return JobColumns.model_construct(
        id=[*of["id"], *(OTHER for _ in other)],
        **texts,
        kind=kinds + ["other" for _ in other],
        gpus=[*of["held_gpus"], *(0 for _ in other)],
        started_at=[*map(now.unix_or_none, of["started_at"]), *(None for _ in other)],
        rho=[],
    )


def _unusable(connection: Connection, who: Identity, first: Mapping[str, int], count: int) -> dict[int, str]:
    found = {}
    for row in connection.execute(select(gpus)):
        for gpu in _numbers([row.gpu], first, count):
            found[gpu] = f"{row.state}: {row.note}" if row.note and who.sees_all else row.state  # notes name users
    return found


def _reserving(setup: Setup) -> frozenset[str]:
    return frozenset(tenant for pool in setup.pools if pool.reserves for tenant in pool.tenants)
