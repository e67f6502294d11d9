"""What is different in a `horae whatif`: policies, the cluster, reservations, weights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple

from horae.model.cluster import Node
from horae.model.errors import InputError
from horae.model.events import (
    ClusterChanged,
    Event,
    GpuChanged,
    NodeChanged,
    PolicyChanged,
    TenantChange,
    TenantsChanged,
)
from horae.model.safe_text import counted
from horae.model.setup import Cadence, PoolSpec, Setup
from horae.policies.registry import make_policy
from horae.scheduler.administration import with_tenant_change

ALL = ""  # as the name of a pool: all of them
_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Policy(NamedTuple):
    name: str
    options: Mapping[str, object] = _NOTHING


@dataclass(frozen=True)
class Change:
    """None and empty: as it was."""

    policies: Mapping[str, Policy] = field(default_factory=dict)  # by pool
    cluster: Setup | None = None  # its nodes, and its pools where it has more than one without a policy
    more_nodes: tuple[Node, ...] = ()
    cells: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # by tenant
    weights: Mapping[str, float] = field(default_factory=dict)  # by tenant
    cadence: Cadence | None = None
    round_seconds: float | None = None

    def of(self, present: Setup) -> Setup:
        """The setup as changed; what is not possible is an error."""
        wanted = self._with_cluster(present)
        if self.more_nodes:
            nodes = (*wanted.cluster.nodes, *_renamed(self.more_nodes, wanted.cluster.node_index))
            wanted = replace(wanted, cluster=replace(wanted.cluster, nodes=nodes))
        specs = list(wanted.pools)
        for tenant, cells in self.cells.items():
            specs = with_tenant_change(specs, tenant, TenantChange(cells=cells))
        self._check_pools(specs)
        specs = [self._with_policy(spec) for spec in specs]
        return replace(wanted, pools=tuple(specs), tenant_weights={**wanted.tenant_weights, **self.weights})

    def kept(self, events: Iterable[Event], wanted: Setup) -> list[Event]:
        """Later events of the log without those parts that this change replaces."""
        return [kept for event in events if (kept := self._kept(event, wanted)) is not None]

    def words(self) -> list[str]:
        """The change, one line per part."""
        lines = [
            f"policy {policy.name}" + (f" {dict(policy.options)}" if policy.options else "") + _in(pool)
            for pool, policy in self.policies.items()
        ]
        if self.cluster is not None:
            gpus = sum(node.gpus for node in self.cluster.cluster.nodes)
            lines.append(f"cluster {self.cluster.cluster.name}: {counted(gpus, 'GPU')}")
        if self.more_nodes:
            lines.append(f"{counted(len(self.more_nodes), 'more node')}")
        for tenant, cells in self.cells.items():
            lines.append(f"cells of {tenant}: {', '.join(f'{count} x {name}' for name, count in cells.items())}")
        lines += [f"weight of {tenant}: {weight:g}" for tenant, weight in self.weights.items()]
        if self.cadence is not None:
            lines.append(f"decisions by {self.cadence.value}")
        if self.round_seconds is not None:
            lines.append(f"rounds of {self.round_seconds:g} s")
        return lines

    def _with_cluster(self, present: Setup) -> Setup:
        if self.cluster is None:
            return present
        wanted = replace(present, cluster=self.cluster.cluster, absent_nodes=self.cluster.absent_nodes)
        if not _has_pools(self.cluster):
            return wanted
        return replace(wanted, pools=self.cluster.pools, tenant_weights=dict(self.cluster.tenant_weights))

    def _check_pools(self, specs: Iterable[PoolSpec]) -> None:
        known = [spec.name for spec in specs]
        for pool, policy in self.policies.items():
            if pool != ALL and pool not in known:
                raise InputError(f"there is no pool {pool!r}", field="policy", remedy=f"use {', '.join(known)}")
            make_policy(policy.name, policy.options)

    def _with_policy(self, spec: PoolSpec) -> PoolSpec:
        policy = self.policies.get(spec.name, self.policies.get(ALL))
        if policy is not None:
            spec = replace(spec, policy=policy.name, options=dict(policy.options))
        return replace(
            spec, cadence=self.cadence or spec.cadence, round_seconds=self.round_seconds or spec.round_seconds
        )

    def _kept(self, event: Event, wanted: Setup) -> Event | None:
        match event:
            case PolicyChanged():
                replaced = self.policies and (ALL in self.policies or event.pool in self.policies)
                return None if replaced or self._replaces_pools or self.cadence or self.round_seconds else event
            case TenantsChanged():
                return None if self._replaces_pools else self._kept_tenants(event)
            case ClusterChanged():
                return None if self.cluster is not None else event
            case NodeChanged():
                return event if self._has_node(event.node, 0, wanted) else None
            case GpuChanged():
                return event if self._has_node(event.gpu.node, event.gpu.number, wanted) else None
        return event

    @property
    def _replaces_pools(self) -> bool:
        return self.cluster is not None and _has_pools(self.cluster)

    def _has_node(self, name: str, number: int, wanted: Setup) -> bool:
        """Whether the node is there; where the cluster is that of the log, nodes may have joined later."""
        if self.cluster is None:
            return True
        index = wanted.cluster.node_index.get(name)
        return index is not None and number < wanted.cluster.nodes[index].gpus

    def _kept_tenants(self, event: TenantsChanged) -> TenantsChanged | None:
        left = {
            tenant: change._replace(
                cells=None if tenant in self.cells else change.cells,
                weight=None if tenant in self.weights else change.weight,
            )
            for tenant, change in event.tenants.items()
        }
        left = {tenant: change for tenant, change in left.items() if change != TenantChange()}
        return TenantsChanged(event.at, left) if left else None


def _has_pools(setup: Setup) -> bool:
    """Whether a cluster file says how the cluster is shared, rather than only which nodes it has."""
    return len(setup.pools) > 1 or replace(setup.pools[0], name="") != PoolSpec("")


def _renamed(nodes: Iterable[Node], taken: Mapping[str, int]) -> list[Node]:
    """Nodes with names that are free."""
    found: list[Node] = []
    number = 0
    for node in nodes:
        number += 1
        while f"more-{number}" in taken:
            number += 1
        found.append(replace(node, name=f"more-{number}"))
    return found


def _in(pool: str) -> str:
    return "" if pool == ALL else f" for pool {pool}"
