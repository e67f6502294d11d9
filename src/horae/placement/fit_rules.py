"""The rules of placement on free GPUs: which node, which GPUs of it, and how a gang is spread over nodes.

Plain functions on arrays. `fit` calls them as they are, for clusters of any kind; `flat_kernel` compiles
them, for clusters of nodes without levels between. So every rule is written once, in the subset of NumPy that numba
supports, and both ways give the same GPUs. Work that is not a rule, such as counting free GPUs, is left to the callers.
"""

from __future__ import annotations

import numpy as np

from horae.model.arrays import Bools, Ints

NOWHERE, ONE_GPU, IN_NODE, ACROSS = -1, 0, 1, 2  # levels of clusters of nodes only, except the first


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
