"""A cluster of nodes and racks cut into chains of equal cells, and what tenants reserve of it by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby, pairwise
from typing import NamedTuple

import numpy as np

from horae.model.arrays import Ints
from horae.model.cells import GPU, NODE, Cluster, Node
from horae.model.chains import CellKind, Chain, Reservation, Territory
from horae.model.errors import ClusterError

RACK = "rack"


class Layout(NamedTuple):
    territory: Territory
    gpus: tuple[Ints, ...]  # by chain: the cluster's numbers of its GPUs
    pattern: tuple[Node, ...]  # by chain: a node like all of its nodes


class _Kind(NamedTuple):
    """Cells of one kind are as good as each other."""

    node: Node  # without name and rack
    nodes: int  # in a rack; 0: there is no rack


def layout_of(cluster: Cluster, reserved: Mapping[str, Mapping[str, int]]) -> Layout:
    """The chains of a cluster, with what was reserved: by tenant, how many cells of each kind: {"A100.node": 6}."""
    tops: dict[_Kind, list[list[int]]] = {}
    for _, members in groupby(range(len(cluster.nodes)), key=lambda index: _rack_key(cluster.nodes[index], index)):
        rack = list(members)
        kinds = {_plain(cluster.nodes[index]) for index in rack}
        if cluster.nodes[rack[0]].rack and len(kinds) == 1:
            tops.setdefault(_Kind(kinds.pop(), len(rack)), []).append(rack)
        else:  # unequal neighbours are no cell that others could be as good as
            for index in rack:
                tops.setdefault(_Kind(_plain(cluster.nodes[index]), 0), []).append([index])
    names = _names(list(tops))
    chains = tuple(_chain(cluster, kind, names[kind], racks) for kind, racks in tops.items())
    first = cluster.first_gpu[cluster.node_level]
    gpus = tuple(
        np.concatenate([np.arange(first[index], first[index + 1]) for rack in racks for index in rack])
        for racks in tops.values()
    )
    reservations = tuple(
        Reservation(tenant, cells_named(chains, wanted, tenant)) for tenant, wanted in reserved.items()
    )
    return Layout(Territory(chains, reservations), gpus, tuple(kind.node for kind in tops))


def cells_named(chains: Sequence[Chain], wanted: Mapping[str, int], tenant: str) -> dict[CellKind, int]:
    """Cells by the name of their chain, or of their GPUs where one chain has all of them, and their level."""
    found: dict[CellKind, int] = {}
    for name, count in wanted.items():
        chain_name, _, level = name.rpartition(".")
        matching = [
            index
            for index, chain in enumerate(chains)
            if chain_name.lower() in (chain.name.lower(), chain.accelerator.lower()) and level in chain.types
        ]
        if not matching:
            known = ", ".join(f"{chain.name}.{{{', '.join(chain.types)}}}" for chain in chains)
            raise ClusterError(f"tenant {tenant!r} reserves {name!r}, which does not exist", remedy=f"use {known}")
        if len(matching) > 1:
            several = ", ".join(f"{chains[index].name}.{level}" for index in matching)
            raise ClusterError(
                f"tenant {tenant!r} reserves {name!r}, of which there are several", remedy=f"use {several}"
            )
        if count < 0:
            raise ClusterError(f"tenant {tenant!r} reserves {count} of {name!r}", remedy="give 0 or more")
        kind = CellKind(matching[0], chains[matching[0]].types.index(level))
        found[kind] = found.get(kind, 0) + count
    return {kind: count for kind, count in found.items() if count}


def _rack_key(node: Node, index: int) -> tuple[str, str, int]:
    return node.accelerator, node.rack, -1 if node.rack else index


def _plain(node: Node) -> Node:
    return Node("", node.accelerator, node.gpus, node.cpus, node.memory_bytes, node.levels, "", node.price_per_hour)


def _names(kinds: Sequence[_Kind]) -> dict[_Kind, str]:
    """The GPU type where that says it all, otherwise with the size of a node and of a rack, or a number."""
    ways = (
        lambda kind, _: kind.node.accelerator,
        lambda kind, _: f"{kind.node.accelerator}x{kind.node.gpus}",
        lambda kind, _: f"{kind.node.accelerator}x{kind.node.gpus}r{kind.nodes}",
        lambda kind, number: f"{kind.node.accelerator}x{kind.node.gpus}r{kind.nodes}#{number}",
    )
    found: dict[_Kind, str] = {}
    for kind in kinds:
        alike = [other for other in kinds if other.node.accelerator == kind.node.accelerator]
        for way in ways:
            called = [way(other, number) for number, other in enumerate(alike)]
            if len(set(called)) == len(called):
                found[kind] = called[alike.index(kind)]
                break
    return found


def _chain(cluster: Cluster, kind: _Kind, name: str, racks: Sequence[Sequence[int]]) -> Chain:
    inner = [level for level, _ in kind.node.levels]
    sizes = [1, *(gpus for _, gpus in kind.node.levels), kind.node.gpus]
    types, fanout = [GPU, *inner, NODE], [1, *(large // small for small, large in pairwise(sizes))]
    node_level = len(types) - 1
    if kind.nodes:
        types.append(RACK)
        fanout.append(kind.nodes)
    nodes = tuple(cluster.nodes[index].name for rack in racks for index in rack)
    return Chain(name, kind.node.accelerator, tuple(types), tuple(fanout), nodes, node_level)


def private_nodes(layout: Layout, tenant: int) -> list[tuple[CellKind, int, list[Node]]]:
    """A tenant's cells as nodes of their own: kind, number among its cells of that kind, and the nodes of the cell."""
    reservation = layout.territory.reservations[tenant]
    found = []
    for kind, count in sorted(reservation.cells.items()):
        chain, pattern = layout.territory.chains[kind.chain], layout.pattern[kind.chain]
        for number in range(count):
            name = f"{reservation.tenant}/{chain.name}.{chain.types[kind.level]}{number}"
            found.append((kind, number, _nodes_of(chain, pattern, kind.level, name)))
    return found


def _nodes_of(chain: Chain, pattern: Node, level: int, name: str) -> list[Node]:
    gpus = chain.gpus[level]
    if level > chain.node_level:
        return [
            Node(f"{name}/{index}", pattern.accelerator, pattern.gpus, pattern.cpus, pattern.memory_bytes,
                 pattern.levels, name, pattern.price_per_hour)
            for index in range(gpus // chain.node_gpus)
        ]  # fmt: skip
    part = gpus / chain.node_gpus
    levels = tuple((inner, size) for inner, size in pattern.levels if size <= gpus)
    price = pattern.price_per_hour
    return [Node(name, pattern.accelerator, gpus, pattern.cpus * part, pattern.memory_bytes * part, levels, "", price)]


def private_cluster(layout: Layout, tenant: int, restart_seconds: float = 0.0) -> Cluster:
    """What a tenant would have if its cells stood apart."""
    nodes = tuple(node for _, _, nodes in private_nodes(layout, tenant) for node in nodes)
    return Cluster(layout.territory.reservations[tenant].tenant, nodes, restart_seconds)
