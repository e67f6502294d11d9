"""Which GPUs a pool may use.

A pool owns whole nodes exclusively: its tenant then has a private cluster. Or its tenant reserves cells, and it owns
those of the wide cluster that stand for them, including pinned ones. Or it has a quota: a maximum number of GPUs at a
time, out of those that all such pools share. A pool without tenants serves all tenants without their own pool, and all
jobs without a guarantee.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from horae.cells.binding import CellBinding
from horae.model.arrays import Bools, Ints
from horae.model.cluster import Cluster
from horae.model.errors import ClusterError
from horae.model.setup import PoolOfJob, PoolSpec


class PoolLayout:
    def __init__(self, cluster: Cluster, specs: Sequence[PoolSpec], *, static_binding: bool = False) -> None:
        self.real = cluster
        self.specs = tuple(specs)
        reserve = any(spec.reserves for spec in self.specs)
        self.tenancy = CellBinding(cluster, self.specs, is_static=static_binding) if reserve else None
        # With the tenants' cells as additional nodes.
        self.cluster = cluster if self.tenancy is None else self.tenancy.wide
        self.gpus: tuple[Bools, ...] = tuple(self._gpus(spec) for spec in self.specs)
        _check_owners(self.specs)
        if self.tenancy is not None and any(spec.nodes for spec in self.specs):
            raise ClusterError(
                "no pool can own nodes where others reserve cells", field="nodes", remedy="reserve node cells for it"
            )
        sharing = [spec.name for spec in self.specs if not (spec.nodes or spec.reserves or spec.quota)]
        if len(sharing) > 1:
            raise ClusterError(
                f"pools {', '.join(sharing)} have no nodes of their own", field="pools", remedy="leave one without"
            )
        self.of_job = PoolOfJob(self.specs)

    def _gpus(self, spec: PoolSpec) -> Bools:
        if self.tenancy is not None:
            return self.tenancy.owned(spec)
        return _gpus(self.cluster, spec, self.specs)

    def is_safe(self, pool: int, gpus: Ints) -> bool:
        """Whether the pool may use these GPUs."""
        return False not in self.gpus[pool][gpus].tolist()


def _gpus(cluster: Cluster, spec: PoolSpec, specs: tuple[PoolSpec, ...]) -> Bools:
    if spec.quota:
        return np.ones(cluster.gpu_count, dtype=bool)
    owned = np.zeros(cluster.gpu_count, dtype=bool)
    for name in spec.nodes or _left_over(cluster, specs):
        if name in cluster.node_index:  # a node of a pool may be absent, and is the pool's again when it comes back
            owned[cluster.gpus_of_node(name)] = True
    if not owned.any():
        raise ClusterError(f"pool {spec.name!r} has no nodes", field="pools", remedy="leave it some nodes")
    return owned


def _left_over(cluster: Cluster, specs: tuple[PoolSpec, ...]) -> list[str]:
    taken = {name for spec in specs for name in spec.nodes}
    return [node.name for node in cluster.nodes if node.name not in taken]


def _check_owners(specs: tuple[PoolSpec, ...]) -> None:
    owner: dict[str, str] = {}
    served: set[str] = set()
    for spec in specs:
        for name in spec.nodes:
            if name in owner:
                raise ClusterError(
                    f"node {name!r} belongs to pools {owner[name]!r} and {spec.name!r}",
                    field="nodes",
                    remedy="give it to one",
                )
            owner[name] = spec.name
        for tenant in spec.tenants:
            if tenant in served:
                raise ClusterError(f"tenant {tenant!r} has two pools", field="tenants", remedy="give it one")
            served.add(tenant)
