"""What must be told to a scheduler when its configuration file has changed since the log began."""

from __future__ import annotations

from horae.model.events import ClusterChanged, Event, PolicyChanged, TenantChange, TenantsChanged
from horae.model.setup import PoolSpec, Setup


def changes(present: Setup, wanted: Setup, now: float) -> list[Event]:
    """The events that turn the present setup into the wanted one. No running job is stopped by them."""
    events: list[Event] = []
    nodes = {node.name: node for node in present.cluster.nodes}
    changed = tuple(node for node in wanted.cluster.nodes if nodes.get(node.name) != node)
    removed = tuple(name for name in nodes if name not in wanted.cluster.node_index)
    if changed:  # nodes that come may make room for cells that are added; nodes that go are removed last
        events.append(ClusterChanged(now, changed))
    tenants = _tenants(present, wanted)
    if tenants:
        events.append(TenantsChanged(now, tenants))
    before = {pool.name: pool for pool in present.pools}
    for pool in wanted.pools:
        former = before.get(pool.name, PoolSpec(pool.name, policy=""))
        if (former.policy, dict(former.options)) != (pool.policy, dict(pool.options)):
            events.append(PolicyChanged(now, pool.name, pool.policy, pool.options))
    if removed:
        events.append(ClusterChanged(now, removed=removed))
    return events


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
