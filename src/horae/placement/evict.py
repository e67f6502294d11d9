"""The order of victims: which leases must end when a gang fits only over others.

The last in rank are evicted first, and no more leases than needed. As in `fit_rules`, every rule is a plain function
on arrays in the subset of NumPy that numba supports: `place_over` calls them for clusters of any kind, `flat_kernel`
compiles them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import numpy as np

from horae.model.arrays import Bools, Ints
from horae.model.cluster import Cluster
from horae.model.plans import Contest, Riders, Spot
from horae.model.shapes import Demand, Shape
from horae.placement.fit import place

STAYS = -1  # in place of a rank: below every rank
FREE = np.iinfo(np.int64).max

Gang = TypeVar("Gang")


def last_alone(free: Bools, yielding: Bools, rank: Ints) -> int:
    """The GPU whose holder is the only one last in rank, if no GPU is free: there is no other choice; -1: none."""
    if free.any():
        return -1
    standing = np.where(yielding, rank, STAYS)
    gpu = int(standing.argmax())
    last = standing[gpu]
    return -1 if last == STAYS or np.count_nonzero(standing == last) > 1 else gpu


def last_of_one_cell(free: Bools, yielding: Bools, holder: Ints, rank: Ints, cells: Ints, gpus: int) -> Ints:
    """The leases to end in the cell where they rank last; of equals, where they are fewest; empty: no such cell.

    `cells`: the GPUs of each; the row of a smaller cell ends in -1.
    """
    leaving = np.zeros(0, np.int64)
    spare = cells.shape[1] - gpus
    if spare < 0:
        return leaving
    standing = np.where(yielding, rank, STAYS)
    standing[free] = FREE
    standing = np.append(standing, STAYS)[cells]
    # Counted from the last in rank, the GPU that completes the gang: its holder is the best that would be evicted.
    completing = np.partition(standing, spare)[:, spare]
    last = completing.max()
    if last == STAYS:
        return leaving
    fewest = (0, -1)  # leases that end, GPUs that are free
    for cell in (completing == last).nonzero()[0]:
        inside = cells[cell][cells[cell] >= 0]
        idle = int(np.count_nonzero(free[inside]))
        inside = inside[yielding[inside]]
        ending = just_enough(holder[inside].tolist(), rank[inside].tolist(), gpus - idle)
        if fewest[1] < 0 or (len(ending), idle) < fewest:
            leaving, fewest = np.array(ending), (len(ending), idle)
    return leaving


def just_enough(holder: list[int], rank: list[int], needed: int) -> list[int]:
    """Leases whose end frees that many of these GPUs: the last in rank, without those that prove superfluous.

    A cell has a handful of GPUs: plain lists are faster than arrays.
    """
    going: list[int] = []
    held: list[int] = []
    surplus = -needed
    for _, lease in sorted([(-rank[gpu], holder[gpu]) for gpu in range(len(holder))]):
        if going and going[-1] == lease:
            held[-1] += 1
        elif surplus < 0:
            going.append(lease)
            held.append(1)
        else:
            break
        surplus += 1
    leaving: list[int] = []
    # The smallest first, so that as many as possible may stay.
    for count, index in sorted([(held[index], index) for index in range(len(held))]):
        if count <= surplus:
            surplus -= count
        else:
            leaving.append(going[index])
    return sorted(leaving)


def last_of_all(fits: Callable[[Gang, Bools], bool]) -> Callable[[Gang, Bools, Bools, Ints, Ints], Ints]:
    """The eviction rule for gangs that span nodes, given a test of whether a gang fits on some GPUs."""

    def leaving(gang: Gang, free: Bools, yielding: Bools, holder: Ints, rank: Ints) -> Ints:
        """The fewest leases from the last in rank; of those, any that need not end stay, the best in rank first."""
        ranks = np.unique(rank[yielding])[::-1]
        if len(ranks) == 0 or not fits(gang, free | yielding):
            return np.zeros(0, np.int64)
        low, high = 1, len(ranks)
        while low < high:
            middle = (low + high) // 2
            if fits(gang, free | (yielding & (rank >= ranks[middle - 1]))):
                high = middle
            else:
                low = middle + 1
        leases = np.unique(holder[yielding & (rank >= ranks[low - 1])])
        gone = left_by(leases, yielding, holder)
        best = np.array([rank[holder == lease].max() for lease in leases])
        stays = np.zeros(len(leases), np.bool_)
        for index in np.argsort(best, kind="mergesort"):
            rest = gone & (holder != leases[index])
            if fits(gang, free | rest):
                stays[index], gone = True, rest
        return leases[~stays]

    return leaving


def left_by(leaving: Ints, yielding: Bools, holder: Ints) -> Bools:
    """By GPU: whether it becomes free when these leases end."""
    gone = np.zeros(len(holder), np.bool_)
    for lease in leaving:
        gone |= holder == lease
    return yielding & gone


class _Gang(NamedTuple):
    cluster: Cluster
    riders: Riders
    demand: Demand
    shape: Shape


def place_over(cluster: Cluster, contest: Contest, riders: Riders, demand: Demand, shape: Shape) -> Spot | None:
    """GPUs for a gang, and the leases that would have to end for it; or None."""
    if shape.accelerator not in cluster.chain_gpus or shape.level not in cluster.levels:
        return None
    free, yielding, holder, rank = contest
    start, stop = cluster.chain_gpus[shape.accelerator]
    only_gpus = not demand.cpus_per_gpu and not demand.memory_bytes_per_gpu
    if shape.gpus == 1 and only_gpus:
        gpu = last_alone(free[start:stop], yielding[start:stop], rank[start:stop])
        if gpu >= 0:
            return Spot(np.array([start + gpu]), 0, (int(holder[start + gpu]),))
    level = cluster.level_index(shape.level)
    if level <= cluster.node_level and only_gpus:
        cells = cluster.cell_gpus[max(level, 1)][shape.accelerator]
        leaving = last_of_one_cell(free, yielding, holder, rank, cells, shape.gpus)
    else:
        mine = np.zeros_like(yielding)
        mine[start:stop] = yielding[start:stop]
        leaving = _last_of_all(_Gang(cluster, riders, demand, shape), free, mine, holder, rank)
    if not len(leaving):
        return None
    spot = place(cluster, free | left_by(leaving, yielding, holder), riders, demand, shape)
    return spot and spot._replace(leaving=tuple(leaving.tolist()))


def _fits(gang: _Gang, available: Bools) -> bool:
    return place(gang.cluster, available, gang.riders, gang.demand, gang.shape) is not None


_last_of_all = last_of_all(_fits)
