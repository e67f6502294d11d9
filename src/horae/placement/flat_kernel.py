"""Placement in clusters of nodes and nothing between, compiled: the rules of `rules`, for one GPU type.

`starts` has the first GPU of each of its nodes, and the end. No job asks for CPUs or memory.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from horae.compiling import kernel, part
from horae.model.arrays import Bools, Ints
from horae.placement.rules import (
    ACROSS,
    IN_NODE,
    NOWHERE,
    ONE_GPU,
    find,
    last_alone,
    last_of_all,
    last_of_one_cell,
    left_by,
    picked,
)

_find, _picked, _left_by = part(find), part(picked), part(left_by)
_last_alone, _last_of_one_cell = part(last_alone), part(last_of_one_cell)


class _Gang(NamedTuple):
    starts: Ints
    gpus: int
    member_gpus: int
    level: int


@njit(error_model="numpy")
def _room(free: Bools, starts: Ints) -> Ints:
    """Free GPUs by node."""
    counts = np.zeros(len(starts) - 1, np.int64)
    for node in range(len(counts)):
        for gpu in range(starts[node], starts[node + 1]):
            counts[node] += free[gpu]
    return counts


@njit(error_model="numpy")
def _cells(starts: Ints) -> Ints:
    """The GPUs of each node; the row of a smaller node ends in -1."""
    cells = np.full((len(starts) - 1, np.diff(starts).max()), -1)
    for node in range(len(cells)):
        for gpu in range(starts[node], starts[node + 1]):
            cells[node, gpu - starts[node]] = gpu
    return cells


@njit(error_model="numpy")
def _fits(gang: _Gang, free: Bools) -> bool:
    return _find(_room(free, gang.starts), gang.gpus, gang.member_gpus, gang.level)[0] != NOWHERE


_last_of_all = part(last_of_all(_fits))


@kernel(error_model="numpy")
def place(free: Bools, starts: Ints, gpus: int, member_gpus: int, level: int) -> tuple[int, Ints]:
    """The level and the GPUs."""
    found, taken = _find(_room(free, starts), gpus, member_gpus, level)
    return found, _picked(free, starts, taken, gpus if found != NOWHERE else 0)


@kernel(error_model="numpy")
def place_over(
    free: Bools, yielding: Bools, holder: Ints, rank: Ints, starts: Ints, gpus: int, member_gpus: int, level: int
) -> tuple[int, Ints, Ints]:
    """The level, the GPUs, and the leases that must end."""
    start, stop = starts[0], starts[-1]
    if gpus == 1:
        gpu = _last_alone(free[start:stop], yielding[start:stop], rank[start:stop])
        if gpu >= 0:
            return ONE_GPU, np.array([start + gpu]), np.array([holder[start + gpu]])
    if level <= IN_NODE:
        leaving = _last_of_one_cell(free, yielding, holder, rank, _cells(starts), gpus)
    else:
        mine = np.zeros(len(free), np.bool_)
        mine[start:stop] = yielding[start:stop]
        leaving = _last_of_all(_Gang(starts, gpus, member_gpus, ACROSS), free, mine, holder, rank)
    if len(leaving) == 0:
        return NOWHERE, leaving, leaving
    found, spot = place(free | _left_by(leaving, yielding, holder), starts, gpus, member_gpus, level)
    return found, spot, leaving


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
