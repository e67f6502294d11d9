"""Assigns jobs to GPU types so that the sum of completion times is minimal, adding one job at a time.

Places on a type are numbered from the end of its queues: those of rank k begin with number (k - 1) x GPUs. The jobs of
a type occupy them longest first, which is optimal, so a solution is given by the type of each job.

Adding a job to the best matching of those before it is a shortest path: it takes a place, whose holder takes another,
up to a place that was empty (Kuhn's Hungarian method). Because cost is rank x run time, few of these steps matter. In
its own type a holder moves one place up or down: two such steps of the two holders cost at most as much as one step
twice as far. In another type it enters where its run time belongs, in place of the next shorter or of the next longer
job: any other place costs at least as much as these two and the moves of their holders. That leaves about 2 x types
steps per job instead of one per place; a path is found by sweeps up and down the types until no path gets shorter.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from horae.compiling import kernel
from horae.model.arrays import Bools, Floats, Ints

_NONE = -1


class _Ground(NamedTuple):
    """Constant input: run times, the rank of each place, and the order of the jobs on each type."""

    seconds: Floats  # by type and job
    rank: Floats  # by type and place: from the end
    order: Ints  # by type: jobs, longest first


class _Line(NamedTuple):
    """The jobs matched so far, in their places, by type."""

    holder: Ints  # by place
    held: Ints  # how many places
    entry: Ints  # by job: the place that it would enter


class _Ways(NamedTuple):
    """The shortest paths found so far from the new job to every place, by type."""

    cost: Floats
    before: Ints  # type x places + place from which its holder comes; -1: the newcomer
    is_fresh: Bools  # its holder has not tried the other types yet


def least_sum_by_paths(seconds: Floats, gpus: Ints) -> Ints:
    """By job: its type; -1 for all if rounding led a path into a cycle. `seconds`: by job and type."""
    by_type = np.ascontiguousarray(seconds.T)
    rank = (np.arange(len(seconds) + 1) // gpus[:, None] + 1).astype(np.float64)
    order = np.argsort(-by_type, axis=1, kind="stable")
    # Rounding error of a difference of costs: a path counts as shorter only by more than this.
    hair = 1e-14 * float(seconds[np.isfinite(seconds)].max(initial=0.0)) * len(seconds)
    answer: Ints = _match(_Ground(by_type, rank, order), hair)
    return answer


@kernel()
def _match(ground: _Ground, hair: float) -> Ints:
    kinds, count = ground.seconds.shape
    kind = np.full(count, _NONE)
    form = (kinds, count + 1)
    line = _Line(np.full(form, _NONE), np.zeros(kinds, dtype=np.int64), np.zeros((kinds, count), dtype=np.int64))
    ways = _Ways(np.empty(form), np.empty(form, dtype=np.int64), np.zeros(form, dtype=np.bool_))
    for newcomer in range(count):
        _stand(kind, ground, line)
        ways.cost[:] = np.inf
        ways.is_fresh[:] = False
        _enter(newcomer, _NONE, 0.0, ground, line, ways, hair)
        for _ in range(count + 1):
            if not _sweep(ground, line, ways, hair):
                break
        if not _follow(newcomer, kind, line, ways):
            return np.full(count, _NONE)
    return kind


@kernel()
def _stand(kind: Ints, ground: _Ground, line: _Line) -> None:
    """Sort the jobs of each type into its places, and compute where each other job would enter."""
    for number in range(len(ground.order)):
        place = 0
        for job in ground.order[number]:
            line.entry[number, job] = place
            if kind[job] == number:
                line.holder[number, place] = job
                place += 1
        line.held[number] = place


@kernel()
def _enter(job: int, source: int, left: float, ground: _Ground, line: _Line, ways: _Ways, hair: float) -> None:
    """Relax the paths by which this job, leaving its place (if any) at cost `left`, enters each other type."""
    kinds, width = ways.cost.shape
    for number in range(kinds):
        if ground.seconds[number, job] == np.inf or (source != _NONE and source // width == number):
            continue
        first = line.entry[number, job]
        for place in range(max(first - 1, 0), first + 1):
            value = left + ground.rank[number, place] * ground.seconds[number, job]
            if value < ways.cost[number, place] - hair:
                ways.cost[number, place] = value
                ways.before[number, place] = source
                ways.is_fresh[number, place] = True


@kernel()
def _move(number: int, place: int, other: int, ground: _Ground, line: _Line, ways: _Ways, hair: float) -> None:
    """Relax the path by which the holder of a place moves to the adjacent one."""
    rise = ground.rank[number, other] - ground.rank[number, place]
    value = ways.cost[number, place] + rise * ground.seconds[number, line.holder[number, place]]
    if value < ways.cost[number, other] - hair:
        ways.cost[number, other] = value
        ways.before[number, other] = number * ways.cost.shape[1] + place
        ways.is_fresh[number, other] = True


@kernel()
def _sweep(ground: _Ground, line: _Line, ways: _Ways, hair: float) -> bool:
    """Relax moves up, down and to other types once; True if any holder tried the other types for the first time."""
    shorter = False
    kinds, width = ways.cost.shape
    for number in range(kinds):
        last = line.held[number]
        for place in range(last):
            _move(number, place, place + 1, ground, line, ways, hair)
        for place in range(last - 1, 0, -1):
            _move(number, place, place - 1, ground, line, ways, hair)
        for place in range(last):
            if ways.is_fresh[number, place]:
                ways.is_fresh[number, place] = False
                shorter = True
                job = line.holder[number, place]
                left = ways.cost[number, place] - ground.rank[number, place] * ground.seconds[number, job]
                _enter(job, number * width + place, left, ground, line, ways, hair)
    return shorter


@kernel()
def _follow(newcomer: int, kind: Ints, line: _Line, ways: _Ways) -> bool:
    """Move all jobs on the cheapest path to an empty place, from its end; False if the path is a cycle."""
    kinds, width = ways.cost.shape
    number = 0
    for other in range(1, kinds):
        if ways.cost[other, line.held[other]] < ways.cost[number, line.held[number]]:
            number = other
    place = line.held[number]
    for _ in range(kinds * width):
        source = ways.before[number, place]
        if source == _NONE:
            kind[newcomer] = number
            return True
        kind[line.holder[source // width, source % width]] = number
        number, place = source // width, source % width
    return False
