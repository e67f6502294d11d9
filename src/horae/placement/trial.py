"""What levels gangs would get, for those who must know before they ask: counts by node only, no GPUs."""

from __future__ import annotations

import numpy as np

from horae.model.arrays import Bools, Ints
from horae.model.cells import Cluster
from horae.placement.rules import tightest

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
    # By level above the node: in which of its cells each node lies, counted from the first of the chain.
    cells = []
    for level in range(cluster.node_level + 1, len(cluster.levels)):
        cell = cluster.cell_of_gpu[level][starts[first:stop]]
        cells.append((level, cell - cell[0]))
    for index, gpus in enumerate(gangs.tolist()):
        levels[index] = _take(room, cluster.node_level, cells, gpus)
    return levels


def _take(room: Ints, node_level: int, cells: list[tuple[int, Ints]], gpus: int) -> int:
    """Take that many GPUs from nodes with room for them, and tell the level."""
    node = tightest(room, gpus)
    if node >= 0:
        room[node] -= gpus
        return node_level
    for level, cell in cells:
        chosen = tightest(np.bincount(cell, weights=room).astype(np.int64), gpus)
        if chosen >= 0:
            members = np.flatnonzero((cell == chosen) & (room > 0))
            members = members[np.argsort(-room[members], kind="stable")]  # few nodes, as placement has it
            taken = np.minimum(room[members], np.maximum(gpus - (np.cumsum(room[members]) - room[members]), 0))
            room[members] -= taken
            return level
    return NONE
