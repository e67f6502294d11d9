"""The cluster: nodes and the leases that run on them, pools and their policies."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any

from anyio import to_thread
from fastapi import APIRouter, Path, Query, Response
from sqlalchemy import Connection, func, select

from horae.model.events import Health, NodeChanged, PolicyChanged
from horae.model.serialization import to_plain
from horae.model.setup import PoolSpec
from horae.service.api.database import clock
from horae.service.api.identity import Identity, require
from horae.service.api.job_queries import PAGE_MAX
from horae.service.api.job_views import lease_view
from horae.service.api.masking import OTHER, ReasonMask
from horae.service.api.problems import Refused, no_such
from horae.service.api.routes.jobs import All, Who
from horae.service.api.services import Services, compact, line, record
from horae.service.api.writer import put_in_inbox
from horae.service.job_file import moment
from horae.service.models import Done, Drain, LeasePage, NodeView, PolicyChoice, PolicyView, PoolView
from horae.service.store.schema import gpus, jobs, leases, nodes

router = APIRouter(tags=["cluster"])
Name = Annotated[str, Path(min_length=1, max_length=200)]
DRAIN_AT = "DrainAt"  # the kind of request with which the loop drains a node at a time, or no longer


# Nodes


@router.get("/nodes")
async def list_nodes(who: Who, all_: All) -> list[NodeView]:
    """All nodes, with the jobs on them; those of other tenants are shown as such."""
    return await all_.read(lambda connection: _nodes(connection, who))


def _nodes(connection: Connection, who: Identity) -> list[NodeView]:
    now = clock(connection)
    holding = connection.execute(select(jobs.c.id, jobs.c.tenant, jobs.c.places).where(jobs.c.held_gpus > 0)).all()
    on_node: dict[str, list[str]] = {}
    used: Counter[str] = Counter()
    for row in holding:
        counts = Counter(place.rpartition("/")[0] for place in row.places.split())
        used.update(counts)
        for node in counts:
            on_node.setdefault(node, []).append(row.id if who.sees(row.tenant) else OTHER)
    unusable: dict[str, dict[str, str]] = {}
    for row in connection.execute(select(gpus)):
        note = f"{row.state}: {row.note}" if row.note and who.sees_all else row.state  # notes name users
        unusable.setdefault(row.gpu.rpartition("/")[0], {})[row.gpu] = note
    views = []
    for row in connection.execute(select(nodes).order_by(nodes.c.position, nodes.c.name)):
        out = unusable.get(row.name, {})
        views.append(
            NodeView(
                name=row.name,
                gpu_type=row.gpu_type,
                gpus=row.gpus,
                free=max(0, row.gpus - used[row.name] - len(out)) if row.health == "healthy" else 0,
                health=row.health,
                reason=row.reason,
                drain_at=now.unix_or_none(row.drain_at),
                jobs=sorted(on_node.get(row.name, [])),
                unusable=out,
            )
        )
    return views


async def _node(all_: Services, name: str) -> Any:
    row = await all_.read(lambda c: c.execute(select(nodes).where(nodes.c.name == name)).first())
    if row is None:
        raise no_such("node", name)
    return row


@router.post("/nodes/{name}/drain")
async def drain(name: Name, body: Drain, who: Who, all_: All, response: Response) -> Done:
    """Let running jobs finish and start no others on a node, at once or at a time."""
    require(who, "operator", "draining nodes")
    await _node(all_, name)
    at_wall = time.time() if body.at is None else moment(body.at, time.time(), "at")
    payload = compact({"node": name, "at_wall": at_wall, "reason": body.reason})
    number = await all_.send(who, DRAIN_AT, payload, "drain", name, f"{body.at or 'now'} {body.reason}".strip())
    return await answered(all_, number, response)


@router.post("/nodes/{name}/resume")
async def resume(name: Name, who: Who, all_: All, response: Response) -> Done:
    """Use a node again, and forget a drain that was planned."""
    require(who, "operator", "resuming nodes")
    row = await _node(all_, name)

    def change(connection: Connection) -> int:
        record(connection, who, "resume", name)
        payload = compact({"node": name, "at_wall": None, "reason": ""})
        number = put_in_inbox(connection, DRAIN_AT, payload, time.time())
        if row.health == "healthy":
            return number
        event = NodeChanged(0.0, name, Health.HEALTHY)
        return put_in_inbox(connection, NodeChanged.__name__, line(event), time.time())

    return await answered(all_, await all_.write(change), response)


async def answered(all_: Services, number: int, response: Response) -> Done:
    """The loop's answer; 202 while there is none."""
    done = await all_.answer(number)
    if not done.applied:
        response.status_code = 202
    return done


# Leases


@router.get("/leases")
async def list_leases(
    who: Who,
    all_: All,
    cursor: Annotated[int | None, Query(ge=0, le=2**62, description="`next` of the page before")] = None,
    limit: Annotated[int, Query(ge=1, le=PAGE_MAX)] = 200,
) -> LeasePage:
    """The leases that run; those of other tenants are counted."""

    def query(connection: Connection) -> LeasePage:
        running = select(leases).join(jobs, jobs.c.id == leases.c.job_id).where(leases.c.ended_at.is_(None))
        mine = running if who.sees_all else running.where(jobs.c.tenant == who.tenant)
        ordered = mine.where(leases.c.epoch >= (cursor or 0)).order_by(leases.c.epoch, leases.c.job_id)
        rows = list(connection.execute(ordered.limit(limit + 2)).all())
        page = _whole_leases(rows, limit)
        others = [0, 0]
        if not who.sees_all:
            counted = select(func.count(), func.coalesce(func.sum(leases.c.gpus), 0))
            joined = counted.select_from(leases.join(jobs, jobs.c.id == leases.c.job_id))
            hidden = joined.where(leases.c.ended_at.is_(None), jobs.c.tenant != who.tenant)
            others = [int(value) for value in connection.execute(hidden).one()]
        mask, now = ReasonMask(connection, who, [row.reason for row in page]), clock(connection)
        items = [lease_view(row, now, mask(row.reason)) for row in page]
        later = str(rows[len(page)].epoch) if len(rows) > len(page) else None
        return LeasePage(items=items, other_leases=others[0], other_gpus=others[1], next=later)

    return await all_.read(query)


def _whole_leases(rows: Sequence[Any], limit: int) -> Sequence[Any]:
    """The rows of a page. Two jobs that share GPUs have one lease and stay on one page, which has one row more where it
    would otherwise be empty."""
    if len(rows) <= limit or rows[limit].epoch != rows[limit - 1].epoch:
        return rows[:limit]
    return rows[: limit - 1] or rows[: limit + 1]


# Pools and policies


def visible_pools(pools: tuple[PoolSpec, ...], who: Identity) -> list[PoolSpec]:
    """The pools that serve the requester's tenant."""
    return [pool for pool in pools if who.sees_all or not pool.tenants or who.tenant in pool.tenants]


@router.get("/pools")
async def list_pools(who: Who, all_: All) -> list[PoolView]:
    known = await all_.read(all_.setups.read)
    return [
        PoolView(
            name=pool.name,
            policy=pool.policy,
            options=dict(pool.options),
            cadence=pool.cadence.value,
            round_seconds=pool.round_seconds,
            tenants=[tenant for tenant in pool.tenants if who.sees(tenant)],
        )
        for pool in visible_pools(known.setup.pools, who)
    ]


@router.put("/pools/{name}/policy")
async def set_policy(name: Name, body: PolicyChoice, who: Who, all_: All, response: Response) -> Done:
    """Change the policy of a pool: operators, and admins of the only tenant that it serves."""
    require(who, "tenant-admin", "changing policies")
    known = await all_.read(all_.setups.read)
    pool = next((each for each in visible_pools(known.setup.pools, who) if each.name == name), None)
    if pool is None:
        raise no_such("pool", name)
    if who.role != "operator" and tuple(pool.tenants) != (who.tenant,):
        raise Refused(403, f"pool {name} serves other tenants, too", remedy="ask an operator")
    await to_thread.run_sync(_check_policy, body)
    event = PolicyChanged(0.0, name, body.policy, body.options)
    number = await all_.send_event(who, event, "policy", name, compact([body.policy, body.options]))
    return await answered(all_, number, response)


def _check_policy(choice: PolicyChoice) -> None:
    from horae.policies.registry import make_policy  # noqa: PLC0415  it takes a second, and few requests need it

    make_policy(choice.policy, choice.options)


@router.get("/policies")
async def list_policies(who: Who) -> list[PolicyView]:
    """The policies that are installed, with their options."""
    return await to_thread.run_sync(_policies)


def _policies() -> list[PolicyView]:
    from horae.policies.registry import POLICIES, option_defaults  # noqa: PLC0415  as above

    made = []
    for name, kind in sorted(POLICIES.items()):
        described = kind.__doc__ or ""
        if described.startswith(f"{kind.__name__}("):  # a signature, which a dataclass without a description has
            described = sys.modules[kind.__module__].__doc__ or ""
        summary = described.strip().partition("\n")[0]
        options = {key: to_plain(value) for key, value in option_defaults(kind).items()}
        made.append(PolicyView(name=name, summary=summary, options=options))
    return made
