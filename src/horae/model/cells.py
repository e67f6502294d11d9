"""The cluster as a forest of cells: gpu < switch < socket < node < rack < cluster, one chain per GPU type.

GPUs are numbered so that every cell of every level is a contiguous range. A node that lacks a level has the
next coarser one in its stead, so that all chains have the same levels and code need not ask.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from typing import Any

import numpy as np

from horae.model.arrays import Floats, Ints
from horae.model.errors import ClusterError

GPU, NODE, CLUSTER = "gpu", "node", "cluster"


@dataclass(frozen=True, slots=True)
class Node:
    name: str
    accelerator: str
    gpus: int
    cpus: float = inf
    memory_bytes: float = inf
    levels: tuple[tuple[str, int], ...] = ()  # levels inside the node: (name, GPUs in one cell), finest first
    rack: str = ""  # "" means a rack of its own
    price_per_hour: float = 0.0


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell of the forest, for those who walk it; code that must be fast uses the columns of `Cluster`."""

    level: str
    accelerator: str
    first_gpu: int
    gpus: int
    nodes: tuple[str, ...]
    children: tuple[Cell, ...]


@dataclass(frozen=True)
class Cluster:
    name: str
    nodes: tuple[Node, ...]
    restart_seconds: float = 0.0  # checkpoint and restart, where a job says nothing
    levels: tuple[str, ...] = field(init=False)  # finest first, from "gpu" to "cluster"
    accelerators: tuple[str, ...] = field(init=False)  # in the order of the file

    def __post_init__(self) -> None:
        _check_nodes(self.nodes)
        accelerators = tuple(dict.fromkeys(node.accelerator for node in self.nodes))
        chain = {name: index for index, name in enumerate(accelerators)}
        # Nodes of one type side by side, racks within them: every cell becomes a range of GPU numbers. Done again, it
        # changes nothing, so that a cluster read back from a journal has the same numbers.
        racks = {name: index for index, name in enumerate(dict.fromkeys(_rack(node) for node in self.nodes))}
        nodes = tuple(sorted(self.nodes, key=lambda node: (chain[node.accelerator], racks[_rack(node)])))
        object.__setattr__(self, "nodes", nodes)
        object.__setattr__(self, "accelerators", accelerators)
        object.__setattr__(self, "levels", _levels(nodes))

    @cached_property
    def gpu_count(self) -> int:
        return sum(node.gpus for node in self.nodes)

    @cached_property
    def first_gpu(self) -> tuple[Ints, ...]:
        """By level: the first GPU of each cell, and the number of GPUs at the end."""
        return tuple(_first_gpus(self.nodes, level, self.levels) for level in self.levels)

    @cached_property
    def cell_of_gpu(self) -> tuple[Ints, ...]:
        """By level: the cell in which a GPU lies."""
        return tuple(np.repeat(np.arange(len(first) - 1), np.diff(first)) for first in self.first_gpu)

    @cached_property
    def node_level(self) -> int:
        return self.levels.index(NODE)

    @cached_property
    def node_of_gpu(self) -> Ints:
        return self.cell_of_gpu[self.node_level]

    @cached_property
    def price_per_hour(self) -> Floats:
        """By accelerator: of one GPU, on average over its nodes."""
        paid, gpus = np.zeros(len(self.accelerators)), np.zeros(len(self.accelerators))
        for node in self.nodes:
            number = self.accelerators.index(node.accelerator)
            paid[number] += node.price_per_hour * node.gpus
            gpus[number] += node.gpus
        return paid / gpus

    @cached_property
    def chain_gpus(self) -> Mapping[str, tuple[int, int]]:
        """By accelerator: its range of GPU numbers."""
        first = self.first_gpu[-1]
        return {name: (int(first[i]), int(first[i + 1])) for i, name in enumerate(self.accelerators)}

    @cached_property
    def chain_cells(self) -> tuple[Mapping[str, tuple[int, int]], ...]:
        """By level and accelerator: the range of cell numbers."""
        return tuple(
            {
                name: (int(np.searchsorted(first, start)), int(np.searchsorted(first, stop)))
                for name, (start, stop) in self.chain_gpus.items()
            }
            for first in self.first_gpu
        )

    @cached_property
    def chain_starts(self) -> tuple[Mapping[str, Ints], ...]:
        """By level and accelerator: the first GPU of each cell, counted from the chain's first GPU."""
        return tuple(
            {
                name: (first[cells[name][0] : cells[name][1]] - self.chain_gpus[name][0]).astype(np.intp)
                for name in self.accelerators
            }
            for first, cells in zip(self.first_gpu, self.chain_cells, strict=True)
        )

    @cached_property
    def largest_cell(self) -> tuple[Mapping[str, int], ...]:
        """By level and accelerator: the GPUs of the largest cell."""
        return tuple(
            {name: int(np.diff(first[cells[name][0] : cells[name][1] + 1]).max()) for name in self.accelerators}
            for first, cells in zip(self.first_gpu, self.chain_cells, strict=True)
        )

    @cached_property
    def cell_gpus(self) -> tuple[Mapping[str, Ints], ...]:
        """By level and accelerator: a row for each cell with its GPUs; a smaller cell's row ends in -1."""
        return tuple(
            {name: _padded(first[cells[name][0] : cells[name][1] + 1]) for name in self.accelerators}
            for first, cells in zip(self.first_gpu, self.chain_cells, strict=True)
        )

    @cached_property
    def node_word(self) -> Mapping[str, type[np.unsignedinteger[Any]] | None]:
        """By accelerator: the machine word with a byte for each GPU of a node, where all nodes have 1, 2, 4 or 8."""
        words: dict[int, type[np.unsignedinteger[Any]]] = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
        sizes: dict[str, set[int]] = {}
        for node in self.nodes:
            sizes.setdefault(node.accelerator, set()).add(node.gpus)
        return {name: words.get(min(found)) if len(found) == 1 else None for name, found in sizes.items()}

    @cached_property
    def is_flat(self) -> bool:
        """Whether there are no levels but gpu, node and cluster."""
        return len(self.levels) == 3

    @cached_property
    def node_index(self) -> Mapping[str, int]:
        return {node.name: index for index, node in enumerate(self.nodes)}

    @cached_property
    def node_cpus(self) -> Floats:
        return np.array([node.cpus for node in self.nodes])

    @cached_property
    def node_memory_bytes(self) -> Floats:
        return np.array([node.memory_bytes for node in self.nodes])

    def gpus_of_node(self, name: str) -> slice:
        first = self.first_gpu[self.node_level]
        index = self.node_index[name]
        return slice(int(first[index]), int(first[index + 1]))

    def level_index(self, level: str) -> int:
        try:
            return self.levels.index(level)
        except ValueError:
            known = ", ".join(self.levels)
            raise ClusterError(
                f"level {level!r} does not exist in cluster {self.name!r}", remedy=f"use {known}"
            ) from None

    def trees(self) -> Iterator[Cell]:
        """The forest, one tree a GPU type."""
        top = len(self.levels) - 1
        for index in range(len(self.accelerators)):
            yield self._cell(top, index)

    def _cell(self, level: int, index: int) -> Cell:
        start, stop = (int(gpu) for gpu in self.first_gpu[level][index : index + 2])
        nodes = self.nodes[int(self.node_of_gpu[start]) : int(self.node_of_gpu[stop - 1]) + 1]
        children: tuple[Cell, ...] = ()
        if level > 0:
            below = self.first_gpu[level - 1]
            inside = range(int(np.searchsorted(below, start)), int(np.searchsorted(below, stop)))
            children = tuple(self._cell(level - 1, child) for child in inside)
        return Cell(
            level=self.levels[level],
            accelerator=nodes[0].accelerator,
            first_gpu=start,
            gpus=stop - start,
            nodes=tuple(node.name for node in nodes),
            children=children,
        )


def _check_nodes(nodes: tuple[Node, ...]) -> None:
    if not nodes:
        raise ClusterError("the cluster has no nodes", field="nodes", remedy="list at least one node")
    seen: set[str] = set()
    for node in nodes:
        if node.name in seen:
            raise ClusterError(
                f"node {node.name!r} is listed twice", field="nodes", remedy="give each node its own name"
            )
        seen.add(node.name)
        if node.gpus < 1:
            raise ClusterError(f"node {node.name!r} has {node.gpus} GPUs", field="gpus", remedy="give at least 1")
        smaller = 1
        for level, gpus in node.levels:
            if gpus < 1 or node.gpus % gpus or gpus % smaller:
                raise ClusterError(
                    f"{gpus} GPUs per {level} do not divide node {node.name!r} of {node.gpus} GPUs into equal cells",
                    field="levels",
                    remedy="give the GPUs of one cell, e.g. {socket: 4, switch: 2} for a node of 8",
                )
            smaller = gpus


def _levels(nodes: tuple[Node, ...]) -> tuple[str, ...]:
    """All level names, finest first: each before those that come after it in any node."""
    size: dict[str, int] = {}
    coarser: dict[str, set[str]] = {}
    for node in nodes:
        names = [level for level, _ in node.levels]
        for index, (level, gpus) in enumerate(node.levels):
            size[level] = max(gpus, size.get(level, 0))
            coarser.setdefault(level, set()).update(names[index + 1 :])
    inner: list[str] = []
    while len(inner) < len(size):
        left = [level for level in size if level not in inner]
        finest = [level for level in left if not any(level in coarser[other] for other in left)]
        if not finest:
            raise ClusterError(
                f"nodes disagree on which of {', '.join(sorted(left))} is finer", field="levels", remedy="use one order"
            )
        inner.append(min(finest, key=lambda level: (size[level], level)))
    for reserved in (GPU, NODE, CLUSTER, "rack"):
        if reserved in inner:
            raise ClusterError(
                f"{reserved!r} is not a level inside a node", field="levels", remedy="choose another name"
            )
    outer = ["rack"] if any(node.rack for node in nodes) else []
    return (GPU, *inner, NODE, *outer, CLUSTER)


def _rack(node: Node) -> tuple[str, str, str]:
    """A rack holds one type of GPU; a node that names none has one of its own."""
    return node.accelerator, node.rack, "" if node.rack else node.name


def _padded(starts: Ints) -> Ints:
    """The numbers from each start to the next as rows of equal length."""
    sizes = np.diff(starts)
    column = np.arange(int(sizes.max()))
    return np.where(column < sizes[:, None], starts[:-1, None] + column, -1)


def _first_gpus(nodes: tuple[Node, ...], level: str, levels: tuple[str, ...]) -> Ints:
    starts = [0]
    position = 0
    previous: tuple[str, ...] | None = None
    for node in nodes:
        if level == GPU:
            cell_sizes = [1] * node.gpus
        elif level in (NODE, "rack", CLUSTER):
            cell_sizes = [node.gpus]
        else:
            # A node that lacks the level has the next coarser one in its stead.
            own = dict(node.levels)
            coarser = [own[name] for name in levels[levels.index(level) :] if name in own]
            cell_gpus = coarser[0] if coarser else node.gpus
            cell_sizes = [cell_gpus] * (node.gpus // cell_gpus)
        group = {"rack": _rack(node), CLUSTER: (node.accelerator,)}.get(level)
        for gpus in cell_sizes:
            position += gpus
            if group is not None and group == previous:
                starts[-1] = position
            else:
                starts.append(position)
        previous = group
    return np.array(starts, dtype=np.int64)
