"""The cluster file: nodes, tenants and their policies, in YAML."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from horae.model.cluster import RACK, Cluster, Node
from horae.model.errors import ClusterError, InputError
from horae.model.safe_text import brief, shown
from horae.model.setup import Cadence, PoolSpec, RoundRules, Setup
from horae.traces.units import expand, memory_bytes, seconds
from horae.traces.yaml_files import YamlFile, read_yaml

RESTART_SECONDS = 45.0  # checkpoint and restart, where neither job nor file says; free preemption flatters policies
NODE_GPUS_MAX = 1024  # a bound, so that a typo does not fill the memory
SPARE = "spare"

PolicyChecker = Callable[[str, Mapping[str, object]], object]  # raises a PolicyError
CellChecker = Callable[[Cluster, Sequence[PoolSpec]], object]  # raises a ClusterError


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
    raise ValueError(f"{brief(given)} is no policy; name one: fifo, or {{tiresias: {{limits: [1, 3]}}}}")


def _cell_above(given: object) -> object:
    """The number of nodes per cell, or the name of the one cell that holds all nodes of the group."""
    is_count = isinstance(given, int) and not isinstance(given, bool) and given > 0
    if is_count or (isinstance(given, str) and given):
        return given
    raise ValueError(f"{shown(given)} is no cell; give the nodes of one cell, or its name: {{rack: 4, row: east}}")


def _nested(above: dict[str, int | str]) -> dict[str, int | str]:
    counts = [(level, nodes) for level, nodes in above.items() if isinstance(nodes, int)]
    for (finer, small), (coarser, large) in pairwise(counts):
        if large % small:
            raise ValueError(
                f"{coarser} cells of {large} nodes are not made of whole {finer} cells of {small}; "
                "list the finest first, each dividing the next: {rack: 4, row: 16}"
            )
    return above


def _list(given: object) -> object:
    return [given] if isinstance(given, str) else given


Seconds = Annotated[float, BeforeValidator(seconds)]
Bytes = Annotated[float, BeforeValidator(memory_bytes)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Name = Annotated[str, Field(min_length=1)]
Names = Annotated[Name, AfterValidator(_pattern)]  # one name, or a range of them: a[00-15]
Count = Annotated[int, Field(gt=0, strict=True)]
CellAbove = Annotated[int | str, BeforeValidator(_cell_above)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class NodeGroup(_Strict):
    name: Annotated[list[Names], BeforeValidator(_list), Field(min_length=1)]
    gpu: Name
    gpus: Annotated[Count, Field(le=NODE_GPUS_MAX)]
    cpus: Annotated[Finite, Field(gt=0)] = inf
    memory: Bytes = inf
    levels: dict[Name, Count] = {}
    rack: Count | None = None
    above: Annotated[dict[Name, CellAbove], AfterValidator(_nested)] = {}  # levels above the node, finest first
    price: Annotated[Finite, Field(ge=0)] = 0.0
    absent: Annotated[bool, Field(strict=True)] = False  # not present yet; it may join during the run

    @model_validator(mode="after")
    def _one_way_to_name_racks(self) -> Self:
        if self.rack is not None and self.above:
            raise ValueError("has both rack and above; put the rack into above: {rack: 4, row: 16}")
        return self

    def _groups(self, index: int) -> tuple[tuple[str, str], ...]:
        """The cells that hold a node; counted cells are named by the group's name, level and index."""
        found = []
        for level, given in ({RACK: self.rack} if self.rack else self.above).items():
            called = f"{self.name[0]}/{'' if level == RACK else level}"
            found.append((level, given if isinstance(given, str) else f"{called}{index // given}"))
        return tuple(found)

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
                price_per_hour=self.price,
                above=self._groups(index),
            )
            for index, name in enumerate(name for pattern in self.name for name in expand(pattern))
        ]


class Rules(_Strict):
    """How shares of time are converted into rounds; for policies that return shares."""

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
    cells: dict[Name, Annotated[int, Field(ge=0, strict=True)]] = {}
    pinned: dict[Name, Name] = {}  # by name: the place of a cell, see horae.model.reserved_cells
    borrow: bool = True  # jobs without room in its cells run on spare GPUs meanwhile

    @property
    def reserves(self) -> bool:
        return bool(self.cells or self.pinned)

    def owned(self) -> tuple[str, ...]:
        return tuple(name for pattern in self.nodes for name in expand(pattern))


class ClusterFile(_Strict):
    name: Name = "cluster"
    restart_seconds: Seconds = RESTART_SECONDS
    nodes: Annotated[list[NodeGroup], Field(min_length=1)]
    tenants: dict[Name, Tenant] = {}
    spare: PoolEntry = PoolEntry()


def read_cluster(path: Path, check_policy: PolicyChecker, check_cells: CellChecker, seed: int = 0) -> Setup:
    """The cluster of a file with its pools: one per tenant with its own cells or nodes, one for the rest."""
    return setup_of(read_yaml(path, ClusterFile), check_policy, check_cells, seed)


def setup_of(
    file: YamlFile[ClusterFile], check_policy: PolicyChecker, check_cells: CellChecker, seed: int = 0
) -> Setup:
    """The setup that a file describes which has been read."""
    cluster = _cluster(file)
    for name, tenant in file.value.tenants.items():
        _check_policy(file, tenant, check_policy, "tenants", name)
        _check_rules(file, tenant, cluster, "tenants", name)
    _check_policy(file, file.value.spare, check_policy, "spare")
    _check_rules(file, file.value.spare, cluster, "spare")
    weights = {name: tenant.weight for name, tenant in file.value.tenants.items() if tenant.weight != 1}
    pools = _reserving_pools(file) or _owning_pools(file, cluster)
    _check_cells(file, cluster, pools, check_cells)
    absent = tuple(node.name for group in file.value.nodes if group.absent for node in group.nodes())
    return Setup(cluster, tuple(pools), seed, weights, absent_nodes=absent)


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
    """The first group of nodes that makes the cluster invalid."""
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
        # The wrong option may be on a separate line.
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


def _reserving_pools(file: YamlFile[ClusterFile]) -> list[PoolSpec]:
    """Pools of tenants that reserve cells, if any do; the nodes are then shared by all."""
    tenants = file.value.tenants
    if not any(tenant.reserves for tenant in tenants.values()):
        return []
    pools = []
    for name, tenant in tenants.items():
        if tenant.nodes:
            error = ClusterError("no tenant can own nodes if others reserve cells", remedy="reserve node cells for it")
            raise file.place(error, "tenants", name, "nodes")
        if name == SPARE:
            error = ClusterError("this is what the pool for all other work is called", remedy="choose another name")
            raise file.place(error, "tenants", name)
        _check_has_effect(file, name, tenant, has_pool=tenant.reserves)
        if tenant.reserves:
            pool = _pool(name, tenant, tenants=(name,))
            cells, pinned = dict(tenant.cells), dict(tenant.pinned)
            pools.append(replace(pool, cells=cells, pinned=pinned, borrow=tenant.borrow))
    spare = file.value.spare
    if "policy" not in spare.model_fields_set:  # by the tenants' weights, as in HiveD
        spare = spare.model_copy(update={"policy": ("hierarchical", {}), "cadence": Cadence.ROUNDS})
    return [*pools, _pool(SPARE, spare)]


def _check_has_effect(file: YamlFile[ClusterFile], name: str, tenant: Tenant, *, has_pool: bool) -> None:
    idle = [] if has_pool else sorted(tenant.model_fields_set & set(PoolEntry.model_fields))
    if "borrow" in tenant.model_fields_set and not tenant.reserves:
        error = ClusterError("has no effect for a tenant without cells", remedy="reserve some, or leave it out")
        raise file.place(error, "tenants", name, "borrow")
    if idle:
        error = ClusterError(
            "has no effect for a tenant without nodes or cells", remedy="give it some, or set it for spare"
        )
        raise file.place(error, "tenants", name, idle[0])


def _check_cells(file: YamlFile[ClusterFile], cluster: Cluster, pools: list[PoolSpec], check: CellChecker) -> None:
    """Checks the cells of all tenants; the error names the first tenant whose cells do not fit or do not exist."""
    reserving = [pool for pool in pools if pool.reserves]
    for count in range(1, len(reserving) + 1):
        try:
            check(cluster, reserving[:count])
        except ClusterError as error:
            pool = reserving[count - 1]
            field = "cells" if pool.cells and error.field != "pinned" else "pinned"
            raise file.place(error, "tenants", pool.name, field) from None


def _owning_pools(file: YamlFile[ClusterFile], cluster: Cluster) -> list[PoolSpec]:
    pools: list[PoolSpec] = []
    owner: dict[str, str] = {}
    for name, tenant in file.value.tenants.items():
        owned = tenant.owned()
        _check_has_effect(file, name, tenant, has_pool=bool(owned))
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


def _pool(
    name: str,
    entry: PoolEntry,
    tenants: tuple[str, ...] = (),
    nodes: tuple[str, ...] = (),
) -> PoolSpec:
    policy, options = entry.policy
    return PoolSpec(name, policy, options, entry.cadence, entry.round_seconds, tenants, nodes, entry.rules.value())
