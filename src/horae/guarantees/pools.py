"""Which GPUs a pool may use, and whose jobs it serves.

A pool owns whole nodes, its own alone: what a tenant has here is a private cluster. A pool without tenants serves all
that have none of their own.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from horae.model.arrays import Bools, Ints
from horae.model.cells import Cluster
from horae.model.errors import ClusterError
from horae.model.pools import PoolSpec


class Pools:
    def __init__(self, cluster: Cluster, specs: Sequence[PoolSpec]) -> None:
        self.cluster = cluster
        self.specs = tuple(specs)
        self.gpus: tuple[Bools, ...] = tuple(_gpus(cluster, spec, self.specs) for spec in self.specs)
        self._by_tenant = _tenants(self.specs)
        sharing = [spec.name for spec in self.specs if not spec.nodes]
        if len(sharing) > 1:
            raise ClusterError(
                f"pools {', '.join(sharing)} have no nodes of their own", field="pools", remedy="leave one without"
            )
        self._open = next((i for i, spec in enumerate(self.specs) if not spec.tenants), None)

    def pool_of(self, tenant: str) -> int | None:
        """The pool in which a tenant's jobs run, if there is one."""
        return self._by_tenant.get(tenant, self._open)

    def is_safe(self, pool: int, gpus: Ints) -> bool:
        """Whether these GPUs are the pool's to use."""
        return False not in self.gpus[pool][gpus].tolist()


def _gpus(cluster: Cluster, spec: PoolSpec, specs: tuple[PoolSpec, ...]) -> Bools:
    owned = np.zeros(cluster.gpu_count, dtype=bool)
    for name in spec.nodes or _left_over(cluster, specs):
        owned[cluster.gpus_of_node(name)] = True
    if not owned.any():
        raise ClusterError(f"pool {spec.name!r} has no nodes", field="pools", remedy="leave it some nodes")
    return owned


def _left_over(cluster: Cluster, specs: tuple[PoolSpec, ...]) -> list[str]:
    taken = {name for spec in specs for name in spec.nodes}
    return [node.name for node in cluster.nodes if node.name not in taken]


def _tenants(specs: tuple[PoolSpec, ...]) -> dict[str, int]:
    owner: dict[str, str] = {}
    by_tenant: dict[str, int] = {}
    for index, spec in enumerate(specs):
        for name in spec.nodes:
            if name in owner:
                raise ClusterError(
                    f"node {name!r} belongs to pools {owner[name]!r} and {spec.name!r}",
                    field="nodes",
                    remedy="give it to one",
                )
            owner[name] = spec.name
        for tenant in spec.tenants:
            if tenant in by_tenant:
                raise ClusterError(f"tenant {tenant!r} has two pools", field="tenants", remedy="give it one")
            by_tenant[tenant] = index
    return by_tenant
