"""A whole pass, compiled: the rules of `mechanism.pass_rules` and those of `placement.rules` together."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from horae.compiling import kernel, part
from horae.mechanism.pass_rules import PassState, Sides, leavers, new_pass, next_claim, refuse, win
from horae.model.arrays import Bools, Ints
from horae.placement.fit_rules import NOWHERE
from horae.placement.flat_kernel import place, place_over

_new_pass, _next_claim, _refuse, _win, _leavers = (
    part(new_pass), part(next_claim), part(refuse), part(win), part(leavers),
)  # fmt: skip


class Sizes(NamedTuple):
    """What each demand requests, by option, and where the nodes of each GPU type are."""

    gpus: Ints
    level: Ints  # -1: does not exist
    chain: Ints
    member_gpus: Ints  # by demand
    first_node: Ints  # by chain, and the end
    starts: Ints  # by node: its first GPU, and the end


class FlatWin(NamedTuple):
    """Of the claims that won, in their order; of the jobs that leave; and by demand, its first rejected claim."""

    position: Ints
    level: Ints
    gpus: Ints  # of one winner after the other
    leaving: Ints  # likewise
    leaving_count: Ints
    leaver: Ints  # rows
    cause: Ints  # the claim for which it is preempted: its own if it moves
    refused: Ints  # by demand: the first claim, -1: none
    free: Ints  # GPUs of the type at that moment


@njit(error_model="numpy")
def _search(
    state: PassState, holder: Ints, sizes: Sizes, position: int, demand: int, option: int
) -> tuple[int, Ints, Ints]:
    """The level, the GPUs, and the leases that must end: free GPUs first, then those of other jobs."""
    none = np.zeros(0, np.int64)
    level, gpus, chain = sizes.level[demand, option], sizes.gpus[demand, option], sizes.chain[demand, option]
    if level < 0:
        return NOWHERE, none, none
    starts = sizes.starts[sizes.first_node[chain] : sizes.first_node[chain + 1] + 1]
    member_gpus = min(sizes.member_gpus[demand], gpus)
    if state.free[starts[0] : starts[-1]].sum() >= gpus:
        found, picked = place(state.free, starts, gpus, member_gpus, level)
        if found != NOWHERE:
            return found, picked, none
    if state.standing[starts[0] : starts[-1]].max() <= position:
        return NOWHERE, none, none
    return place_over(state.free, state.standing > position, holder, state.standing, starts, gpus, member_gpus, level)


@njit(error_model="numpy")
def _free_of(state: PassState, sizes: Sizes, chain: int) -> int:
    if chain < 0:
        return 0
    return state.free[sizes.starts[sizes.first_node[chain]] : sizes.starts[sizes.first_node[chain + 1]]].sum()


@kernel(error_model="numpy", small=20_000)
def run_pass(
    row: Ints, option: Ints, waiting: Bools, demand: Ints, epoch: Ints, holder: Ints, free: Bools, standing: Ints,
    sizes: Sizes,
) -> FlatWin:  # fmt: skip
    """Trial placement of all waiting claims, best first: the same as `admit`, claim by claim."""
    jobs, gpu_count = len(epoch), len(holder)
    sides = Sides(row, np.zeros(0, np.int64), np.zeros(0, np.bool_), epoch, holder)
    state = _new_pass(jobs, free, standing, waiting)
    kind = demand[row] * sizes.gpus.shape[1] + option
    out = FlatWin(
        np.empty(jobs, np.int64), np.empty(jobs, np.int64), np.empty(gpu_count, np.int64),
        np.empty(gpu_count, np.int64), np.zeros(jobs, np.int64), np.empty(0, np.int64), np.empty(0, np.int64),
        np.full(len(sizes.gpus), -1), np.zeros(len(sizes.gpus), np.int64),
    )  # fmt: skip
    wins = given = asked = 0
    position = _next_claim(state, sides, -1)
    while position >= 0:
        asks, choice = demand[row[position]], option[position]
        level, gpus, leaving = _search(state, holder, sizes, position, asks, choice)
        if level == NOWHERE:
            _refuse(state, kind, position)
            if out.refused[asks] < 0:
                out.refused[asks], out.free[asks] = position, _free_of(state, sizes, sizes.chain[asks, choice])
        else:
            out.position[wins], out.level[wins], out.leaving_count[wins] = position, level, len(leaving)
            out.gpus[given : given + len(gpus)] = gpus
            out.leaving[asked : asked + len(leaving)] = leaving
            wins, given, asked = wins + 1, given + len(gpus), asked + len(leaving)
            _win(state, sides, position, row[position : position + 1], gpus, leaving)
        position = _next_claim(state, sides, position)
    left = _leavers(state)
    return FlatWin(
        out.position[:wins], out.level[:wins], out.gpus[:given], out.leaving[:asked], out.leaving_count[:wins],
        left, state.cause[left], out.refused, out.free,
    )  # fmt: skip
