"""Whom to ask to leave when a gang fits only over others.

The last in rank go first: a better one, once displaced, would only displace those in its turn, and all would restart.
Of the leases that could go, no more than needed do.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from horae.model.arrays import Bools, Ints
from horae.model.cells import Cluster
from horae.model.plans import Contest, Riders, Spot
from horae.model.shapes import Demand, Shape
from horae.placement.fit import place

_STAYS = -1  # below every rank
_FREE = int(np.iinfo(np.int64).max)


def place_over(cluster: Cluster, contest: Contest, riders: Riders, demand: Demand, shape: Shape) -> Spot | None:
    """GPUs for a gang, and the leases that would have to end for it; or None."""
    if shape.accelerator not in cluster.chain_gpus or shape.level not in cluster.levels:
        return None
    if shape.gpus == 1 and not demand.cpus_per_gpu and not demand.memory_bytes_per_gpu:
        spot = _last_alone(cluster, contest, shape)
        if spot is not None:
            return spot
    level = cluster.level_index(shape.level)
    if level <= cluster.node_level and not demand.cpus_per_gpu and not demand.memory_bytes_per_gpu:
        leaving = _last_of_one_cell(cluster, contest, max(level, 1), shape)
        if not leaving:
            return None
    else:
        # The gang spans nodes, or GPUs are not all that it needs.
        if place(cluster, contest.free | contest.yielding, riders, demand, shape) is None:
            return None
        leaving = _fewest_ranks(cluster, contest, riders, demand, shape)
        leaving = _spare_all_it_can(cluster, contest, riders, demand, shape, leaving)
    spot = place(cluster, contest.free | _gone(contest, leaving), riders, demand, shape)
    return spot and spot._replace(leaving=tuple(sorted(leaving)))


def _last_alone(cluster: Cluster, contest: Contest, shape: Shape) -> Spot | None:
    """The GPU whose holder is last in rank, if it is the only one to be last and has no other GPU: nothing to weigh."""
    start, stop = cluster.chain_gpus[shape.accelerator]
    rank = np.where(contest.yielding[start:stop], contest.rank[start:stop], _STAYS)
    gpu = int(rank.argmax())
    if rank[gpu] == _STAYS or np.count_nonzero(rank == rank[gpu]) > 1 or contest.free[start:stop].any():
        return None
    return Spot(np.array([gpu + start]), 0, (int(contest.holder[gpu + start]),))


def _gone(contest: Contest, leaving: Collection[int]) -> Bools:
    """The GPUs that these leases would leave."""
    if len(leaving) > 8:  # from here on a search beats comparing one by one
        return contest.yielding & np.isin(contest.holder, list(leaving))
    gone = np.zeros_like(contest.yielding)
    for epoch in leaving:
        gone |= contest.holder == epoch
    return contest.yielding & gone


def _last_of_one_cell(cluster: Cluster, contest: Contest, level: int, shape: Shape) -> list[int]:
    """The leases that must end in the cell where those rank last; of equals, where they are fewest; none: nowhere."""
    cells = cluster.cell_gpus[level][shape.accelerator]
    spare = cells.shape[1] - shape.gpus
    if spare < 0:
        return []
    standing = np.where(contest.yielding, contest.rank, _STAYS)
    standing[contest.free] = _FREE
    # Counted from the last in rank, the GPU that completes the gang: its holder is the best that would have to go.
    standing = np.append(standing, _STAYS)[cells]  # where a row has no more GPUs, nobody can go
    completing = np.partition(standing, spare, axis=1)[:, spare] if spare else standing.min(axis=1)
    last = completing.max()
    if last == _STAYS:
        return []
    choices = []
    for cell in np.flatnonzero(completing == last).tolist():
        gpus = cells[cell][cells[cell] >= 0]
        free = int(np.count_nonzero(contest.free[gpus]))
        choices.append((_just_enough(contest, gpus, shape.gpus - free), free, cell))
    return min(choices, key=lambda choice: (len(choice[0]), *choice[1:]))[0]


def _just_enough(contest: Contest, gpus: Ints, needed: int) -> list[int]:
    """Leases whose end frees that many GPUs in a cell: the last in rank, without those that prove superfluous.

    A cell has a handful of GPUs: plain lists are faster than arrays.
    """
    held: dict[int, int] = {}
    rank: dict[int, int] = {}
    inside = zip(*(column[gpus].tolist() for column in (contest.yielding, contest.holder, contest.rank)), strict=True)
    for yields, epoch, standing in inside:
        if yields:
            held[epoch] = held.get(epoch, 0) + 1
            rank.setdefault(epoch, standing)
    going: list[int] = []
    surplus = -needed
    for epoch in sorted(held, key=lambda epoch: (-rank[epoch], epoch)):
        if surplus >= 0:
            break
        going.append(epoch)
        surplus += held[epoch]
    # The smallest first, so that as many as possible may stay.
    leaving = set(going)
    for epoch in sorted(going, key=held.__getitem__):
        if held[epoch] <= surplus:
            surplus -= held[epoch]
            leaving.discard(epoch)
    return sorted(leaving)


def _fewest_ranks(cluster: Cluster, contest: Contest, riders: Riders, demand: Demand, shape: Shape) -> list[int]:
    """The fewest leases, counted from the last in rank, that make the gang fit; found by bisection."""
    start, stop = cluster.chain_gpus[shape.accelerator]
    gpus = np.flatnonzero(contest.yielding[start:stop]) + start
    ranks = np.unique(contest.rank[gpus])[::-1]

    def fits(count: int) -> bool:
        gone = np.zeros_like(contest.free)
        gone[gpus[contest.rank[gpus] >= ranks[count - 1]]] = True
        return place(cluster, contest.free | gone, riders, demand, shape) is not None

    low, high = 1, len(ranks)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle + 1, high)
    return np.unique(contest.holder[gpus[contest.rank[gpus] >= ranks[low - 1]]]).tolist()


def _spare_all_it_can(
    cluster: Cluster, contest: Contest, riders: Riders, demand: Demand, shape: Shape, leaving: list[int]
) -> list[int]:
    """Let those stay, the best in rank first, without whose end the gang fits all the same."""
    rank = {epoch: int(contest.rank[contest.holder == epoch].max()) for epoch in leaving}
    kept = set(leaving)
    for epoch in sorted(leaving, key=lambda epoch: (rank[epoch], epoch)):
        rest = kept - {epoch}
        if place(cluster, contest.free | _gone(contest, rest), riders, demand, shape) is not None:
            kept = rest
    return sorted(kept)
