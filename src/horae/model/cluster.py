"""The cluster as a forest of cells: gpu < switch < socket < node < rack < row < cluster, one chain per GPU type.

GPUs are numbered so that every cell of every level is a contiguous range. Levels inside nodes have the same names
everywhere, as do levels above nodes. A node that lacks a level uses a neighbouring level instead: inside a node the
next coarser one, above it the next finer one. All chains therefore have the same levels, and callers need no special
cases.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import zip_longest
from math import inf
from typing import Any, NamedTuple

import numpy as np

from horae.model.arrays import Floats, Ints
from horae.model.errors import ClusterError

GPU, NODE, RACK, CLUSTER = "gpu", "node", "rack", "cluster"


class Gpu(NamedTuple):
    """The permanent name of a GPU: its node, and its index there. Positions in arrays are internal."""

    node: str
    number: int

    def __str__(self) -> str:
        return f"{self.node}/{self.number}"

    @classmethod
    def parse(cls, text: str) -> Gpu:
        node, _, number = text.rpartition("/")
        return cls(node, int(number))


@dataclass(frozen=True, slots=True)
class Node:
    name: str
    accelerator: str
    gpus: int
    cpus: float = inf
    memory_bytes: float = inf
    levels: tuple[tuple[str, int], ...] = ()  # levels inside the node: (name, GPUs per cell), finest first
    rack: str = ""  # short for ("rack", name) in front of `above`; "": a separate rack, if other nodes have racks
    price_per_hour: float = 0.0
    above: tuple[tuple[str, str], ...] = ()  # the cells that hold the node: (level, name of the cell), finest first

    def __post_init__(self) -> None:
        if self.above and self.above[0][0] == RACK and not self.rack:  # normalise, so that both notations compare equal
            object.__setattr__(self, "rack", self.above[0][1])
            object.__setattr__(self, "above", tuple(self.above[1:]))

    @property
    def groups(self) -> tuple[tuple[str, str], ...]:
        """The named cells that hold the node, including its rack: (level, name), finest first."""
        return ((RACK, self.rack), *self.above) if self.rack else self.above


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell of the forest, for code that walks it; code that must be fast uses the columns of `Cluster`."""

    level: str
    accelerator: str
    first_gpu: int
    gpus: int
    nodes: tuple[str, ...]
    children: tuple[Cell, ...]
    name: str = ""  # of a node, or of a cell above nodes that has one


@dataclass(frozen=True)
class Cluster:
    name: str
    nodes: tuple[Node, ...]
    restart_seconds: float = 0.0  # checkpoint and restart, for jobs that do not specify it
    levels: tuple[str, ...] = field(init=False)  # finest first, from "gpu" to "cluster"
    accelerators: tuple[str, ...] = field(init=False)  # in the order of the file

    def __post_init__(self) -> None:
        _check_nodes(self.nodes)
        accelerators = tuple(dict.fromkeys(node.accelerator for node in self.nodes))
        inner, outer = level_names(self.nodes)
        object.__setattr__(self, "nodes", _side_by_side(self.nodes, outer))
        object.__setattr__(self, "accelerators", accelerators)
        object.__setattr__(self, "levels", (GPU, *inner, NODE, *outer, CLUSTER))

    @cached_property
    def gpu_count(self) -> int:
        return sum(node.gpus for node in self.nodes)

    @cached_property
    def first_gpu(self) -> tuple[Ints, ...]:
        """By level: the first GPU of each cell, with the total number of GPUs appended."""
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
        """By accelerator: the hourly price of one GPU, averaged over the accelerator's nodes."""
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
        """By level and accelerator: the first GPU of each cell, relative to the chain's first GPU."""
        return tuple(
            {
                name: (first[cells[name][0] : cells[name][1]] - self.chain_gpus[name][0]).astype(np.intp)
                for name in self.accelerators
            }
            for first, cells in zip(self.first_gpu, self.chain_cells, strict=True)
        )

    @cached_property
    def node_starts(self) -> Mapping[str, Ints]:
        """By accelerator: the first GPU of each node, with the end appended."""
        first, cells = self.first_gpu[self.node_level], self.chain_cells[self.node_level]
        return {name: first[start : stop + 1].astype(np.int64) for name, (start, stop) in cells.items()}

    @cached_property
    def largest_cell(self) -> tuple[Mapping[str, int], ...]:
        """By level and accelerator: the GPUs of the largest cell."""
        return tuple(
            {name: int(np.diff(first[cells[name][0] : cells[name][1] + 1]).max()) for name in self.accelerators}
            for first, cells in zip(self.first_gpu, self.chain_cells, strict=True)
        )

    @cached_property
    def cell_gpus(self) -> tuple[Mapping[str, Ints], ...]:
        """By level and accelerator: one row per cell with its GPUs; rows of smaller cells are padded with -1."""
        return tuple(
            {name: _padded(first[cells[name][0] : cells[name][1] + 1]) for name in self.accelerators}
            for first, cells in zip(self.first_gpu, self.chain_cells, strict=True)
        )

    @cached_property
    def cell_word(self) -> tuple[Mapping[str, type[np.unsignedinteger[Any]] | None], ...]:
        """By level and accelerator: the integer type with one byte per GPU of a cell, if all cells have 1, 2,
        4 or 8 GPUs."""
        words: dict[int, type[np.unsignedinteger[Any]]] = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
        return tuple(
            {
                name: words.get(int(sizes[0])) if (sizes == sizes[0]).all() else None
                for name, (start, stop) in cells.items()
                for sizes in (np.diff(first[start : stop + 1]),)
            }
            for first, cells in zip(self.first_gpu, self.chain_cells, strict=True)
        )

    def ancestors(self, accelerator: str, level: int, above: int) -> Ints:
        """By cell of a level: the cell of a higher level that holds it; both relative to the chain's first cell."""
        known = self._ancestors.get((accelerator, level, above))
        if known is None:
            gpus = self.chain_starts[level][accelerator] + self.chain_gpus[accelerator][0]
            known = self.cell_of_gpu[above][gpus] - self.chain_cells[above][accelerator][0]
            self._ancestors[accelerator, level, above] = known
        return known

    @cached_property
    def _ancestors(self) -> dict[tuple[str, int, int], Ints]:
        return {}

    @cached_property
    def is_flat(self) -> bool:
        """Whether gpu, node and cluster are the only levels."""
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

    def names(self, positions: Ints) -> tuple[Gpu, ...]:
        """The names of the GPUs at these positions, in the same order."""
        known = self._names
        return tuple([known.get(position) or self._name(position) for position in positions.tolist()])

    def positions(self, gpus: Iterable[Gpu]) -> Ints:
        """The array positions of named GPUs; raises if a node or one of its GPUs does not exist in this cluster."""
        return np.array([self._position(gpu) for gpu in gpus], dtype=np.int64)

    def has(self, gpu: Gpu) -> bool:
        index = self.node_index.get(gpu.node)
        return index is not None and 0 <= gpu.number < self.nodes[index].gpus

    @cached_property
    def _names(self) -> dict[int, Gpu]:
        return {}

    @cached_property
    def _first_of_node(self) -> list[int]:
        return self.first_gpu[self.node_level].tolist()

    def _name(self, position: int) -> Gpu:
        node = int(self.node_of_gpu[position])
        name = self._names[position] = Gpu(self.nodes[node].name, position - self._first_of_node[node])
        return name

    def _position(self, gpu: Gpu) -> int:
        if not self.has(gpu):
            raise ClusterError(f"there is no GPU {gpu} in cluster {self.name!r}", field="gpus")
        return self._first_of_node[self.node_index[gpu.node]] + gpu.number

    def level_index(self, level: str) -> int:
        try:
            return self.levels.index(level)
        except ValueError:
            known = ", ".join(self.levels)
            raise ClusterError(
                f"level {level!r} does not exist in cluster {self.name!r}", remedy=f"use {known}"
            ) from None

    def trees(self) -> Iterator[Cell]:
        """The forest, one tree per GPU type."""
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
            name=nodes[0].name if level == self.node_level else dict(nodes[0].groups).get(self.levels[level], ""),
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
    _check_groups(nodes)


def _check_groups(nodes: tuple[Node, ...]) -> None:
    """Checks that a node is in one cell per level,
    and that cells of equal level and name are one cell in one coarser cell."""
    parent: dict[tuple[str, str], tuple[str, str]] = {}
    for node in nodes:
        levels = [level for level, _ in node.groups]
        if len(set(levels)) < len(levels) or not all(name and level for level, name in node.groups):
            raise ClusterError(
                f"node {node.name!r} names a level above it twice, or without a cell",
                field="above",
                remedy="name each level once, with the name of a cell",
            )
        for own, coarser in zip_longest(node.groups, node.groups[1:], fillvalue=("", "")):
            known = parent.setdefault(own, coarser)
            if known != coarser:
                one, other = (f"{level} {name!r}" if level else "no coarser cell" for level, name in (known, coarser))
                raise ClusterError(
                    f"{own[0]} {own[1]!r} is in {one} and, for node {node.name!r}, in {other}",
                    field="above",
                    remedy="give cells that differ names that differ",
                )


def level_names(nodes: Sequence[Node]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of all levels inside nodes, and of all levels above nodes, finest first."""
    inner = _in_order({node.levels for node in nodes}, "levels")
    nodes_of: dict[tuple[str, str, str], int] = {}
    for node in nodes:
        for level, name in node.groups:
            nodes_of[node.accelerator, level, name] = nodes_of.get((node.accelerator, level, name), 0) + 1
    outer = _in_order(
        {
            tuple((level, nodes_of[node.accelerator, level, name]) for level, name in node.groups)
            for node in nodes
            if node.groups
        },
        "above",
    )
    for reserved in (GPU, NODE, CLUSTER, RACK, *outer):
        if reserved in inner:
            raise ClusterError(
                f"{reserved!r} is not a level inside a node", field="levels", remedy="choose another name"
            )
    for reserved in (GPU, NODE, CLUSTER):
        if reserved in outer:
            raise ClusterError(f"{reserved!r} is not a level above a node", field="above", remedy="choose another name")
    return inner, outer


def _in_order(chains: Iterable[tuple[tuple[str, int], ...]], field: str) -> tuple[str, ...]:
    """All level names, finest first: each precedes the names that follow it in any node."""
    size: dict[str, int] = {}
    coarser: dict[str, set[str]] = {}
    for chain in chains:
        names = [level for level, _ in chain]
        for index, (level, units) in enumerate(chain):
            size[level] = max(units, size.get(level, 0))
            coarser.setdefault(level, set()).update(names[index + 1 :])
    ordered: list[str] = []
    while len(ordered) < len(size):
        left = [level for level in size if level not in ordered]
        finest = [level for level in left if not any(level in coarser[other] for other in left)]
        if not finest:
            raise ClusterError(
                f"nodes disagree on which of {', '.join(sorted(left))} is finer", field=field, remedy="use one order"
            )
        ordered.append(min(finest, key=lambda level: (size[level], level)))
    return tuple(ordered)


def cell_key(node: Node, level: str, levels: Sequence[str]) -> tuple[str, str, str]:
    """The cell of a level above the node that holds it: GPU type, level, name.

    A node that lacks the level is in the coarsest of its finer cells, or alone. A cell holds one type of GPU.
    """
    found = NODE, node.name
    for own in node.groups:
        if levels.index(own[0]) > levels.index(level):
            break
        found = own
    return node.accelerator, *found


def _side_by_side(nodes: tuple[Node, ...], outer: tuple[str, ...]) -> tuple[Node, ...]:
    """Sorts nodes so that those of one type are adjacent, and within a type those of one cell of each level, coarse
    first.

    Every cell thus becomes a range of GPU numbers. The sort is idempotent: a cluster read back from a journal has the
    same numbers.
    """
    columns: list[list[Hashable]] = [[node.accelerator for node in nodes]]
    columns += [[cell_key(node, level, outer) for node in nodes] for level in reversed(outer)]
    ranks = []
    for column in columns:
        rank = {key: index for index, key in enumerate(dict.fromkeys(column))}
        ranks.append([rank[key] for key in column])
    return tuple(nodes[index] for _, index in sorted(zip(zip(*ranks, strict=True), range(len(nodes)), strict=True)))


def _padded(starts: Ints) -> Ints:
    """The numbers from each start to the next, as rows of equal length."""
    sizes = np.diff(starts)
    column = np.arange(int(sizes.max()))
    return np.where(column < sizes[:, None], starts[:-1, None] + column, -1)


def _first_gpus(nodes: tuple[Node, ...], level: str, levels: tuple[str, ...]) -> Ints:
    sizes: list[int] = []
    if levels.index(level) > levels.index(NODE):
        previous = None
        for node in nodes:
            cell = (node.accelerator,) if level == CLUSTER else cell_key(node, level, levels)
            if cell == previous:
                sizes[-1] += node.gpus
            else:
                sizes.append(node.gpus)
            previous = cell
    else:
        finer = levels.index(level)
        for node in nodes:
            cell_gpus = _cell_gpus(node, levels[finer : levels.index(NODE)]) if level != GPU else 1
            sizes += [cell_gpus] * (node.gpus // cell_gpus)
    return np.concatenate(([0], np.cumsum(np.array(sizes, dtype=np.int64))))


def _cell_gpus(node: Node, levels: tuple[str, ...]) -> int:
    """GPUs per cell of the first of these levels; a node that lacks the level uses the next coarser one."""
    own = dict(node.levels)
    return next((own[level] for level in levels if level in own), node.gpus)
