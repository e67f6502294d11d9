"""Classes of equal jobs, compiled: every solve begins with them."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
from numba import njit
from numpy.typing import NDArray

from horae.compiling import kernel
from horae.model.arrays import Bools, Floats, Ints

Marks: TypeAlias = NDArray[np.uint64]

_MIX = np.uint64(0x9E3779B97F4A7C15)  # 2^64 over the golden ratio: an odd number with no pattern in its bits


class Alike(NamedTuple):
    """By job, the properties that all jobs of a class share."""

    shape: Ints  # by option; below 0: none
    speed: Floats  # by option
    state: Floats  # by column, further properties that distinguish jobs


class ClassShapes(NamedTuple):
    """Properties by number of a shape, and the GPUs available."""

    accelerator: Ints  # -1: none that the pool has
    gpus: Ints
    level: Ints
    capacity: Floats  # by accelerator


class CollapsedClasses(NamedTuple):
    """The fields of `Classes` that `sort_out` computes."""

    first: Ints
    member: Ints
    jobs: Floats
    gpus: Floats
    accelerator: Ints
    choice: Bools
    speed: Floats


@njit(error_model="numpy")
def _bits_of(alike: Alike) -> Marks:
    """One row of bits per job, equal where all properties are equal."""
    options, width = alike.speed.shape[1], alike.state.shape[1]
    key = np.empty((len(alike.shape), 2 * options + width))
    for row in range(len(key)):
        for option in range(options):
            key[row, option] = max(alike.shape[row, option], -1)
            key[row, options + option] = alike.speed[row, option] + 0.0  # the sum makes a negative zero positive
        for column in range(width):
            key[row, 2 * options + column] = alike.state[row, column] + 0.0
    return key.view(np.uint64)


@njit(error_model="numpy")
def _are_equal(bits: Marks, one: int, other: int) -> bool:
    for column in range(bits.shape[1]):  # noqa: SIM110  compiled, `all` of a generator is not
        if bits[one, column] != bits[other, column]:
            return False
    return True


@njit(error_model="numpy")
def sorted_out(bits: Marks, serial: Ints) -> tuple[Ints, Ints]:
    """The row of the first job of each class, in the order of serials, and the class of each job.

    Rows are sorted by a hash that equal ones share; where neighbours with one hash differ, which is rare, a row is
    compared with all that have it.
    """
    count, width = bits.shape
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


@njit(error_model="numpy")
def _is_superfluous(shapes: ClassShapes, shape: Ints, speed: Floats, choice: Bools, one: int) -> bool:
    """Whether another option of its type and size is as fast and easier to place.

    A gang that may be anywhere also runs where it is close together; if it is no faster there, requesting both would
    only make it move from one to the other.
    """
    here = shape[one]
    for other in range(len(shape)):
        if other == one or not choice[other] or speed[other] != speed[one]:
            continue
        there = shape[other]
        if shapes.accelerator[there] != shapes.accelerator[here] or shapes.gpus[there] != shapes.gpus[here]:
            continue
        if shapes.level[there] > shapes.level[here] or (other < one and shapes.level[there] == shapes.level[here]):
            return True
    return False


@kernel(error_model="numpy", small=20_000)
def sort_out(alike: Alike, serial: Ints, shapes: ClassShapes) -> CollapsedClasses:
    first, member = sorted_out(_bits_of(alike), serial)
    classes, options = len(first), alike.speed.shape[1]
    jobs, gpus, speed = np.zeros(classes), np.zeros((classes, options)), np.zeros((classes, options))
    accelerator = np.zeros((classes, options), np.int64)
    able, choice = np.zeros((classes, options), np.bool_), np.zeros((classes, options), np.bool_)
    for job in range(len(member)):
        jobs[member[job]] += 1
    for row in range(classes):
        shape, speeds = alike.shape[first[row]], alike.speed[first[row]]
        for option in range(options):
            if shape[option] < 0:
                continue
            kind = shapes.accelerator[shape[option]]
            gpus[row, option] = shapes.gpus[shape[option]]
            if kind >= 0:
                accelerator[row, option] = kind
                able[row, option] = shapes.capacity[kind] > 0 and speeds[option] > 0
        for option in range(options):
            if able[row, option] and not _is_superfluous(shapes, shape, speeds, able[row], option):
                choice[row, option] = True
                speed[row, option] = speeds[option]
    return CollapsedClasses(first, member, jobs, gpus, accelerator, choice, speed)


@kernel(error_model="numpy", small=20_000)
def best_of_types(accelerator: Ints, choice: Bools, speed: Floats, types: int) -> Floats:
    """By class and GPU type: the speed of the best shape there; 0 where there is none."""
    best = np.zeros((len(speed), types))
    for row in range(len(speed)):
        for option in range(speed.shape[1]):
            kind = accelerator[row, option]
            if choice[row, option] and speed[row, option] > best[row, kind]:
                best[row, kind] = speed[row, option]
    return best
