"""Goodput (Pollux, OSDI'21; Sia, SOSP'23): GPUs where training advances most, each job by its own measure.

The goodput of a shape is the estimated speed of the job there: training progress, not samples processed. Where a trace
has profiles of statistical efficiency, that is part of its speeds; batch sizes are not tuned here.

`variant = "sia"`: for each job at most one pair of a GPU type and a count, minimising the sum of

    (r x G) ^ power            for each job that has GPUs (power -0.5: the smaller the better)
    left_out                   for each that has none (without this the empty answer would win)

G is the goodput over the least that the job has in any shape. r, for shapes other than the present one of a running
job, is age / (age + restart): the fraction of its time left after a restart. The paper also counts former restarts in
r, which the view does not provide. It is solved as an integer program; one that takes too long is rounded: its linear
relaxation leaves at most as many jobs between two choices as there are GPU types, and these get the best pair that
still has room.

`variant = "pollux"`: the harmonic mean (power -1) of speed-ups over an equal share of the GPUs, step by step to the job
with the largest gain per GPU. The paper searches with a genetic algorithm and also places GPUs; here jobs keep to one
GPU type, and a running job grows only if that saves more than its restart over the time that its remaining work takes.

Sizes change at multiples of `interval_seconds`: leases end there.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import ClassVar, NamedTuple

import numpy as np

from horae.model.arrays import Bools, Floats, Ints
from horae.model.decisions import Grants
from horae.model.errors import PolicyError
from horae.model.view import View
from horae.policies.elastic.loss_curves import steps_believed
from horae.policies.elastic.optimus import check_interval
from horae.policies.elastic.sizes import (
    by_step,
    climb,
    damped,
    gpus_left,
    gpus_of,
    ladders_of,
    resizing,
    seconds_at,
    until_boundary,
)
from horae.solvers.milp import LinearProgram, Triplets, solve
from horae.solvers.solution import Unsolved


@dataclass(frozen=True)
class Goodput:
    name: ClassVar[str] = "goodput"
    variant: str = "sia"  # or pollux
    power: float = -0.5  # exponent of the normalised goodput, for sia; nearer to 0 is less fair
    left_out: float = 1.1  # contribution of a job without GPUs to the sum, for sia; one in its worst shape adds 1
    interval_seconds: float = 60.0  # sizes change at multiples of this

    def __post_init__(self) -> None:
        if self.variant not in ("sia", "pollux"):
            raise PolicyError(f"variant is {self.variant!r}", field="variant", remedy="choose sia or pollux")
        if not -inf < self.power < 0:
            raise PolicyError(f"power is {self.power}", field="power", remedy="give a number below 0: -0.5")
        if not 1 < self.left_out < inf:
            raise PolicyError(f"left_out is {self.left_out}", field="left_out", remedy="give more than 1: 1.1")
        check_interval("interval_seconds", self.interval_seconds)

    def decide(self, view: View) -> Grants:
        return self._pollux(view) if self.variant == "pollux" else self._sia(view)

    def _sia(self, view: View) -> Grants:
        accelerator, gpus = best_pairs(view, self.power, self.left_out)
        # The largest gangs are placed first, because small ones find room anywhere.
        order = np.lexsort((view.jobs.serial, -gpus))
        return resizing(view, accelerator, gpus, order, until_boundary(view.now, self.interval_seconds))

    def _pollux(self, view: View) -> Grants:
        jobs, ladders = view.jobs, ladders_of(view)
        everybody = np.arange(len(jobs))
        contenders = np.bincount(ladders.accelerator[ladders.contends], minlength=len(view.capacity))
        equal = ladders.gpus_left / np.maximum(contenders, 1)
        is_rung = np.arange(ladders.gpus.shape[1]) < ladders.rungs[:, None]
        fair = (is_rung & (ladders.gpus <= equal[ladders.accelerator][:, None])).sum(axis=1)
        fair_speed = ladders.speed[everybody, np.maximum(fair - 1, 0)]
        slowness = np.where(is_rung, fair_speed[:, None] / np.where(is_rung, ladders.speed, 1.0), 0.0)
        order = np.lexsort((jobs.serial, jobs.submitted_at, ~jobs.running))
        steps = np.maximum(steps_believed(jobs, self.interval_seconds) - jobs.steps_done, 0.0)
        rung = climb(ladders, order, by_step(ladders, -slowness))
        rung = damped(ladders, rung, seconds_at(ladders, steps), jobs.restart_seconds)
        lease = until_boundary(view.now, self.interval_seconds)
        return resizing(view, ladders.accelerator, gpus_of(view, ladders, rung), order, lease)


# The integer program of Sia (SOSP'23, section 3.4): for each job at most one pair of a GPU type and a count.

_WHOLE = 1e-6


class _Columns(NamedTuple):
    """The pairs of GPU type and count that may be chosen."""

    row: Ints  # in the view, ordered by serial
    job: Ints  # positions 0, 1, … of these rows
    kind: Ints  # GPU type
    gpus: Ints
    worth: Floats  # by how much less the job adds to the sum than if it were left out


def best_pairs(view: View, power: float, left_out: float) -> tuple[Ints, Ints]:
    """By row: the GPU type and the count of the best pair; 0 GPUs for jobs left out and for jobs that keep theirs."""
    jobs = view.jobs
    accelerator, gpus = np.full(len(jobs), -1), np.zeros(len(jobs), dtype=np.int64)
    contends = jobs.pending | jobs.contestable
    columns = _columns(view, contends, power, left_out)
    if len(columns.row):
        left = gpus_left(view, contends & _choices(view).any(axis=1))
        chosen = np.flatnonzero(_chosen(columns, left.astype(np.float64)))
        accelerator[columns.row[chosen]], gpus[columns.row[chosen]] = columns.kind[chosen], columns.gpus[chosen]
    return accelerator, gpus


def _choices(view: View) -> Bools:
    """By row and option: whether it is the fastest of its GPU type and count, the first of equally fast ones."""
    jobs = view.jobs
    kind, gpus = view.shape_accelerator[jobs.shape], view.shape_gpus[jobs.shape]
    accepted = (jobs.shape >= 0) & (kind >= 0) & (jobs.speed > 0)
    same = (kind[:, :, None] == kind[:, None, :]) & (gpus[:, :, None] == gpus[:, None, :]) & accepted[:, None, :]
    place = np.arange(jobs.shape.shape[1])
    mine, theirs = jobs.speed[:, :, None], jobs.speed[:, None, :]
    better = (theirs > mine) | ((theirs == mine) & (place[None, None, :] < place[None, :, None]))
    return accepted & ~(same & better).any(axis=2)


def _columns(view: View, contends: Bools, power: float, left_out: float) -> _Columns:
    jobs = view.jobs
    choices = _choices(view) & contends[:, None]
    rows = np.flatnonzero(choices.any(axis=1))
    rows = rows[np.argsort(jobs.serial[rows])]
    goodput = np.where(choices[rows], jobs.speed[rows], np.inf)
    least = goodput.min(axis=1, initial=np.inf)
    job, option = np.nonzero(choices[rows])
    row = rows[job]
    shape = jobs.shape[row, option]
    kind, gpus = view.shape_accelerator[shape], view.shape_gpus[shape]
    present = jobs.shape[row, jobs.option[row]]
    stays = (view.shape_accelerator[present] == kind) & (jobs.held_gpus[row] == gpus)
    age = view.now - jobs.submitted_at[row]
    restart = jobs.restart_seconds[row]
    factor = np.where(jobs.running[row] & ~stays & (restart > 0), age / np.maximum(age + restart, 1e-9), 1.0)
    adds = np.maximum(factor * goodput[job, option] / least[job], 1e-9) ** power
    return _Columns(row, job, kind, gpus, left_out - adds)


def _chosen(columns: _Columns, gpus_left: Floats) -> Bools:
    """By column: whether it is in the optimal solution."""
    count, jobs = len(columns.row), int(columns.job[-1]) + 1
    places = np.arange(count)
    triplets = (
        Triplets(columns.job, places, np.ones(count)),
        Triplets(jobs + columns.kind, places, columns.gpus.astype(np.float64)),
    )
    high = np.concatenate([np.ones(jobs), gpus_left])
    relaxed = LinearProgram(columns.worth, triplets, np.full(len(high), -np.inf), high, np.ones(count))
    found = solve("goodput, relaxed", relaxed)
    assert found is not None, "to leave everybody out is a solution"
    if (np.minimum(found.columns, 1 - found.columns) < _WHOLE).all():
        return found.columns > 0.5
    try:
        whole = solve("goodput", relaxed._replace(whole=np.ones(count, dtype=bool)))
    except Unsolved:
        return rounded(columns.job, columns.kind, columns.gpus, columns.worth, found.columns, gpus_left)
    assert whole is not None
    return whole.columns > 0.5


def rounded(job: Ints, kind: Ints, gpus: Ints, worth: Floats, part: Floats, gpus_left: Floats) -> Bools:
    """Round a relaxed solution: integral columns stay, and each other job gets the best column that has room."""
    chosen = part > 1 - _WHOLE
    left = gpus_left - np.bincount(kind[chosen], gpus[chosen], minlength=len(gpus_left))
    torn = np.unique(job[(part > _WHOLE) & ~chosen])
    served = set(job[chosen].tolist())
    candidates = np.flatnonzero(np.isin(job, torn) & (worth > 0))
    for column in candidates[np.lexsort((candidates, -worth[candidates]))].tolist():
        if int(job[column]) not in served and gpus[column] <= left[kind[column]]:
            served.add(int(job[column]))
            left[kind[column]] -= gpus[column]
            chosen[column] = True
    return chosen
