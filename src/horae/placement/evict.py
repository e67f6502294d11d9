"""Whom to ask to leave when a gang fits only over others: the fewest, and of those the last in rank."""

from __future__ import annotations

import numpy as np

from horae.model.arrays import Bools
from horae.model.cells import Cluster
from horae.model.plans import Contest, Spot
from horae.model.shapes import Demand, Shape
from horae.placement.fit import Riders, place


def place_over(cluster: Cluster, contest: Contest, riders: Riders, demand: Demand, shape: Shape) -> Spot | None:
    """GPUs for a gang, some of them held by leases that would have to end, or None."""
    if place(cluster, contest.free | contest.yielding, riders, demand, shape) is None:
        return None
    if cluster.level_index(shape.level) <= cluster.node_level:
        within = _fewest_in_one_node(cluster, contest, shape)
        found = place(cluster, within, riders, demand, shape)
        if found is not None:
            return found
    return _last_in_rank(cluster, contest, riders, demand, shape)


def _fewest_in_one_node(cluster: Cluster, contest: Contest, shape: Shape) -> Bools:
    """The GPUs of the node where the fewest leases must end, once those have ended."""
    free, yielding, holder = contest.free, contest.yielding, contest.holder
    start, stop = cluster.chain_gpus[shape.accelerator]
    nodes = len(cluster.nodes)
    node_of = cluster.node_of_gpu
    gpus = np.flatnonzero(yielding[start:stop]) + start
    free_by_node = np.bincount(node_of[start:stop][free[start:stop]], minlength=nodes)
    needed = shape.gpus - free_by_node
    # One entry for each (node, lease), with the GPUs that the lease holds there; the largest of a node first.
    epochs, lease = np.unique(holder[gpus], return_inverse=True)
    keys, first, held = np.unique(node_of[gpus] * len(epochs) + lease, return_index=True, return_counts=True)
    node = keys // len(epochs)
    order = np.lexsort((-contest.rank[gpus[first]], -held, node))
    node, held, keys = node[order], held[order], keys[order]
    before = np.cumsum(held) - held
    before -= before[np.searchsorted(node, node)]
    leaves = before < needed[node]
    victims = np.bincount(node[leaves], minlength=nodes)
    reached = free_by_node + np.bincount(node, weights=held, minlength=nodes)
    fitting = np.flatnonzero(reached >= shape.gpus)
    if not len(fitting):
        return np.zeros_like(free)
    # Fewest victims; then the fullest node; then the first.
    chosen = fitting[np.lexsort((fitting, free_by_node[fitting], victims[fitting]))[0]]
    leaving = epochs[keys[leaves & (node == chosen)] % len(epochs)]
    return (node_of == chosen) & (free | (yielding & np.isin(holder, leaving)))


def _last_in_rank(cluster: Cluster, contest: Contest, riders: Riders, demand: Demand, shape: Shape) -> Spot | None:
    """The fewest leases, counted from the last in rank, that make the gang fit; found by bisection."""
    start, stop = cluster.chain_gpus[shape.accelerator]
    gpus = np.flatnonzero(contest.yielding[start:stop]) + start
    ranks = np.unique(contest.rank[gpus])[::-1]

    def attempt(count: int) -> Spot | None:
        leaving = np.zeros_like(contest.free)
        leaving[gpus[contest.rank[gpus] >= ranks[count - 1]]] = True
        return place(cluster, contest.free | leaving, riders, demand, shape)

    low, high = 1, len(ranks)
    while low < high:
        middle = (low + high) // 2
        if attempt(middle) is None:
            low = middle + 1
        else:
            high = middle
    return attempt(low)
