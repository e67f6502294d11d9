"""What must be told to a scheduler when its configuration file has changed since the log began."""

from __future__ import annotations

from horae.model.events import ClusterChanged, Event, PolicyChanged, TenantChange, TenantsChanged
from horae.model.setup import Cadence, PoolSpec, Setup


def changes(present: Setup, wanted: Setup, now: float) -> list[Event]:
    """The events that turn the present setup into the wanted one. No running job is stopped by them.

    Between two versions of a file they are what the operator has changed in it: changes that were made through the API
    meanwhile stay.
    """
    events: list[Event] = []
    nodes = {node.name: node for node in present.cluster.nodes}
    changed = [node for node in wanted.cluster.nodes if nodes.get(node.name) != node]
    smaller = tuple(node for node in changed if node.name in nodes and node.gpus < nodes[node.name].gpus)
    larger = tuple(node for node in changed if node not in smaller)
    removed = tuple(name for name in nodes if name not in wanted.cluster.node_index)
    if larger:  # they may make room for cells that are added; what goes, goes last, when cells have been given up
        events.append(ClusterChanged(now, larger))
    tenants = _tenants(present, wanted)
    if tenants:
        events.append(TenantsChanged(now, tenants))
    for pool in wanted.pools:
        former = _former(present, pool) or PoolSpec(pool.name, policy="")
        if _policy(former) != _policy(pool):
            events.append(PolicyChanged(now, former.name, *_policy(pool)))
    if smaller or removed:
        events.append(ClusterChanged(now, smaller, removed=removed))
    return events


def _former(setup: Setup, pool: PoolSpec) -> PoolSpec | None:
    """The same pool in another setup: by its name, or as the one for all tenants without their own."""
    same = [each for each in setup.pools if each.name == pool.name or (not each.tenants and not pool.tenants)]
    return same[0] if same else None


def _policy(pool: PoolSpec) -> tuple[str, dict[str, object], Cadence, float, bool]:
    return pool.policy, dict(pool.options), pool.cadence, pool.round_seconds, pool.admits_between_rounds


def fixed_field(present: Setup, wanted: Setup) -> str:
    """The first setting that differs and that no event can change while the service runs; empty: none."""
    for name in ("seed", "static_binding", "sharing", "bid_seconds", "survey_seconds", "start_seconds"):
        if getattr(present, name) != getattr(wanted, name):
            return name
    if present.cluster.restart_seconds != wanted.cluster.restart_seconds:
        return "restart_seconds"
    for pool in wanted.pools:
        former = _former(present, pool) or pool
        for name in ("nodes", "rules", "spreads", "borrow", "pinned", "tenants"):
            if getattr(former, name) != getattr(pool, name):
                return f"{pool.name}.{name}"
    return ""


def _tenants(present: Setup, wanted: Setup) -> dict[str, TenantChange]:
    before, after = _reservations(present), _reservations(wanted)
    found: dict[str, TenantChange] = {}
    for name in dict.fromkeys((*before, *after, *present.tenant_weights, *wanted.tenant_weights)):
        cells, quota = after.get(name, ({}, {}))
        former_cells, former_quota = before.get(name, ({}, {}))
        weight, former = wanted.tenant_weights.get(name, 1.0), present.tenant_weights.get(name, 1.0)
        change = TenantChange(
            {**dict.fromkeys(former_cells, 0), **cells} if cells != former_cells else None,
            weight if weight != former else None,
            quota if quota != former_quota else None,
        )
        if change != TenantChange():
            found[name] = change
    return found


def _reservations(setup: Setup) -> dict[str, tuple[dict[str, int], dict[str, int]]]:
    return {
        tenant: (dict(pool.cells), dict(pool.quota))
        for pool in setup.pools
        for tenant in pool.tenants
        if pool.cells or pool.quota
    }
