"""The rules of placement: which node, which GPUs of it, how a gang is spread over nodes, and which leases must end.

Plain functions on arrays. `fit` and `evict` call them as they are, for clusters of any kind; `flat_kernel` compiles
them, for clusters of nodes without levels between. So every rule is written once, in the subset of NumPy that numba
supports, and both ways give the same GPUs. Work that is not a rule, such as counting free GPUs, is left to the callers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from horae.model.arrays import Bools, Ints

NOWHERE, ONE_GPU, IN_NODE, ACROSS = -1, 0, 1, 2  # levels of clusters of nodes only, except the first
STAYS = -1  # in place of a rank: below every rank
FREE = np.iinfo(np.int64).max

Gang = TypeVar("Gang")


# Free GPUs


def tightest(room: Ints, gpus: int) -> int:
    """The fullest cell with room for that many GPUs, the first of equals; -1: none. `room`: free GPUs by cell."""
    slack = (room - gpus).view(np.uint64)  # as unsigned, negative slack becomes very large
    cell = int(slack.argmin())
    return cell if room[cell] >= gpus else -1


def spread(room: Ints, gpus: int, member_gpus: int) -> Ints:
    """GPUs to take by node, each member within one, on as few nodes as possible; empty: there is no room.

    The last members, and the remainder if members do not divide the gang, go where they fit most tightly.
    """
    members, remainder = gpus // member_gpus, gpus % member_gpus
    order = np.argsort(-room, kind="mergesort")
    whole = room[order] // member_gpus
    reached = np.cumsum(whole)
    if reached[-1] < members:
        return np.zeros(0, np.int64)
    last = int(np.searchsorted(reached, members))
    left = members - int(reached[last - 1] if last else 0)
    taken = np.zeros(len(room), np.int64)
    taken[order[:last]] = whole[:last] * member_gpus
    beside = np.where(taken > 0, room - taken, 0)
    apart = remainder > 0 and bool((beside >= remainder).any())  # it fits beside others, in a node already taken
    together = left * member_gpus + (0 if apart else remainder)
    others = np.where(taken > 0, 0, room)
    node = tightest(others, together)
    if node < 0:
        together, apart = left * member_gpus, remainder > 0
        node = tightest(others, together)
    taken[node] = together
    if not apart:
        return taken
    spare = room - taken
    node = tightest(np.where(taken > 0, spare, 0), remainder)
    if node < 0:
        node = tightest(spare, remainder)
    if node < 0:
        return np.zeros(0, np.int64)
    taken[node] += remainder
    return taken


def find(free: Bools, starts: Ints, room: Ints, gpus: int, member_gpus: int, level: int) -> tuple[int, Ints]:
    """The level at which a gang lies together, at most the one asked for, and its GPUs.

    `starts`: the first GPU of each node, and the end; `room`: by node, how many of its free GPUs may be taken.
    """
    if level >= IN_NODE or gpus == 1:
        node = tightest(room, gpus)
        if node >= 0:
            return IN_NODE if gpus > 1 else ONE_GPU, _first_free(free, starts, node, gpus)
    found = np.empty(gpus, np.int64)
    if level >= ACROSS:
        taken, count = spread(room, gpus, member_gpus), 0
        for node in taken.nonzero()[0].tolist():
            here = int(taken[node])
            found[count : count + here] = _first_free(free, starts, node, here)
            count += here
        if count:
            return ACROSS, found
    return NOWHERE, found[:0]


def _first_free(free: Bools, starts: Ints, node: int, gpus: int) -> Ints:
    start = int(starts[node])
    return free[start : int(starts[node + 1])].nonzero()[0][:gpus] + start


# GPUs of leases that yield: the last in rank are evicted first, and no more leases than needed.


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
    for count, place in sorted([(held[place], place) for place in range(len(held))]):
        if count <= surplus:
            surplus -= count
        else:
            leaving.append(going[place])
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
        for place in np.argsort(best, kind="mergesort"):
            rest = gone & (holder != leases[place])
            if fits(gang, free | rest):
                stays[place], gone = True, rest
        return leases[~stays]

    return leaving


def left_by(leaving: Ints, yielding: Bools, holder: Ints) -> Bools:
    """By GPU: whether it becomes free when these leases end."""
    gone = np.zeros(len(holder), np.bool_)
    for lease in leaving:
        gone |= holder == lease
    return yielding & gone
