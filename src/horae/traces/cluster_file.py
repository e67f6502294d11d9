"""The cluster file: nodes, tenants and their policies, in YAML."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from horae.model.cells import Cluster, Node
from horae.model.errors import ClusterError, InputError
from horae.model.pools import Cadence, PoolSpec, RoundRules, Setup
from horae.traces.units import expand, memory_bytes, seconds
from horae.traces.yaml_lines import YamlFile, read_yaml

NODE_GPUS_MAX = 1024  # a bound, so that a slip of the finger does not fill the memory
SPARE = "spare"

PolicyChecker = Callable[[str, Mapping[str, object]], object]  # raises a PolicyError


def _pattern(pattern: str) -> str:
    expand(pattern)
    return pattern


def _policy(given: object) -> object:
    """A policy's name and its options, given as `name` or as `{name: {option: value}}`."""
    match given:
        case str():
            return given, {}
        case dict() if len(given) == 1:
            ((name, options),) = given.items()
            if isinstance(options, dict | None):
                return name, options or {}
    raise ValueError(f"{given!r} is no policy; name one: fifo, or {{tiresias: {{limits: [1, 3]}}}}")


def _list(given: object) -> object:
    return [given] if isinstance(given, str) else given


Seconds = Annotated[float, BeforeValidator(seconds)]
Bytes = Annotated[float, BeforeValidator(memory_bytes)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Name = Annotated[str, Field(min_length=1)]
Names = Annotated[Name, AfterValidator(_pattern)]  # one name, or a range of them: a[00-15]
Count = Annotated[int, Field(gt=0, strict=True)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class NodeGroup(_Strict):
    name: Names
    gpu: Name
    gpus: Annotated[Count, Field(le=NODE_GPUS_MAX)]
    cpus: Annotated[Finite, Field(gt=0)] = inf
    memory: Bytes = inf
    levels: dict[Name, Count] = {}
    rack: Count | None = None
    price: Annotated[Finite, Field(ge=0)] = 0.0

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


class Rules(_Strict):
    """How shares of time become rounds; for policies that answer with shares."""

    type_order: Annotated[list[Name], BeforeValidator(_list)] = []
    reconsider_seconds: Seconds = RoundRules().reconsider_seconds
    fill: Annotated[bool, Field(strict=True)] = RoundRules().fill
    turn_rounds: Annotated[Finite, Field(ge=0)] = RoundRules().turn_rounds
    restart_share_max: Annotated[Finite, Field(gt=0, le=1)] = RoundRules().restart_share_max

    def value(self) -> RoundRules:
        return RoundRules(**{**self.model_dump(), "type_order": tuple(self.type_order)})


class PoolEntry(_Strict):
    policy: Annotated[tuple[Name, dict[str, Any]], BeforeValidator(_policy)] = ("fifo", {})
    cadence: Cadence = Cadence.EVENTS
    round_seconds: Annotated[Seconds, Field(gt=0)] = 360.0
    rules: Rules = Rules()


class Tenant(PoolEntry):
    weight: Annotated[Finite, Field(gt=0)] = 1.0
    nodes: Annotated[list[Names], BeforeValidator(_list)] = []
    cells: dict[str, int] | None = None

    def owned(self) -> tuple[str, ...]:
        return tuple(name for pattern in self.nodes for name in expand(pattern))


class ClusterFile(_Strict):
    name: Name = "cluster"
    restart_seconds: Seconds = 0.0
    nodes: Annotated[list[NodeGroup], Field(min_length=1)]
    tenants: dict[Name, Tenant] = {}
    spare: PoolEntry = PoolEntry()


def read_cluster(path: Path, check_policy: PolicyChecker, seed: int = 0) -> Setup:
    """The cluster of a file with its pools: one for each tenant that owns nodes, and one for all the rest."""
    file = read_yaml(path, ClusterFile)
    cluster = _cluster(file)
    for name, tenant in file.value.tenants.items():
        _check_policy(file, tenant, check_policy, "tenants", name)
        _check_rules(file, tenant, cluster, "tenants", name)
    _check_policy(file, file.value.spare, check_policy, "spare")
    _check_rules(file, file.value.spare, cluster, "spare")
    weights = {name: tenant.weight for name, tenant in file.value.tenants.items() if tenant.weight != 1}
    return Setup(cluster, tuple(_pools(file, cluster)), seed, weights)


def _cluster(file: YamlFile[ClusterFile]) -> Cluster:
    groups = file.value.nodes
    nodes = tuple(node for group in groups for node in group.nodes())
    try:
        return Cluster(file.value.name, nodes, file.value.restart_seconds)
    except ClusterError as error:
        index = _first_wrong(groups)
        field = (error.field,) if error.field in NodeGroup.model_fields else ()
        raise file.place(error, "nodes", index, *field) from None


def _first_wrong(groups: list[NodeGroup]) -> int:
    """The first group of nodes with which there can be no cluster."""
    nodes: list[Node] = []
    for index, group in enumerate(groups[:-1]):
        nodes.extend(group.nodes())
        try:
            Cluster("", tuple(nodes))
        except ClusterError:
            return index
    return len(groups) - 1


def _check_policy(file: YamlFile[ClusterFile], entry: PoolEntry, check: PolicyChecker, *location: str) -> None:
    name, options = entry.policy
    try:
        check(name, options)
    except InputError as error:
        # The option that is wrong may stand on a line of its own.
        option = (name, error.field) if error.field in options else ()
        raise file.place(error, *location, "policy", *option) from None


def _check_rules(file: YamlFile[ClusterFile], entry: PoolEntry, cluster: Cluster, *location: str) -> None:
    order = entry.rules.type_order
    for place, name in enumerate(order):
        if name not in cluster.accelerators:
            error = ClusterError(f"there is no GPU type {name!r}", remedy=f"use {', '.join(cluster.accelerators)}")
            raise file.place(error, *location, "rules", "type_order")
        if name in order[:place]:
            error = ClusterError(f"names {name!r} twice", remedy="name each GPU type once")
            raise file.place(error, *location, "rules", "type_order")


def _pools(file: YamlFile[ClusterFile], cluster: Cluster) -> list[PoolSpec]:
    pools: list[PoolSpec] = []
    owner: dict[str, str] = {}
    for name, tenant in file.value.tenants.items():
        if tenant.cells is not None:
            error = ClusterError("cells cannot be reserved yet", remedy="give the tenant nodes of its own")
            raise file.place(error, "tenants", name, "cells")
        owned = tenant.owned()
        idle = sorted(tenant.model_fields_set & set(PoolEntry.model_fields))
        if idle and not owned:
            error = ClusterError(
                "has no effect for a tenant without nodes", remedy="give it nodes, or set it for spare"
            )
            raise file.place(error, "tenants", name, idle[0])
        if owned and name == SPARE:
            error = ClusterError("this is what the pool of all other nodes is called", remedy="choose another name")
            raise file.place(error, "tenants", name)
        for node in owned:
            if node not in cluster.node_index:
                error = ClusterError(f"there is no node {node!r}", remedy="name nodes that are listed")
                raise file.place(error, "tenants", name, "nodes")
            if node in owner:
                error = ClusterError(f"node {node!r} belongs to {owner[node]!r} already", remedy="give it to one, once")
                raise file.place(error, "tenants", name, "nodes")
            owner[node] = name
        if owned:
            pools.append(_pool(name, tenant, tenants=(name,), nodes=owned))
    if len(owner) < len(cluster.nodes):
        pools.append(_pool(SPARE if pools else "all", file.value.spare))
    return pools


def _pool(name: str, entry: PoolEntry, tenants: tuple[str, ...] = (), nodes: tuple[str, ...] = ()) -> PoolSpec:
    policy, options = entry.policy
    return PoolSpec(name, policy, options, entry.cadence, entry.round_seconds, tenants, nodes, entry.rules.value())
