"""Placement in clusters without levels above nodes: the rules of `fit_rules` and `evict`, compiled for one GPU type.

`starts` has the first GPU of each of its nodes, and the end. No job asks for CPUs or memory.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from horae.compiling import kernel, part
from horae.model.arrays import Bools, Ints
from horae.placement.evict import last_alone, last_of_all, last_of_one_cell, left_by
from horae.placement.fit_rules import ACROSS, IN_NODE, NOWHERE, ONE_GPU, find

_find, _left_by = part(find), part(left_by)
_last_alone, _last_of_one_cell = part(last_alone), part(last_of_one_cell)


class _Gang(NamedTuple):
    starts: Ints
    gpus: int
    member_gpus: int


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
    room = _room(free, gang.starts)
    return _find(free, gang.starts, room, gang.gpus, gang.member_gpus, ACROSS)[0] != NOWHERE


_last_of_all = part(last_of_all(_fits))


@kernel(error_model="numpy", small=20_000)
def place(free: Bools, starts: Ints, gpus: int, member_gpus: int, level: int) -> tuple[int, Ints]:
    """The level and the GPUs of a gang."""
    return _find(free, starts, _room(free, starts), gpus, member_gpus, level)


@kernel(error_model="numpy", small=20_000)
def place_over(
    free: Bools, yielding: Bools, holder: Ints, rank: Ints, starts: Ints, gpus: int, member_gpus: int, level: int
) -> tuple[int, Ints, Ints]:
    """The level and the GPUs of a gang, and the leases that must end for it."""
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
        leaving = _last_of_all(_Gang(starts, gpus, member_gpus), free, mine, holder, rank)
    if len(leaving) == 0:
        return NOWHERE, leaving, leaving
    found, spot = place(free | _left_by(leaving, yielding, holder), starts, gpus, member_gpus, level)
    return found, spot, leaving
