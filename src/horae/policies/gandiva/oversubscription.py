"""Gandiva by its own rules (OSDI'18): the GPU type of each job, jobs without room there, and closer placements."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from horae.model.arrays import Bools, Floats, Ints
from horae.model.cluster import NODE
from horae.model.view import View
from horae.policies.elastic.sizes import NOTHING, Ladders, ladders_of

_MOVES_TRIED_MAX = 16  # per GPU type; the largest gain is tried first


class GangState(NamedTuple):
    """The state of all jobs before a decision, by row."""

    ladders: Ladders  # from the requested gang upwards
    gang: Ints  # GPUs requested, or the nearest count its GPU type allows; 0 where the pool has none for it
    fastest: Ints  # its fastest option of that gang
    widest: Ints  # the widest level of that gang that it accepts
    grown: Bools  # holds more than it requested, and may be shrunk


def field_of(view: View) -> GangState:
    jobs, ladders = view.jobs, _from_asked(view, ladders_of(view, _least_loaded(view)))
    gang = np.where(ladders.rungs > 0, ladders.gpus[:, 0], 0) if len(jobs) else jobs.gpus
    named = options_of(view, ladders.accelerator, gang)
    fastest = np.where(named, jobs.speed, -1.0).argmax(axis=1) if len(jobs) else jobs.option
    # Free cells finer than a node are not known in advance.
    widest = np.where(named, view.shape_level[jobs.shape], -1).max(axis=1, initial=view.levels.index(NODE))
    grown = ladders.contends & jobs.running & (jobs.held_gpus > gang) & (jobs.partner < 0)
    return GangState(ladders, gang, fastest, widest, grown)


def options_of(view: View, accelerator: Ints, gpus: Ints) -> Bools:
    """By row and option: whether the job accepts it and it has so many GPUs of that type."""
    jobs = view.jobs
    there = (jobs.shape >= 0) & (jobs.speed > 0) & (view.shape_accelerator[jobs.shape] == accelerator[:, None])
    return there & (accelerator >= 0)[:, None] & (view.shape_gpus[jobs.shape] == gpus[:, None])


def held_once(view: View) -> Ints:
    """By row: the GPUs that it holds; GPUs shared by two jobs count for the earlier of the two."""
    jobs = view.jobs
    later = (jobs.partner >= 0) & (jobs.serial > jobs.serial[jobs.partner])
    return np.where(later, 0, jobs.held_gpus)


def _least_loaded(view: View) -> Ints:
    """By row: an option of the GPU type for which a job waits.

    That is the first in its order of preference that is not over-subscribed, otherwise the least loaded: GPUs in use
    and requested, over those available. Jobs with a choice of types choose after jobs without.
    """
    jobs = view.jobs
    accelerator = view.shape_accelerator[jobs.shape]
    accepted = (jobs.shape >= 0) & (accelerator >= 0) & (jobs.speed > 0)
    chosen = accepted.argmax(axis=1) if len(jobs) else jobs.option
    types = np.arange(len(view.capacity))
    on_type = (accepted[:, :, None] & (accelerator[:, :, None] == types)).any(axis=1)
    waits = jobs.pending & on_type.any(axis=1)
    choosy = np.flatnonzero(waits & (on_type.sum(axis=1) > 1))
    busy = jobs.on_gpus & (accelerator[np.arange(len(jobs)), jobs.option] >= 0) if len(jobs) else jobs.running
    load = np.bincount(accelerator[busy, jobs.option[busy]], held_once(view)[busy], minlength=len(types))
    plain = waits.copy()
    plain[choosy] = False
    load = load + np.bincount(accelerator[plain, chosen[plain]], jobs.gpus[plain], minlength=len(types))
    for row in choosy[np.argsort(jobs.serial[choosy])].tolist():
        options = np.flatnonzero(accepted[row])
        kind = accelerator[row, options]
        after = (load[kind] + jobs.gpus[row]) / np.maximum(view.capacity[kind], 1)
        best = int(np.argmin(np.maximum(after, 1.0)))
        chosen[row] = options[best]
        load[kind[best]] += jobs.gpus[row]
    return chosen


def _from_asked(view: View, ladders: Ladders) -> Ladders:
    """The ladders without rungs below the requested gang, because a job is time-sliced rather than made smaller."""
    asked = view.jobs.gpus[:, None]
    rungs = np.arange(ladders.gpus.shape[1])
    lowest = np.maximum(((rungs < ladders.rungs[:, None]) & (ladders.gpus <= asked)).sum(axis=1) - 1, 0)
    place = np.minimum(rungs + lowest[:, None], len(rungs) - 1)
    gpus, speed = np.take_along_axis(ladders.gpus, place, axis=1), np.take_along_axis(ladders.speed, place, axis=1)
    # A job with fewer GPUs holds no rung, so that it requests the lowest.
    has = view.jobs.held_gpus >= gpus[:, 0] if len(lowest) else view.jobs.running
    held = np.where((ladders.held >= lowest) & has, ladders.held - lowest, NOTHING)
    return ladders._replace(rungs=ladders.rungs - lowest, gpus=gpus, speed=speed, held=held)


def shortage(view: View, field: GangState, undone: Bools) -> Ints:
    """By accelerator: GPUs of gangs without room beside jobs running with the GPUs they requested; 0: all fit.

    A job that has grown counts with what it requested, and the members of dissolved pairs each count separately.
    """
    jobs, ladders = view.jobs, field.ladders
    leave = field.grown | undone
    needs = leave | (ladders.contends & jobs.pending)
    stays = ladders.contends & jobs.running & ~leave
    short = np.zeros(len(view.capacity), dtype=np.int64)
    for kind in np.unique(ladders.accelerator[needs]).tolist():
        rows = np.flatnonzero(needs & (ladders.accelerator == kind))
        rows = rows[np.lexsort((jobs.serial[rows], -field.gang[rows]))]
        left = int(ladders.gpus_left[kind]) - int(held_once(view)[stays & (ladders.accelerator == kind)].sum())
        short[kind] = int(field.gang[rows].sum()) - left
        if short[kind] <= 0:
            placed = fit(view, field, leave & (ladders.accelerator == kind), rows)
            short[kind] = int(field.gang[rows[~placed]].sum())
    return short


def fit(view: View, field: GangState, gone: Bools, rows: Ints) -> Bools:
    """For each of these rows of one GPU type in turn: whether its gang would fit if the jobs `gone` had left."""
    if not len(rows):
        return np.zeros(0, dtype=bool)
    name = view.accelerators[int(field.ladders.accelerator[rows[0]])]
    found = view.trial(gone, name, field.gang[rows])
    return (found >= 0) & (found <= field.widest[rows])


def steps_ahead(view: View, horizon_seconds: float) -> Floats:
    """By row: the steps within the horizon at its present speed; at most those left."""
    jobs = view.jobs
    present = jobs.speed[np.arange(len(jobs)), jobs.option] if len(jobs) else jobs.pace
    return np.fmin(jobs.steps_left, np.where(jobs.running, present, jobs.reference_speed) * horizon_seconds)


def closer(view: View, rows: Ints, steps: Floats) -> dict[int, int]:
    """By row: an option in which it would make up for the restart; at most one row per GPU type.

    The GPUs are free, or its own. One row at a time, because a move changes which GPUs are free for the next.
    """
    jobs = view.jobs
    held = jobs.option[rows]
    present, shape = jobs.speed[rows, held], jobs.shape[rows]
    kind = view.shape_accelerator[shape]
    same = (shape >= 0) & (kind >= 0) & (view.shape_gpus[shape] == jobs.held_gpus[rows][:, None])
    speed = np.where(same, jobs.speed[rows], 0.0)
    worth = speed * (steps[rows] / present - jobs.restart_seconds[rows])[:, None] > steps[rows][:, None]
    worth &= speed > present[:, None]
    gain = np.where(worth, speed / present[:, None], 0.0)
    best = gain.max(axis=1, initial=0.0)
    order = np.lexsort((jobs.serial[rows], -best))
    targets: dict[int, int] = {}
    tried = np.zeros(len(view.capacity), dtype=np.int64)
    taken: set[int] = set()
    for place in order[best[order] > 0].tolist():
        here = int(kind[place, held[place]])
        if here not in taken and tried[here] < _MOVES_TRIED_MAX:
            tried[here] += 1
            option = _first_that_fits(view, int(rows[place]), np.flatnonzero(worth[place]))
            if option != NOTHING:
                targets[int(rows[place])] = option
                taken |= {here, int(kind[place, option])}
    return targets


def _first_that_fits(view: View, row: int, options: Ints) -> int:
    """The fastest of these options that would fit if the job left its GPUs."""
    jobs = view.jobs
    gone = np.zeros(len(jobs), dtype=bool)
    gone[row] = True
    level_of_node = view.levels.index(NODE)
    for option in options[np.argsort(-jobs.speed[row, options], kind="stable")].tolist():
        shape = int(jobs.shape[row, option])
        name = view.accelerators[int(view.shape_accelerator[shape])]
        found = int(view.trial(gone, name, jobs.held_gpus[row : row + 1])[0])
        if 0 <= found <= max(int(view.shape_level[shape]), level_of_node):
            return int(option)
    return NOTHING
