"""Whom to ask to leave when a gang fits only over others.

The last in rank go first: a better one, once displaced, would only displace those in its turn, and all would restart.
Of the leases that could go, no more than needed do.
"""

from __future__ import annotations

import numpy as np

from horae.model.arrays import Bools, Ints
from horae.model.cells import Cluster
from horae.model.plans import Contest, Spot
from horae.model.shapes import Demand, Shape
from horae.placement.fit import Riders, place


def place_over(cluster: Cluster, contest: Contest, riders: Riders, demand: Demand, shape: Shape) -> Spot | None:
    """GPUs for a gang, some of them held by leases that would have to end, or None."""
    if place(cluster, contest.free | contest.yielding, riders, demand, shape) is None:
        return None
    level = cluster.level_index(shape.level)
    if level <= cluster.node_level:
        cells = cluster.cell_of_gpu[max(level, 1)]
        cell = _cell_of_the_last(cluster, contest, cells, shape)
        if cell is not None:
            found = place(cluster, _spare(contest, cells, cell, shape.gpus), riders, demand, shape)
            if found is not None:
                return found
    # The gang spans nodes, or the CPUs of those who stay stand in its way.
    leaving = _fewest_ranks(cluster, contest, riders, demand, shape)
    found = place(cluster, contest.free | leaving, riders, demand, shape)
    return found and _refine(cluster, contest._replace(yielding=leaving), riders, demand, shape, found)


def _cell_of_the_last(cluster: Cluster, contest: Contest, cells: Ints, shape: Shape) -> int | None:
    """The cell where the gang fits once those have left who rank last; of equals the fullest, then the first."""
    start, stop = cluster.chain_gpus[shape.accelerator]
    count = int(cells[-1]) + 1
    free = np.bincount(cells[start:stop][contest.free[start:stop]], minlength=count)
    needed = shape.gpus - free
    gpus = np.flatnonzero(contest.yielding[start:stop]) + start
    gpus = gpus[np.lexsort((-contest.rank[gpus], cells[gpus]))]
    # Counted from the last in rank, the GPU that completes the gang: its holder is the best that would have to go.
    nth = np.arange(len(gpus)) - np.searchsorted(cells[gpus], cells[gpus])
    completing = gpus[nth == needed[cells[gpus]] - 1]
    if not len(completing):
        return None
    order = np.lexsort((completing, free[cells[completing]], -contest.rank[completing]))
    return int(cells[completing[order[0]]])


def _spare(contest: Contest, cells: Ints, cell: int, gpus: int) -> Bools:
    """Of one cell: what is free, and what becomes free once just enough leases have left, the last in rank first."""
    inside = cells == cell
    free = inside & contest.free
    yielding = np.flatnonzero(inside & contest.yielding)
    epochs, first, held = np.unique(contest.holder[yielding], return_index=True, return_counts=True)
    order = np.argsort(-contest.rank[yielding[first]], kind="stable")
    needed = gpus - int(np.count_nonzero(free))
    before = np.cumsum(held[order]) - held[order]
    going = order[before < needed]
    surplus = int(held[going].sum()) - needed
    staying = []
    # The smallest first, so that as many as possible may stay.
    for index in going[np.argsort(held[going], kind="stable")]:
        if held[index] <= surplus:
            surplus -= int(held[index])
            staying.append(index)
    leaving = np.setdiff1d(epochs[going], epochs[staying] if staying else [])
    free[yielding[np.isin(contest.holder[yielding], leaving)]] = True
    return free


def _fewest_ranks(cluster: Cluster, contest: Contest, riders: Riders, demand: Demand, shape: Shape) -> Bools:
    """The GPUs of the fewest leases, counted from the last in rank, that make the gang fit; found by bisection."""
    start, stop = cluster.chain_gpus[shape.accelerator]
    gpus = np.flatnonzero(contest.yielding[start:stop]) + start
    ranks = np.unique(contest.rank[gpus])[::-1]

    def leaving(count: int) -> Bools:
        mask = np.zeros_like(contest.free)
        mask[gpus[contest.rank[gpus] >= ranks[count - 1]]] = True
        return mask

    low, high = 1, len(ranks)
    while low < high:
        middle = (low + high) // 2
        if place(cluster, contest.free | leaving(middle), riders, demand, shape) is None:
            low = middle + 1
        else:
            high = middle
    return leaving(low)


def _refine(cluster: Cluster, contest: Contest, riders: Riders, demand: Demand, shape: Shape, found: Spot) -> Spot:
    """The same nodes, but free GPUs before held ones, and no more leases ended than needed."""
    nodes = cluster.node_of_gpu
    within = np.zeros_like(contest.free)
    for node, gpus in zip(*np.unique(nodes[found.gpus], return_counts=True), strict=True):
        within |= _spare(contest, nodes, int(node), int(gpus))
    return place(cluster, within, riders, demand, shape) or found
