"""The cluster file: nodes, tenants and their policies, in YAML."""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from horae.model.cells import Cluster, Node
from horae.model.errors import ClusterError, InputError
from horae.model.pools import Cadence, PoolSpec, Setup
from horae.traces.units import expand, memory_bytes, seconds
from horae.traces.yaml_lines import read_yaml

Seconds = Annotated[float, BeforeValidator(seconds)]
Bytes = Annotated[float, BeforeValidator(memory_bytes)]
Name = Annotated[str, Field(min_length=1)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class NodeGroup(_Strict):
    name: Name
    gpu: Name
    gpus: Annotated[int, Field(gt=0, strict=True)]
    cpus: Annotated[float, Field(gt=0)] = inf
    memory: Bytes = inf
    levels: dict[Name, Annotated[int, Field(gt=0, strict=True)]] = {}
    rack: Annotated[int, Field(gt=0, strict=True)] | None = None
    price: Annotated[float, Field(ge=0)] = 0.0

    def nodes(self) -> list[Node]:
        inner = tuple(sorted(self.levels.items(), key=lambda item: (item[1], item[0])))
        return [
            Node(
                name=name,
                accelerator=self.gpu,
                gpus=self.gpus,
                cpus=self.cpus,
                memory_bytes=self.memory,
                levels=inner,
                rack=f"{self.name}/{index // self.rack}" if self.rack else "",
                price_per_hour=self.price,
            )
            for index, name in enumerate(expand(self.name))
        ]


class PoolEntry(_Strict):
    policy: Name | dict[Name, dict[str, Any] | None] = "fifo"
    cadence: Cadence = Cadence.EVENTS
    round_seconds: Seconds = 360.0

    def policy_and_options(self) -> tuple[str, dict[str, Any]]:
        if isinstance(self.policy, str):
            return self.policy, {}
        if len(self.policy) != 1:
            raise ClusterError(
                "names several policies", field="policy", remedy="name one: {tiresias: {limits: [1, 3]}}"
            )
        ((name, options),) = self.policy.items()
        return name, options or {}


class Tenant(PoolEntry):
    weight: Annotated[float, Field(gt=0)] = 1.0
    nodes: Name | list[Name] = []
    cells: dict[str, int] | None = None

    def owned(self) -> tuple[str, ...]:
        patterns = [self.nodes] if isinstance(self.nodes, str) else self.nodes
        return tuple(name for pattern in patterns for name in expand(pattern))


class ClusterFile(_Strict):
    name: Name = "cluster"
    restart_seconds: Seconds = 0.0
    nodes: Annotated[list[NodeGroup], Field(min_length=1)]
    tenants: dict[Name, Tenant] = {}
    spare: PoolEntry = PoolEntry()


def read_cluster(path: Path, seed: int = 0) -> Setup:
    """The cluster of a file with its pools: one for each tenant that owns nodes, and one for all the rest."""
    file = read_yaml(path, ClusterFile)
    try:
        cluster = Cluster(
            file.name, tuple(node for group in file.nodes for node in group.nodes()), file.restart_seconds
        )
        return Setup(cluster, tuple(_pools(file, cluster)), seed)
    except InputError as error:
        raise error.located(file=str(path)) from None
    except ValueError as error:
        raise ClusterError(str(error), file=str(path), field="nodes", remedy="mend the name") from None


def _pools(file: ClusterFile, cluster: Cluster) -> list[PoolSpec]:
    pools: list[PoolSpec] = []
    for name, tenant in file.tenants.items():
        if tenant.cells is not None:
            raise ClusterError(
                "cells cannot be reserved yet", field=f"tenants.{name}.cells", remedy="give the tenant nodes of its own"
            )
        owned = tenant.owned()
        for node in owned:
            if node not in cluster.node_index:
                raise ClusterError(
                    f"there is no node {node!r}", field=f"tenants.{name}.nodes", remedy="name nodes that are listed"
                )
        if owned:
            pools.append(_pool(name, tenant, tenants=(name,), nodes=owned))
    if sum(len(pool.nodes) for pool in pools) < len(cluster.nodes):
        pools.append(_pool("spare" if pools else "all", file.spare))
    return pools


def _pool(name: str, entry: PoolEntry, tenants: tuple[str, ...] = (), nodes: tuple[str, ...] = ()) -> PoolSpec:
    policy, options = entry.policy_and_options()
    return PoolSpec(name, policy, options, entry.cadence, entry.round_seconds, tenants, nodes)
