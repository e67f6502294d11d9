"""Elastic jobs: the counts of GPUs that each may have, and grants that resize them.

A ladder has the counts of GPUs of one type that a job accepts, fewest first: the type of its present shape if it runs,
otherwise of the first shape of which the pool has enough. The speed of a count is that of its best level, and a count
that is no faster than a smaller one is left out. Speeds are the estimates of the view; where a trace has profiles of
statistical efficiency, that is part of them.

A job under a lease that has not ended, or that may not be stopped for another reason, keeps its GPUs.
"""

from __future__ import annotations

from heapq import heapify, heappop, heapreplace
from math import floor, inf, nextafter
from typing import NamedTuple

import numpy as np

from horae.model.arrays import Bools, Floats, Ints
from horae.model.decisions import Grants, Ranking
from horae.model.errors import bounded
from horae.model.view import View

NOTHING = -1  # no rung
_HAIR = 1e-9  # of an interval: a moment this close before a boundary counts as at the boundary


class Ladders(NamedTuple):
    accelerator: Ints  # by row; -1: the pool has no GPUs for it
    rungs: Ints  # by row: number of rungs
    gpus: Ints  # by row and rung; undefined beyond the last, as are the speeds
    speed: Floats  # steps per second
    held: Ints  # by row: the highest rung within the GPUs it holds, NOTHING for waiting jobs
    contends: Bools  # by row: waits, or may be resized
    gpus_left: Ints  # by accelerator: GPUs that are free or held by contending jobs


def ladders_of(view: View, chosen: Ints | None = None) -> Ladders:
    """The ladders of all jobs; a waiting job uses the GPU type of its option in `chosen`, if given."""
    jobs = view.jobs
    accelerator = view.shape_accelerator[jobs.shape]
    accepted = (jobs.shape >= 0) & (accelerator >= 0) & (jobs.speed > 0)
    first = accepted.argmax(axis=1) if len(jobs) else jobs.option
    first = np.where(jobs.running, jobs.option, first if chosen is None else chosen)
    everybody = np.arange(len(jobs))
    type_of_job = np.where(accepted[everybody, first], accelerator[everybody, first], -1)
    usable = accepted & (accelerator == type_of_job[:, None])
    gpus = np.where(usable, view.shape_gpus[jobs.shape], np.iinfo(np.int64).max)
    order = np.lexsort((-jobs.speed, gpus), axis=1)
    gpus, usable = np.take_along_axis(gpus, order, axis=1), np.take_along_axis(usable, order, axis=1)
    speed = np.where(usable, np.take_along_axis(jobs.speed, order, axis=1), 0.0)
    below = np.zeros_like(speed)
    below[:, 1:] = np.maximum.accumulate(speed, axis=1)[:, :-1]
    faster = speed > below
    order = np.argsort(~faster, axis=1, kind="stable")
    gpus, speed = np.take_along_axis(gpus, order, axis=1), np.take_along_axis(speed, order, axis=1)
    rungs = faster.sum(axis=1)
    is_rung = np.arange(gpus.shape[1]) < rungs[:, None]
    held = (is_rung & (gpus <= jobs.held_gpus[:, None])).sum(axis=1) - 1
    contends = (jobs.pending | jobs.contestable) & (rungs > 0)
    held = np.where(jobs.running, np.maximum(held, 0), NOTHING)
    return Ladders(type_of_job, rungs, gpus, speed, held, contends, gpus_left(view, contends))


def gpus_left(view: View, contends: Bools) -> Ints:
    """By accelerator: GPUs that are free or held by contending jobs."""
    jobs = view.jobs
    # GPUs shared by two jobs count once.
    keeps = np.flatnonzero(jobs.on_gpus & ~contends & ((jobs.partner < 0) | (jobs.serial < jobs.serial[jobs.partner])))
    kind = view.shape_accelerator[jobs.shape[keeps, jobs.option[keeps]]]
    counts = kind >= 0  # the pool may have lost all GPUs of a type but those of jobs that still run there
    kept = np.bincount(kind[counts], jobs.held_gpus[keeps[counts]], minlength=len(view.capacity))
    return np.maximum(view.capacity - kept.astype(np.int64), 0)


def climb(ladders: Ladders, order: Ints, gain: Floats) -> Ints:
    """By row: the rung that it reaches, NOTHING where not even the lowest has room.

    First each row gets the lowest rung, in this order of rows. Then the row with the largest gain, by row and the rung
    that it leaves, repeatedly gets its next one; ties go to the earlier row in the order.
    """
    left: list[int] = ladders.gpus_left.tolist()
    rung = np.full(len(ladders.rungs), NOTHING)
    rows = order[ladders.contends[order]]
    gpus, kind = ladders.gpus[rows].tolist(), ladders.accelerator[rows].tolist()
    at = [NOTHING] * len(rows)
    for place, counts in enumerate(gpus):
        if counts[0] <= left[kind[place]]:
            left[kind[place]] -= counts[0]
            at[place] = 0
    gains, last = gain[rows].tolist(), (ladders.rungs[rows] - 1).tolist()
    heap = [(-gains[place][0], place) for place, start in enumerate(at) if 0 <= start < last[place]]
    heapify(heap)
    for _ in bounded(sum(last) + len(heap) + 1, "raising jobs step by step"):
        if not heap or heap[0][0] >= 0:
            break
        place = heap[0][1]
        here, counts = at[place], gpus[place]
        more = counts[here + 1] - counts[here]
        if more > left[kind[place]]:
            heappop(heap)  # there will be even less room later
            continue
        left[kind[place]] -= more
        at[place] = here = here + 1
        if here < last[place]:
            heapreplace(heap, (-gains[place][here], place))
        else:
            heappop(heap)
    rung[rows] = at
    return rung


def by_step(ladders: Ladders, value: Floats) -> Floats:
    """By row and rung: by how much a value rises to the next rung per GPU added; 0 at the last."""
    rise = np.zeros_like(value)
    more = ladders.gpus[:, 1:] - ladders.gpus[:, :-1]
    steps = np.arange(1, value.shape[1]) < ladders.rungs[:, None]
    np.divide(np.diff(value, axis=1), more, out=rise[:, :-1], where=steps)
    return rise


def seconds_at(ladders: Ladders, steps: Floats) -> Floats:
    """By row and rung: the seconds that so many steps take; infinite beyond the last rung."""
    return np.divide(steps[:, None], ladders.speed, out=np.full(ladders.speed.shape, inf), where=ladders.speed > 0)


def damped(ladders: Ladders, rung: Ints, seconds: Floats, cost_seconds: Floats) -> Ints:
    """The rungs without changes that do not pay for a restart.

    A running job grows only if that saves more than `cost_seconds`, and shrinks only as far as others need the GPUs.
    """
    rows = np.flatnonzero(ladders.contends & (ladders.held >= 0) & (rung >= 0) & (rung != ladders.held))
    held, wanted = ladders.held[rows], rung[rows]
    idle = wanted > held
    idle &= seconds[rows, held] - seconds[rows, wanted] <= cost_seconds[rows]
    rung = rung.copy()
    rung[rows[idle]] = held[idle]
    served = np.flatnonzero(ladders.contends & (rung >= 0))
    used = np.bincount(ladders.accelerator[served], ladders.gpus[served, rung[served]], len(ladders.gpus_left))
    left = ladders.gpus_left - used.astype(np.int64)
    for row in rows[wanted < held].tolist():
        more = ladders.gpus[row, ladders.held[row]] - ladders.gpus[row, rung[row]]
        if cost_seconds[row] > 0 and more <= left[ladders.accelerator[row]]:
            left[ladders.accelerator[row]] -= more
            rung[row] = ladders.held[row]
    return rung


def until_boundary(now: float, interval_seconds: float) -> tuple[float, float]:
    """The next multiple of an interval, and the length of a lease that has ended by then."""
    boundary_at = (floor(now / interval_seconds + _HAIR) + 1) * interval_seconds
    seconds = boundary_at - now
    # A lease that ends a rounding error after the boundary would not be contestable there.
    return boundary_at, nextafter(seconds, 0.0) if now + seconds > boundary_at else seconds


def gpus_of(view: View, ladders: Ladders, rung: Ints) -> Ints:
    """By row: the GPUs of its rung; 0 for jobs without one, and for jobs that keep their GPUs."""
    gpus = ladders.gpus[np.arange(len(rung)), np.maximum(rung, 0)] if len(rung) else rung
    gpus = np.where(rung == ladders.held, view.jobs.held_gpus, gpus)
    return np.where(ladders.contends & (rung >= 0), gpus, 0)


def resizing(view: View, accelerator: Ints, gpus: Ints, order: Ints, lease: tuple[float, float]) -> Grants:
    """Grants of so many GPUs of a type by row, in this order of all rows; 0: nothing new.

    A row is listed with every level of its count, first the present option if it keeps its count; then with smaller
    counts, for jobs that find no room or are displaced. A job that is to move to another GPU type stays rather than
    move to fewer GPUs. `lease` is the moment until which all of this stands, and its length.
    """
    jobs = view.jobs
    stands_until, lease_seconds = lease
    rows = order[gpus[order] > 0]
    wanted, kind, shape = gpus[rows], accelerator[rows], jobs.shape[rows]
    sizes = view.shape_gpus[shape]
    is_here = jobs.running[rows] & (view.shape_accelerator[shape[np.arange(len(rows)), jobs.option[rows]]] == kind)
    least = np.where(jobs.running[rows] & ~is_here, wanted, 1)
    named = (shape >= 0) & (view.shape_accelerator[shape] == kind[:, None]) & (jobs.speed[rows] > 0)
    named &= (sizes <= wanted[:, None]) & (sizes >= least[:, None])
    stays = is_here & (jobs.held_gpus[rows] == wanted)
    place, option = np.nonzero(named)
    kept = stays[place] & (option == jobs.option[rows[place]])
    in_turn = np.lexsort((option, -sizes[place, option], ~kept, place))
    place, option = place[in_turn], option[in_turn]
    rest = Ranking(order, preemptive=True, stands_until=stands_until)
    lengths = np.full(len(place), lease_seconds)
    return Grants(rows[place], option, lengths, rest, rest_lease_seconds=lease_seconds, resizes=True)
