"""Best fit into the lowest common cell.

A gang goes into the smallest cell that can hold it, among those the fullest, and so on up the tree: large cells stay
whole for large gangs. A gang that must span nodes takes as few as it can. Everything here is a pure function of which
GPUs are available; where a demand names nodes, the caller makes only those available (see `on_nodes`).
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from horae.model.arrays import Bools, Ints
from horae.model.cells import Cluster
from horae.model.plans import Riders, Spot
from horae.model.shapes import Demand, Shape
from horae.placement.packing import Packing


def on_nodes(cluster: Cluster, names: Collection[str]) -> Bools:
    """By GPU: whether it is on one of these nodes. Names of nodes that the cluster lacks are passed over."""
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
    if np.count_nonzero(free) < shape.gpus:  # what a full cluster is asked most often
        return None
    by_node = _free_by_node(cluster, shape.accelerator, free)
    if demand.cpus_per_gpu or demand.memory_bytes_per_gpu:
        by_node = np.minimum(by_node, _carried(cluster, available, riders, demand, shape.accelerator))
    search = _Search(cluster, shape.accelerator, bounds[0], free, by_node)
    # One GPU alone is sought from the cells just above it: all GPUs are alike, their neighbourhoods are not.
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


def _free_by_node(cluster: Cluster, accelerator: str, free: Bools) -> Ints:
    word = cluster.node_word[accelerator]
    if word is not None:
        # The GPUs of a node are the bytes of one machine word, each 0 or 1: counting its bits counts them.
        return np.bitwise_count(free.view(word))
    starts = cluster.chain_starts[cluster.node_level][accelerator]
    return np.add.reduceat(free, starts, dtype=np.int64)


def _carried(cluster: Cluster, available: Bools, riders: Riders, demand: Demand, accelerator: str) -> Ints:
    """By node of the chain: how many GPUs its spare CPUs and memory can carry."""
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
            # A hair of tolerance: 0.1 CPUs ten times over must fill one CPU.
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
        counts = self._count(level)
        if self.cluster.is_flat:
            # Unsigned, what is too small becomes very large: the least slack is the fullest node that fits.
            unsigned = counts if counts.dtype.kind == "u" else counts.astype(np.uint64)
            cell = int((unsigned - gpus).argmin())
            return self._pick(level, cell, gpus) + self.first_gpu if counts[cell] >= gpus else None
        candidates = np.flatnonzero(counts >= gpus)
        if level < self.node_level and len(candidates):
            candidates = candidates[self.by_node[self._ancestor(level, candidates, self.node_level)] >= gpus]
        if not len(candidates):
            return None
        cell = self._fullest(level, candidates)
        return self._pick(level, cell, gpus) + self.first_gpu

    def across_nodes(self, level: int, gpus: int, member_gpus: int) -> Ints | None:
        members, remainder = divmod(gpus, member_gpus)
        self.by_node = self.by_node.astype(np.int64)
        nodes = np.arange(len(self.by_node))
        cell_of_node = self._ancestor(self.node_level, nodes, level)
        by_cell = np.bincount(cell_of_node, weights=self.by_node // member_gpus)
        for cell in self._by_fullness(level, np.flatnonzero(by_cell >= members)):
            inside = nodes[cell_of_node == cell]
            taken = self._spread(inside, members, member_gpus, remainder)
            if taken is not None:
                return self._picked(taken)
        return None

    def in_sizes(self, level: int, packing: Packing) -> Ints | None:
        """The same for members of several sizes."""
        cell_of_node = self._ancestor(self.node_level, np.arange(len(self.by_node)), level)
        by_cell = np.bincount(cell_of_node, weights=self.by_node)
        for cell in self._by_fullness(level, np.flatnonzero(by_cell >= packing.gpus)):
            inside = np.flatnonzero(cell_of_node == cell)
            packed = packing.into(self.by_node[inside].astype(np.int64))
            if packed is not None:
                taken = np.zeros(len(self.by_node), dtype=np.int64)
                taken[inside] = packed
                return self._picked(taken)
        return None

    def _picked(self, taken: Ints) -> Ints:
        """So many GPUs of each node."""
        picks = [self._pick(self.node_level, int(node), int(taken[node])) for node in np.flatnonzero(taken)]
        return np.sort(np.concatenate(picks)) + self.first_gpu

    def _spread(self, nodes: Ints, members: int, member_gpus: int, remainder: int) -> Ints | None:
        """By node, the GPUs to take: as few nodes as possible, the last part where it fits most tightly."""
        order = nodes[np.argsort(-self.by_node[nodes], kind="stable")]
        whole = self.by_node[order] // member_gpus
        reached = np.cumsum(whole)
        last = int(np.searchsorted(reached, members))
        left = members - (int(reached[last - 1]) if last else 0)
        taken = np.zeros(len(self.by_node), dtype=np.int64)
        taken[order[:last]] = whole[:last] * member_gpus
        slack = (self.by_node - taken)[order[:last]]
        apart = bool(remainder) and bool((slack >= remainder).any())  # it fits beside others, in a node already taken
        together = left * member_gpus + (0 if apart else remainder)
        tight = np.sort(order[last:][whole[last:] >= left])
        if (self.by_node[tight] >= together).any():
            tight = tight[self.by_node[tight] >= together]
        else:
            together, apart = left * member_gpus, bool(remainder)
        taken[tight[np.argmin(self.by_node[tight])]] += together
        if not apart:
            return taken
        spare = self.by_node - taken
        fitting = nodes[spare[nodes] >= remainder]
        if not len(fitting):
            return None
        best = np.lexsort((fitting, spare[fitting], taken[fitting] == 0))[0]
        taken[fitting[best]] += remainder
        return taken

    def _count(self, level: int) -> Ints:
        if level not in self.counts:
            starts = self.cluster.chain_starts[level][self.accelerator]
            self.counts[level] = np.add.reduceat(self.free, starts, dtype=np.int64)
        return self.counts[level]

    def _ancestor(self, level: int, cells: Ints, above: int) -> Ints:
        """The cells at a higher level that hold these, both counted from the chain's first."""
        gpus = self.cluster.chain_starts[level][self.accelerator][cells] + self.first_gpu
        return self.cluster.cell_of_gpu[above][gpus] - self.cluster.chain_cells[above][self.accelerator][0]

    def _fullest(self, level: int, candidates: Ints) -> int:
        """Among cells that fit: the fullest, then that in the fullest parent, and so on; at last the first."""
        top = len(self.cluster.levels) - 1
        for above in range(level, top):
            if len(candidates) == 1:
                break
            parents = candidates if above == level else self._ancestor(level, candidates, above)
            counts = self._count(above)[parents]
            candidates = candidates[counts == counts.min()]
        return int(candidates[0])

    def _by_fullness(self, level: int, cells: Ints) -> list[int]:
        counts = self._count(level)
        return sorted((int(cell) for cell in cells), key=lambda cell: (counts[cell], cell))

    def _pick(self, level: int, cell: int, gpus: int) -> Ints:
        """That many free GPUs of one cell, out of as few of its children as possible."""
        starts = self.cluster.chain_starts[level][self.accelerator]
        stop = starts[cell + 1] if cell + 1 < len(starts) else len(self.free)
        inside = self.free[starts[cell] : stop].nonzero()[0] + starts[cell]
        if level <= 1 or len(inside) == gpus:
            return inside[:gpus]
        first_child = int(np.searchsorted(self.cluster.chain_starts[level - 1][self.accelerator], starts[cell]))
        last_child = int(np.searchsorted(self.cluster.chain_starts[level - 1][self.accelerator], stop))
        counts = self._count(level - 1)[first_child:last_child].copy()
        parts: list[Ints] = []
        left = gpus
        for child in np.argsort(-counts, kind="stable"):
            if not left:
                break
            if counts[child] >= left:
                tight = np.flatnonzero(counts >= left)
                child = tight[np.argmin(counts[tight])]  # noqa: PLW2901
            here = min(left, int(counts[child]))
            parts.append(self._pick(level - 1, first_child + int(child), here))
            counts[child] = 0
            left -= here
        return np.sort(np.concatenate(parts))
