"""Placement in clusters of nodes and nothing between, compiled: the same GPUs as `fit` and `evict` find, sooner.

GPUs are those of one type: `starts` has the first GPU of each of its nodes, and the end. Nobody asks for CPUs or
memory.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from horae.compiling import kernel
from horae.model.arrays import Bools, Ints

NOWHERE, ONE_GPU, IN_NODE, ACROSS = -1, 0, 1, 2  # levels, but for the first
_FREE = np.iinfo(np.int64).max


@njit(error_model="numpy")
def _count(free: Bools, starts: Ints) -> Ints:
    """Free GPUs by node."""
    counts = np.zeros(len(starts) - 1, np.int64)
    for node in range(len(counts)):
        for gpu in range(starts[node], starts[node + 1]):
            counts[node] += free[gpu]
    return counts


@njit(error_model="numpy")
def _tightest(counts: Ints, gpus: int) -> int:
    """The fullest node with that many free GPUs, the first of equals; -1: none."""
    best = -1
    for node in range(len(counts)):
        if counts[node] >= gpus and (best < 0 or counts[node] < counts[best]):
            best = node
    return best


@njit(error_model="numpy")
def _spread(counts: Ints, gpus: int, member_gpus: int, taken: Ints) -> bool:
    """By node, the GPUs to take: as few nodes as possible, the last part where it fits most tightly."""
    members, remainder = gpus // member_gpus, gpus % member_gpus
    taken[:] = 0
    left = members
    tight, together, apart = -1, 0, False
    for node in np.argsort(-counts, kind="mergesort"):
        whole = counts[node] // member_gpus
        if whole >= left:
            tight = node
            break
        taken[node] = whole * member_gpus
        apart = apart or (remainder > 0 and counts[node] - taken[node] >= remainder)  # beside others, in this node
        left -= whole
    if tight < 0:
        return False
    together = left * member_gpus + (0 if apart else remainder)
    if not _settle_last(counts, taken, left, member_gpus, together):
        apart = remainder > 0
        _settle_last(counts, taken, left, member_gpus, left * member_gpus)
    if not apart:
        return True
    best = -1
    for node in range(len(counts)):
        spare = counts[node] - taken[node]
        if spare < remainder:
            continue
        if best >= 0:
            empty, other = taken[node] == 0, taken[best] == 0
            if (empty, spare) >= (other, counts[best] - taken[best]):
                continue
        best = node
    if best < 0:
        return False
    taken[best] += remainder
    return True


@njit(error_model="numpy")
def _settle_last(counts: Ints, taken: Ints, left: int, member_gpus: int, together: int) -> bool:
    """The last members in the fullest of the other nodes that has room for all that they take along."""
    best = -1
    for node in range(len(counts)):
        has_room = taken[node] == 0 and counts[node] // member_gpus >= left and counts[node] >= together
        if has_room and (best < 0 or counts[node] < counts[best]):
            best = node
    if best >= 0:
        taken[best] += together
    return best >= 0


@njit(error_model="numpy")
def _find(free: Bools, starts: Ints, gpus: int, member_gpus: int, level: int, taken: Ints) -> int:
    """By node, how many GPUs to take, and the level at which they lie together."""
    counts = _count(free, starts)
    taken[:] = 0
    if level >= IN_NODE or gpus == 1:
        node = _tightest(counts, gpus)
        if node >= 0:
            taken[node] = gpus
            return IN_NODE if gpus > 1 else ONE_GPU
    if level >= ACROSS and _spread(counts, gpus, member_gpus, taken):
        return ACROSS
    taken[:] = 0
    return NOWHERE


@njit(error_model="numpy")
def _picked(free: Bools, starts: Ints, gpus: int, taken: Ints) -> Ints:
    """The first free GPUs of each node."""
    picked = np.empty(gpus, np.int64)
    found = 0
    for node in range(len(taken)):
        left = taken[node]
        gpu = starts[node]
        while left > 0:
            if free[gpu]:
                picked[found] = gpu
                found += 1
                left -= 1
            gpu += 1
    return picked


@kernel(error_model="numpy")
def place(free: Bools, starts: Ints, gpus: int, member_gpus: int, level: int) -> tuple[int, Ints]:
    """The level and the GPUs."""
    taken = np.zeros(len(starts) - 1, np.int64)
    found = _find(free, starts, gpus, member_gpus, level, taken)
    return found, _picked(free, starts, gpus if found != NOWHERE else 0, taken)


@njit(error_model="numpy")
def _last_alone(free: Bools, yielding: Bools, rank: Ints, start: int, stop: int) -> int:
    """The GPU whose holder is last in rank, if it is the only one to be last and has no other GPU: nothing to weigh."""
    best, twins = -1, False
    for gpu in range(start, stop):
        if free[gpu]:
            return -1
        if yielding[gpu]:
            if best < 0 or rank[gpu] > rank[best]:
                best, twins = gpu, False
            elif rank[gpu] == rank[best]:
                twins = True
    return -1 if twins else best


@njit(error_model="numpy")
def _just_enough(yielding: Bools, holder: Ints, rank: Ints, start: int, stop: int, needed: int) -> Ints:
    """Leases whose end frees that many GPUs of a node: the last in rank, without those that prove superfluous."""
    epoch, held, worst = np.empty(stop - start, np.int64), np.zeros(stop - start, np.int64), np.zeros(stop - start)
    count = 0
    for gpu in range(start, stop):
        if not yielding[gpu]:
            continue
        place = 0
        while place < count and epoch[place] != holder[gpu]:
            place += 1
        if place == count:
            epoch[count], worst[count] = holder[gpu], rank[gpu]
            count += 1
        held[place] += 1
    order = np.argsort(epoch[:count])
    order = order[np.argsort(-worst[order], kind="mergesort")]
    surplus, going = -needed, 0
    while going < count and surplus < 0:
        surplus += held[order[going]]
        going += 1
    order = order[:going]
    # The smallest first, so that as many as possible may stay.
    leaving = np.empty(going, np.int64)
    left = 0
    for each in order[np.argsort(held[order], kind="mergesort")]:
        if held[each] <= surplus:
            surplus -= held[each]
        else:
            leaving[left] = epoch[each]
            left += 1
    return np.sort(leaving[:left])


@njit(error_model="numpy")
def _last_of_one_node(free: Bools, yielding: Bools, holder: Ints, rank: Ints, starts: Ints, gpus: int) -> Ints:
    """The leases that must end in the node where those rank last; of equals, where they are fewest; none: nowhere."""
    nodes = len(starts) - 1
    completing = np.full(nodes, -1, np.int64)
    last = -1
    for node in range(nodes):
        size = starts[node + 1] - starts[node]
        if size < gpus:
            continue
        standing = np.full(size, -1, np.int64)
        for place in range(size):
            gpu = starts[node] + place
            if free[gpu]:
                standing[place] = _FREE
            elif yielding[gpu]:
                standing[place] = rank[gpu]
        # Counted from the last in rank, the GPU that completes the gang: its holder is the best that would have to go.
        completing[node] = np.sort(standing)[size - gpus]
        last = max(last, completing[node])
    best, fewest_free = np.empty(0, np.int64), -1
    if last < 0:
        return best
    for node in range(nodes):
        if completing[node] != last:
            continue
        start, stop = starts[node], starts[node + 1]
        idle = 0
        for gpu in range(start, stop):
            idle += free[gpu]
        leaving = _just_enough(yielding, holder, rank, start, stop, gpus - idle)
        if fewest_free < 0 or (len(leaving), idle) < (len(best), fewest_free):
            best, fewest_free = leaving, idle
    return best


class _Gang(NamedTuple):
    """What is sought across nodes, and room to work it out."""

    starts: Ints
    gpus: int
    member_gpus: int
    taken: Ints
    either: Bools


@njit(error_model="numpy")
def _fits(gang: _Gang, free: Bools, gone: Bools) -> bool:
    for gpu in range(gang.starts[0], gang.starts[-1]):
        gang.either[gpu] = free[gpu] or gone[gpu]
    return _find(gang.either, gang.starts, gang.gpus, gang.member_gpus, ACROSS, gang.taken) != NOWHERE


@njit(error_model="numpy")
def _fewest_ranks(gang: _Gang, free: Bools, yielding: Bools, rank: Ints, gone: Bools) -> bool:
    """The fewest leases, counted from the last in rank, that make the gang fit; found by bisection, left in `gone`."""
    start, stop = gang.starts[0], gang.starts[-1]
    ranks = np.unique(rank[start:stop][yielding[start:stop]])[::-1]
    if len(ranks) == 0 or not _fits(gang, free, yielding):
        return False
    low, high = 1, len(ranks)
    while low < high:
        middle = (low + high) // 2
        for gpu in range(start, stop):
            gone[gpu] = yielding[gpu] and rank[gpu] >= ranks[middle - 1]
        if _fits(gang, free, gone):
            high = middle
        else:
            low = middle + 1
    for gpu in range(start, stop):
        gone[gpu] = yielding[gpu] and rank[gpu] >= ranks[low - 1]
    return True


@njit(error_model="numpy")
def _mark(gone: Bools, yielding: Bools, holder: Ints, epoch: int, leaves: bool) -> None:
    for gpu in range(len(gone)):
        if holder[gpu] == epoch:
            gone[gpu] = leaves and yielding[gpu]


@njit(error_model="numpy")
def _last_of_all(gang: _Gang, free: Bools, yielding: Bools, holder: Ints, rank: Ints) -> Ints:
    """The fewest from the last in rank; of those, the best in rank first, who can stay after all does."""
    gone = np.zeros(len(free), np.bool_)
    if not _fewest_ranks(gang, free, yielding, rank, gone):
        return np.empty(0, np.int64)
    leaving = np.unique(holder[gone])
    worst = np.full(len(leaving), -1, np.int64)
    for each in range(len(leaving)):
        _mark(gone, yielding, holder, leaving[each], True)  # all that it holds
        for gpu in range(len(free)):
            if holder[gpu] == leaving[each]:
                worst[each] = max(worst[each], rank[gpu])
    stays = np.zeros(len(leaving), np.bool_)
    for each in np.argsort(worst, kind="mergesort"):
        _mark(gone, yielding, holder, leaving[each], False)
        stays[each] = _fits(gang, free, gone)
        if not stays[each]:
            _mark(gone, yielding, holder, leaving[each], True)
    return leaving[~stays]


@kernel(error_model="numpy")
def place_over(
    free: Bools, yielding: Bools, holder: Ints, rank: Ints, starts: Ints, gpus: int, member_gpus: int, level: int
) -> tuple[int, Ints, Ints]:
    """The level, the GPUs, and the leases that must end."""
    if gpus == 1:
        gpu = _last_alone(free, yielding, rank, starts[0], starts[-1])
        if gpu >= 0:
            return ONE_GPU, np.array([gpu]), np.array([holder[gpu]])
    if level <= IN_NODE:
        leaving = _last_of_one_node(free, yielding, holder, rank, starts, gpus)
    else:
        room = np.zeros(len(starts) - 1, np.int64), np.zeros(len(free), np.bool_)
        leaving = _last_of_all(_Gang(starts, gpus, member_gpus, *room), free, yielding, holder, rank)
    nobody = np.empty(0, np.int64)
    if len(leaving) == 0:
        return NOWHERE, nobody, nobody
    either, taken = free.copy(), np.zeros(len(starts) - 1, np.int64)
    for gpu in range(starts[0], starts[-1]):
        if yielding[gpu]:
            for epoch in leaving:
                either[gpu] = either[gpu] or holder[gpu] == epoch
    found = _find(either, starts, gpus, member_gpus, level, taken)
    return found, _picked(either, starts, gpus if found != NOWHERE else 0, taken), leaving


class Sizes(NamedTuple):
    """What each demand asks for, by option, and where the nodes of each GPU type are."""

    gpus: Ints
    level: Ints  # -1: there is no such thing
    chain: Ints
    member_gpus: Ints  # by demand
    first_node: Ints  # by chain, and the end
    starts: Ints  # by node: its first GPU, and the end


class Pass(NamedTuple):
    """The state of one pass over the claims; all of it changes."""

    free: Bools
    standing: Ints  # by GPU: the claim that keeps its holder there; -1: taken
    active: Bools  # by claim: to be tried
    departure: Ints  # by job: its place among those who leave; -1: it does not


@njit(error_model="numpy")
def _vacate(state: Pass, holder: Ints, epoch: int) -> None:
    for gpu in range(len(holder)):
        if holder[gpu] == epoch and state.standing[gpu] >= 0:
            state.standing[gpu] = -1
            state.free[gpu] = True


@njit(error_model="numpy")
def _search(state: Pass, holder: Ints, sizes: Sizes, position: int, demand: int, option: int) -> tuple[int, Ints, Ints]:
    """The level, the GPUs, and whose leases must end."""
    nobody = np.empty(0, np.int64)
    level, gpus, chain = sizes.level[demand, option], sizes.gpus[demand, option], sizes.chain[demand, option]
    if level < 0:
        return NOWHERE, nobody, nobody
    starts = sizes.starts[sizes.first_node[chain] : sizes.first_node[chain + 1] + 1]
    member_gpus = min(sizes.member_gpus[demand], gpus)
    free, last = 0, -1
    for gpu in range(starts[0], starts[-1]):
        free += state.free[gpu]
        last = max(last, state.standing[gpu])
    if free >= gpus:
        found, picked = place(state.free, starts, gpus, member_gpus, level)
        if found != NOWHERE:
            return found, picked, nobody
    if last <= position:
        return NOWHERE, nobody, nobody
    return place_over(state.free, state.standing > position, holder, state.standing, starts, gpus, member_gpus, level)


@njit(error_model="numpy")
def _free_of(state: Pass, sizes: Sizes, chain: int) -> int:
    if chain < 0:
        return 0
    return state.free[sizes.starts[sizes.first_node[chain]] : sizes.starts[sizes.first_node[chain + 1]]].sum()


class Won(NamedTuple):
    """Of the claims that won, in their order; of the jobs that leave; and by demand, what it was first refused."""

    position: Ints
    level: Ints
    gpus: Ints  # of one winner after the other
    leaving: Ints  # likewise
    leaving_count: Ints
    leaver: Ints  # rows
    for_whom: Ints  # the claim for which it leaves: its own if it moves
    refused: Ints  # by demand: the first claim, -1: none
    free: Ints  # GPUs of the type at that moment


@kernel(error_model="numpy")
def run_pass(
    row: Ints, option: Ints, wanting: Ints, demand: Ints, epoch: Ints, holder: Ints, sizes: Sizes,
    free: Bools, standing: Ints,
) -> Won:  # fmt: skip
    """Trial placement of all claims that want something, best first: as `admit` does it, claim by claim."""
    jobs, gpu_count = len(epoch), len(holder)
    state = Pass(free, standing, np.zeros(len(row), np.bool_), np.full(jobs, -1, np.int64))
    state.active[wanting] = True
    failed, won = np.zeros(sizes.gpus.shape, np.bool_), np.zeros(jobs, np.bool_)
    out = Won(
        np.empty(jobs, np.int64), np.empty(jobs, np.int64), np.empty(gpu_count, np.int64),
        np.empty(gpu_count, np.int64), np.zeros(jobs, np.int64), np.empty(jobs, np.int64), np.empty(jobs, np.int64),
        np.full(len(sizes.gpus), -1, np.int64), np.zeros(len(sizes.gpus), np.int64),
    )  # fmt: skip
    by_epoch = np.argsort(epoch)
    epochs = epoch[by_epoch]
    wins = given = asked = leavers = 0
    for position in range(wanting[0], len(row)):
        job = row[position]
        kind, choice = demand[job], option[position]
        if not state.active[position] or won[job] or failed[kind, choice]:
            continue
        level, gpus, leaving = _search(state, holder, sizes, position, kind, choice)
        if level == NOWHERE:
            failed[kind, choice] = True
            if out.refused[kind] < 0:
                out.refused[kind], out.free[kind] = position, _free_of(state, sizes, sizes.chain[kind, choice])
            continue
        won[job] = True
        out.position[wins], out.level[wins], out.leaving_count[wins] = position, level, len(leaving)
        out.gpus[given : given + len(gpus)] = gpus
        out.leaving[asked : asked + len(leaving)] = leaving
        wins, given, asked = wins + 1, given + len(gpus), asked + len(leaving)
        for gpu in gpus:
            state.free[gpu], state.standing[gpu] = False, -1
        for each in leaving:
            victim = by_epoch[np.searchsorted(epochs, each)]
            if victim == job or state.departure[victim] >= 0:
                continue
            state.departure[victim] = leavers
            out.leaver[leavers], out.for_whom[leavers] = victim, position
            leavers += 1
            _vacate(state, holder, each)
            for later in range(position + 1, len(row)):  # it may try its claims elsewhere
                if row[later] == victim:
                    state.active[later] = True
        if epoch[job] >= 0:
            if state.departure[job] >= 0:
                out.for_whom[state.departure[job]] = position
            else:
                state.departure[job] = leavers
                out.leaver[leavers], out.for_whom[leavers] = job, position
                leavers += 1
                _vacate(state, holder, epoch[job])
    return Won(
        out.position[:wins], out.level[:wins], out.gpus[:given], out.leaving[:asked], out.leaving_count[:wins],
        out.leaver[:leavers], out.for_whom[:leavers], out.refused, out.free,
    )  # fmt: skip
