"""Splits a cluster into chains of equal cells, and holds what tenants reserve of it:
cells by kind, and pinned cells."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby, pairwise
from math import prod
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from horae.model.arrays import Ints
from horae.model.chains import CellKind, Chain, Pin, Reservation, Territory
from horae.model.cluster import GPU, NODE, Cluster, Node, cell_key
from horae.model.reserved_cells import NamedCells, Pinning, cells_named

_NONE: Mapping[str, Mapping[str, str]] = MappingProxyType({})


class ChainLayout(NamedTuple):
    territory: Territory
    gpus: tuple[Ints, ...]  # by chain: the cluster's numbers of its GPUs
    pattern: tuple[Node, ...]  # by chain: a node like all of its nodes
    named: Mapping[str, NamedCells]  # by tenant: the cells that each name under `cells` stands for


class _Kind(NamedTuple):
    """A kind of top-level cell; cells of one kind are interchangeable."""

    node: Node  # without name and groups
    above: tuple[tuple[str, int], ...] = ()  # levels above the node: (name, children per cell), finest first

    @property
    def nodes(self) -> int:
        """Nodes per cell of the coarsest level above the node; 0 if there is no such level."""
        return prod(children for _, children in self.above) if self.above else 0


class _Top(NamedTuple):
    kind: _Kind
    nodes: tuple[int, ...]


def layout_of(
    cluster: Cluster, reserved: Mapping[str, Mapping[str, int]], pinned: Mapping[str, Mapping[str, str]] = _NONE
) -> ChainLayout:
    """Returns the chains of a cluster, with the reservations in them.

    `reserved` gives, by tenant, the number of cells of each kind: {"A100.node": 6}; `pinned`, by tenant, the places of
    its pinned cells: {"gold": "n07"}. A name that several chains share is split over them.
    """
    tops: dict[_Kind, list[int]] = {}
    for top in _tops(cluster, range(len(cluster.nodes)), len(cluster.levels) - 1):
        tops.setdefault(top.kind, []).extend(top.nodes)
    names = _names(list(tops))
    chains = tuple(_chain(cluster, kind, names[kind], nodes) for kind, nodes in tops.items())
    first = cluster.first_gpu[cluster.node_level]
    gpus = tuple(
        np.concatenate([np.arange(first[index], first[index + 1]) for index in nodes]) for nodes in tops.values()
    )
    pins = Pinning(cluster, chains, gpus).pins(pinned)
    named = cells_named(chains, reserved, pins)
    reservations = tuple(
        Reservation(tenant, _total(named.get(tenant, {})), tuple(f"{tenant}/{name}" for name in pinned.get(tenant, {})))
        for tenant in dict.fromkeys((*reserved, *pinned))
    )
    return ChainLayout(Territory(chains, reservations, pins), gpus, tuple(kind.node for kind in tops), named)


def _total(named: NamedCells) -> dict[CellKind, int]:
    found: dict[CellKind, int] = {}
    for split in named.values():
        for kind, count in split.items():
            found[kind] = found.get(kind, 0) + count
    return found


def _tops(cluster: Cluster, nodes: Sequence[int], level: int) -> list[_Top]:
    """The largest cells among these nodes, which are the nodes of one cell of this level.

    A cell whose children differ is not interchangeable with any other cell, so its children are returned instead.
    """
    if level == cluster.node_level:
        return [_Top(_Kind(_plain(cluster.nodes[index])), (index,)) for index in nodes]
    children = [_tops(cluster, inside, level - 1) for inside in _children(cluster, nodes, level - 1)]
    name, first = cluster.levels[level], children[0][0]
    is_cell = name in (own for own, _ in cluster.nodes[nodes[0]].groups)
    if is_cell and all(len(child) == 1 and child[0].kind == first.kind for child in children):
        kind = first.kind._replace(above=(*first.kind.above, (name, len(children))))
        return [_Top(kind, tuple(nodes))]
    return [top for child in children for top in child]


def _children(cluster: Cluster, nodes: Sequence[int], level: int) -> Iterator[list[int]]:
    """Groups the nodes of a cell by the cells of this level; at node level, one group per node."""
    if level == cluster.node_level:
        yield from ([index] for index in nodes)
        return
    name = cluster.levels[level]
    for _, inside in groupby(nodes, key=lambda index: cell_key(cluster.nodes[index], name, cluster.levels)):
        yield list(inside)


def _plain(node: Node) -> Node:
    return replace(node, name="", rack="", above=())


def _names(kinds: Sequence[_Kind]) -> dict[_Kind, str]:
    """Names for the kinds: the GPU type where that is unique,
    otherwise with the sizes of a node and of the largest cell, or a number."""
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


def _chain(cluster: Cluster, kind: _Kind, name: str, nodes: Sequence[int]) -> Chain:
    inner = [level for level, _ in kind.node.levels]
    sizes = [1, *(gpus for _, gpus in kind.node.levels), kind.node.gpus]
    types = (GPU, *inner, NODE, *(level for level, _ in kind.above))
    fanout = (1, *(large // small for small, large in pairwise(sizes)), *(children for _, children in kind.above))
    return Chain(
        name, kind.node.accelerator, types, fanout, tuple(cluster.nodes[index].name for index in nodes), len(inner) + 1
    )


def private_nodes(layout: ChainLayout, tenant: int) -> list[tuple[CellKind, int, list[Node]]]:
    """A tenant's cells as separate nodes: kind, index among the tenant's cells of that kind,
    and the nodes of the cell."""
    reservation = layout.territory.reservations[tenant]
    found = []
    for kind, count in sorted(reservation.cells.items()):
        chain, pattern = layout.territory.chains[kind.chain], layout.pattern[kind.chain]
        for number in range(count):
            name = f"{reservation.tenant}/{chain.name}.{chain.types[kind.level]}{number}"
            found.append((kind, number, _nodes_of(chain, pattern, kind.level, name)))
    return found


def pinned_nodes(layout: ChainLayout, tenant: int) -> list[tuple[Pin, list[Node]]]:
    """A tenant's pinned cells as separate nodes."""
    territory = layout.territory
    reservation = territory.reservations[tenant]
    pins = {pin.name: pin for pin in territory.pins}
    found = []
    for pin in (pins[name] for name in reservation.pinned):
        name = f"{reservation.tenant}/pinned{pin.name.removeprefix(reservation.tenant)}"
        chain, pattern = territory.chains[pin.kind.chain], layout.pattern[pin.kind.chain]
        found.append((pin, _nodes_of(chain, pattern, pin.kind.level, name)))
    return found


def _nodes_of(chain: Chain, pattern: Node, level: int, name: str) -> list[Node]:
    gpus = chain.gpus[level]
    if level > chain.node_level:
        return [
            replace(pattern, name=f"{name}/{index}", above=_groups_of(chain, level, name, index))
            for index in range(gpus // chain.node_gpus)
        ]
    part = gpus / chain.node_gpus
    levels = tuple((inner, size) for inner, size in pattern.levels if size <= gpus)
    cpus, memory_bytes = pattern.cpus * part, pattern.memory_bytes * part
    return [replace(pattern, name=name, gpus=gpus, cpus=cpus, memory_bytes=memory_bytes, levels=levels)]


def _groups_of(chain: Chain, level: int, name: str, index: int) -> tuple[tuple[str, str], ...]:
    """The named cells that hold a node of a reserved cell, up to the reserved cell itself."""
    inside = [
        (chain.types[finer], f"{name}/{chain.types[finer]}{index * chain.node_gpus // chain.gpus[finer]}")
        for finer in range(chain.node_level + 1, level)
    ]
    return (*inside, (chain.types[level], name))


def private_cluster(layout: ChainLayout, tenant: int, restart_seconds: float = 0.0) -> Cluster:
    """The cluster a tenant would have if its cells, including pinned ones, were a private cluster."""
    nodes = [node for _, _, nodes in private_nodes(layout, tenant) for node in nodes]
    nodes += [node for _, nodes in pinned_nodes(layout, tenant) for node in nodes]
    return Cluster(layout.territory.reservations[tenant].tenant, tuple(nodes), restart_seconds)
