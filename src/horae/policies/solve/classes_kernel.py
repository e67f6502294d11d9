"""Equal rows found, compiled: every solve begins with it."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numba import njit
from numpy.typing import NDArray

from horae.model.arrays import Floats, Ints

Marks: TypeAlias = NDArray[np.uint64]

_MIX = np.uint64(0x9E3779B97F4A7C15)  # 2^64 over the golden ratio: an odd number with no pattern in its bits


@njit(cache=True)
def _are_equal(bits: Marks, one: int, other: int) -> bool:
    for column in range(bits.shape[1]):  # noqa: SIM110  compiled, `all` of a generator is not
        if bits[one, column] != bits[other, column]:
            return False
    return True


@njit(cache=True)
def alike(key: Floats, serial: Ints) -> tuple[Ints, Ints]:
    """The row of the first job of each class, in the order of serials, and the class of each job.

    Rows are sorted by a mark that equal ones share; where neighbours with one mark differ, which is rare, a row is
    compared with all that have it.
    """
    count, width = key.shape
    bits = (key + 0.0).view(np.uint64)  # the sum makes a negative zero positive
    order = np.argsort(serial)
    marks = np.empty(count, np.uint64)
    for place in range(count):
        mark = np.uint64(0)
        for column in range(width):
            mark = (mark ^ bits[order[place], column]) * _MIX
            mark ^= mark >> np.uint64(29)
        marks[place] = mark
    sequence = np.argsort(marks, kind="mergesort")  # stable: of equal marks, the lowest serial first
    head = np.empty(count, np.int64)  # by place in the order of serials: the place of the first that is equal
    start = 0
    for index in range(count):
        place = sequence[index]
        if marks[place] != marks[sequence[start]]:
            start = index
        head[place] = place
        for other in range(start, index):
            first = sequence[other]
            if head[first] == first and _are_equal(bits, order[first], order[place]):
                head[place] = first
                break
    number = np.empty(count, np.int64)
    firsts = np.empty(count, np.int64)
    member = np.empty(count, np.int64)
    classes = 0
    for place in range(count):
        if head[place] == place:
            number[place] = classes
            firsts[classes] = order[place]
            classes += 1
        member[order[place]] = number[head[place]]
    return firsts[:classes], member
