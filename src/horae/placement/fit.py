"""Best fit into the lowest common cell.

A gang goes into the smallest cell that can hold it, among those the fullest, and so on up the tree: large cells stay
whole for large gangs. A gang that must span nodes takes as few as it can. How a cell or nodes are chosen is written in
`fit_rules`; this module iterates over the cells of all levels, and considers CPUs, memory and members of several sizes.
Everything is a pure function of which GPUs are available; where a demand names nodes, the caller makes only those
available (see `on_nodes`).
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from horae.model.arrays import Bools, Ints
from horae.model.cluster import Cluster
from horae.model.plans import Riders, Spot
from horae.model.shapes import Demand, Shape
from horae.placement.fit_rules import NOWHERE, find, spread, tightest
from horae.placement.packing import Packing


def on_nodes(cluster: Cluster, names: Collection[str]) -> Bools:
    """By GPU: whether it is on one of these nodes. Names of nodes that the cluster lacks are ignored."""
    mask = np.zeros(cluster.gpu_count, dtype=bool)
    for name in names:
        if name in cluster.node_index:
            mask[cluster.gpus_of_node(name)] = True
    return mask


def place(cluster: Cluster, available: Bools, riders: Riders, demand: Demand, shape: Shape) -> Spot | None:
    """GPUs for a gang of this shape, or None. The level obtained may be finer than the one asked for."""
    bounds = cluster.chain_gpus.get(shape.accelerator)
    if bounds is None or shape.level not in cluster.levels:
        return None
    free = available[bounds[0] : bounds[1]]
    if np.count_nonzero(free) < shape.gpus:  # the most frequent question in a full cluster
        return None
    by_node = _count_free(cluster, shape.accelerator, cluster.node_level, free)
    if demand.cpus_per_gpu or demand.memory_bytes_per_gpu:
        by_node = np.minimum(by_node, _carried(cluster, available, riders, demand, shape.accelerator))
    if cluster.is_flat and not demand.members:
        members = min(demand.member_gpus, shape.gpus)
        starts, highest = cluster.node_starts[shape.accelerator], cluster.level_index(shape.level)
        level, gpus = find(available, starts, by_node, shape.gpus, members, highest)
        return None if level == NOWHERE else Spot(gpus, level)
    search = _Search(cluster, shape.accelerator, bounds[0], free, by_node)
    # A single GPU is sought from the cells just above it: all GPUs are alike, their neighbourhoods are not.
    highest = max(cluster.level_index(shape.level), int(shape.gpus == 1))
    packing: Packing | None = None
    for level in range(1, highest + 1):
        if cluster.largest_cell[level][shape.accelerator] < shape.gpus:
            continue
        if level <= cluster.node_level:
            found = search.in_one_cell(level, shape.gpus)
        elif demand.members:
            packing = packing or Packing(demand.members)
            found = search.in_sizes(level, packing) if packing.gpus == shape.gpus else None
        else:
            found = search.across_nodes(level, shape.gpus, min(demand.member_gpus, shape.gpus))
        if found is not None:
            return Spot(found, level if shape.gpus > 1 else 0)
    return None


def _count_free(cluster: Cluster, accelerator: str, level: int, free: Bools) -> Ints:
    """By cell of a level: how many of its GPUs are free. `free` has the GPUs of the chain."""
    word = cluster.cell_word[level][accelerator]
    if word is not None:
        # The GPUs of a cell are the bytes of one machine word, each 0 or 1: counting its bits counts them.
        return np.bitwise_count(free.view(word)).astype(np.int64)
    return np.add.reduceat(free, cluster.chain_starts[level][accelerator], dtype=np.int64)


def _carried(cluster: Cluster, available: Bools, riders: Riders, demand: Demand, accelerator: str) -> Ints:
    """By node of the chain: how many GPUs its spare CPUs and memory support."""
    first, last = cluster.chain_cells[cluster.node_level][accelerator]
    start, stop = cluster.chain_gpus[accelerator]
    starts = cluster.chain_starts[cluster.node_level][accelerator]
    used = ~available[start:stop]
    carried = np.full(last - first, np.iinfo(np.int64).max, dtype=np.float64)
    for per_gpu, total, held in (
        (demand.cpus_per_gpu, cluster.node_cpus, riders.cpus),
        (demand.memory_bytes_per_gpu, cluster.node_memory_bytes, riders.memory_bytes),
    ):
        if per_gpu:
            spare = total[first:last] - np.add.reduceat(held[start:stop] * used, starts)
            # A small tolerance: 0.1 CPUs ten times over must fill one CPU.
            carried = np.minimum(carried, np.floor(spare / per_gpu + 1e-9))
    return np.clip(carried, 0, 2**31).astype(np.int64)


class _Search:
    """One search in one chain; cells and GPUs are counted from the chain's first until the answer is given."""

    def __init__(self, cluster: Cluster, accelerator: str, first_gpu: int, free: Bools, by_node: Ints) -> None:
        self.cluster = cluster
        self.accelerator = accelerator
        self.first_gpu = first_gpu
        self.free = free
        self.by_node = by_node  # usable GPUs, with CPUs and memory considered
        self.node_level = cluster.node_level
        self.counts: dict[int, Ints] = {self.node_level: by_node}

    def in_one_cell(self, level: int, gpus: int) -> Ints | None:
        room = self._count(level)
        if level < self.node_level:
            room = np.where(self.by_node[self._ancestors(level, self.node_level)] >= gpus, room, 0)
        cell = tightest(room, gpus)
        if cell < 0:
            return None
        cell = self._in_the_fullest(level, np.flatnonzero(room == room[cell]))
        return self._pick(level, cell, gpus) + self.first_gpu

    def across_nodes(self, level: int, gpus: int, member_gpus: int) -> Ints | None:
        cell_of_node = self._ancestors(self.node_level, level)
        by_cell = np.bincount(cell_of_node, weights=self.by_node // member_gpus)
        for cell in self._by_fullness(level, np.flatnonzero(by_cell >= gpus // member_gpus)):
            inside = np.flatnonzero(cell_of_node == cell)
            taken = spread(self.by_node[inside], gpus, member_gpus)
            if len(taken):
                return self._picked(inside, taken)
        return None

    def in_sizes(self, level: int, packing: Packing) -> Ints | None:
        """GPUs for members of several sizes, or None."""
        cell_of_node = self._ancestors(self.node_level, level)
        by_cell = np.bincount(cell_of_node, weights=self.by_node)
        for cell in self._by_fullness(level, np.flatnonzero(by_cell >= packing.gpus)):
            inside = np.flatnonzero(cell_of_node == cell)
            taken = packing.into(self.by_node[inside])
            if taken is not None:
                return self._picked(inside, taken)
        return None

    def _picked(self, nodes: Ints, taken: Ints) -> Ints:
        """The given number of GPUs from each of these nodes."""
        each = zip(nodes[taken > 0].tolist(), taken[taken > 0].tolist(), strict=True)
        picks = [self._pick(self.node_level, node, gpus) for node, gpus in each]
        return np.sort(np.concatenate(picks)) + self.first_gpu

    def _count(self, level: int) -> Ints:
        if level not in self.counts:
            self.counts[level] = _count_free(self.cluster, self.accelerator, level, self.free)
        return self.counts[level]

    def _ancestors(self, level: int, above: int) -> Ints:
        return self.cluster.ancestors(self.accelerator, level, above)

    def _in_the_fullest(self, level: int, cells: Ints) -> int:
        """Among cells that are equally full: the one in the fullest parent, and so on; finally the first."""
        for above in range(level + 1, len(self.cluster.levels) - 1):
            if len(cells) == 1:
                break
            counts = self._count(above)[self._ancestors(level, above)[cells]]
            cells = cells[counts == counts.min()]
        return int(cells[0])

    def _by_fullness(self, level: int, cells: Ints) -> list[int]:
        counts = self._count(level)
        return sorted((int(cell) for cell in cells), key=lambda cell: (counts[cell], cell))

    def _pick(self, level: int, cell: int, gpus: int) -> Ints:
        """That many free GPUs of one cell, from as few of its children as possible."""
        starts = self.cluster.chain_starts[level][self.accelerator]
        stop = starts[cell + 1] if cell + 1 < len(starts) else len(self.free)
        inside = self.free[starts[cell] : stop].nonzero()[0] + starts[cell]
        if level <= 1 or len(inside) == gpus:
            return inside[:gpus]
        first_child = int(np.searchsorted(self.cluster.chain_starts[level - 1][self.accelerator], starts[cell]))
        last_child = int(np.searchsorted(self.cluster.chain_starts[level - 1][self.accelerator], stop))
        taken = spread(self._count(level - 1)[first_child:last_child], gpus, 1)
        parts = [self._pick(level - 1, first_child + child, int(taken[child])) for child in taken.nonzero()[0].tolist()]
        return np.sort(np.concatenate(parts))


# The levels that gangs would get, for callers that must know in advance: by counts per node, without GPUs.

NONE = -1


def levels_of(cluster: Cluster, free: Bools, accelerator: str, gangs: Ints) -> Ints:
    """By gang, one after the other: the level of the smallest cell with room, the fullest of those; -1: none."""
    nodes = cluster.chain_cells[cluster.node_level].get(accelerator)
    levels = np.full(len(gangs), NONE)
    if nodes is None:
        return levels
    first, stop = nodes
    starts = cluster.first_gpu[cluster.node_level]
    room = np.add.reduceat(free, starts[:-1], dtype=np.int64)[first:stop]
    # By level above the node: the cell of each node, counted from the first of the chain.
    cells = []
    for level in range(cluster.node_level + 1, len(cluster.levels)):
        cell = cluster.cell_of_gpu[level][starts[first:stop]]
        cells.append((level, cell - cell[0]))
    for index, gpus in enumerate(gangs.tolist()):
        levels[index] = _take(room, cluster.node_level, cells, gpus)
    return levels


def _take(room: Ints, node_level: int, cells: list[tuple[int, Ints]], gpus: int) -> int:
    """Take that many GPUs from nodes with room for them, and return the level."""
    node = tightest(room, gpus)
    if node >= 0:
        room[node] -= gpus
        return node_level
    for level, cell in cells:
        chosen = tightest(np.bincount(cell, weights=room).astype(np.int64), gpus)
        if chosen >= 0:
            members = np.flatnonzero((cell == chosen) & (room > 0))
            members = members[np.argsort(-room[members], kind="stable")]  # as few nodes as possible, as in placement
            taken = np.minimum(room[members], np.maximum(gpus - (np.cumsum(room[members]) - room[members]), 0))
            room[members] -= taken
            return level
    return NONE
