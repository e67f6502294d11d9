"""AlloX (EuroSys'20) as in Gavel's evaluation: min-cost matching of waiting jobs to GPUs and queue positions.

A job that is k-th from the end on a GPU delays itself and k - 1 others by its run time there, so the sum over jobs of k
x run time + waiting so far is the sum of all completion times. The first job on a free GPU gets all of it and keeps it
until it ends; the others are matched again. The waiting time so far does not depend on where a job goes, so it does not
affect the matching.

The more GPUs are free at a time, the better the matching: one at a time, each GPU goes to the job that is shortest
there, and long jobs stay until their end on types where they are slow. It therefore works best in a pool that
reconsiders every hour or two, with `fill`: until then waiting jobs run on idle GPUs and are matched as if they waited.

Only jobs of one GPU are served; larger ones are not, unless they run already. Jobs of unknown length are assumed to be
as long as the longest job of known length, each on its fastest GPU type.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import ClassVar, NamedTuple

import numpy as np

from horae.model.arrays import Floats, Ints
from horae.model.decisions import Shares
from horae.model.errors import PolicyError
from horae.model.view import View
from horae.policies.grouped_sums import sums_before
from horae.solvers.solution import Unsolved


@dataclass(frozen=True)
class Allox:
    name: ClassVar[str] = "allox"
    uses_lengths: ClassVar[bool] = True
    oldest: float = 1.0  # only this fraction of the waiting jobs is matched, oldest first, at least one per free GPU

    def __post_init__(self) -> None:
        if not 0 <= self.oldest <= 1:
            raise PolicyError(f"oldest is {self.oldest}", field="oldest", remedy="give a part of 1")

    def decide(self, view: View) -> Shares:
        jobs = view.jobs
        fraction = np.zeros(jobs.shape.shape)
        staying = _staying(view)
        fraction[staying, jobs.option[staying]] = 1.0
        held = view.shape_accelerator[jobs.shape[staying, jobs.option[staying]]]
        free = view.capacity - np.bincount(held, jobs.held_gpus[staying], len(view.capacity)).astype(np.int64)
        wishes = _wishes(view, free, staying)
        matched = max(int(free.sum()), int(self.oldest * len(wishes.row)))
        seconds = wishes.seconds[:matched]
        kind = least_sum(seconds, free)
        starts = _first_in_line(seconds, kind, free)
        fraction[wishes.row[starts], wishes.option[starts, kind[starts]]] = 1.0
        # Once they have started, the others are matched to the GPUs left, if any: a job that was to wait for a better
        # GPU does not wait while a worse one is idle.
        left = free - np.bincount(kind[starts], minlength=len(free))
        idle = (np.delete(wishes.seconds, starts, axis=0) < inf) & (left > 0)
        return Shares(fraction, stands_until=view.now if idle.any() else inf)


class _Wishes(NamedTuple):
    """Jobs that are not matched yet and could use a GPU that is free, the oldest first."""

    row: Ints
    option: Ints  # by accelerator: the fastest option of one GPU; undefined where `seconds` is infinite
    seconds: Floats  # by accelerator: time to finish if started now; infinite where it does not run or no GPU is free


def _staying(view: View) -> Ints:
    """Rows of the jobs that keep their GPUs; where GPUs were lost, the latest jobs release theirs.

    A job that only fills an otherwise idle GPU was not matched to it. Where no job was matched yet, all keep theirs.
    """
    jobs = view.jobs
    matched = jobs.target[np.arange(len(jobs)), jobs.option] > 0
    rows = np.flatnonzero(jobs.running & (matched | ~(jobs.target > 0).any()))
    rows = rows[np.lexsort((jobs.serial[rows], jobs.submitted_at[rows]))]
    accelerator = view.shape_accelerator[jobs.shape[np.arange(len(jobs)), jobs.option]]
    rows = rows[accelerator[rows] >= 0]  # a job on drained hardware stays there without a share
    before = sums_before(accelerator, jobs.held_gpus, rows)[rows]
    return rows[before + jobs.held_gpus[rows] <= view.capacity[accelerator[rows]]]


def _wishes(view: View, free: Ints, staying: Ints) -> _Wishes:
    jobs = view.jobs
    rows = np.delete(np.arange(len(jobs)), staying)
    rows = rows[np.lexsort((jobs.serial[rows], jobs.submitted_at[rows]))]
    shape, speed = jobs.shape[rows], jobs.speed[rows]
    accelerator = np.where((shape >= 0) & (view.shape_gpus[shape] == 1), view.shape_accelerator[shape], -1)
    option = np.zeros((len(rows), len(free)), dtype=np.int64)
    best = np.zeros(option.shape)
    for number in np.flatnonzero(free > 0).tolist():
        there = np.where(accelerator == number, speed, 0.0)
        option[:, number] = there.argmax(axis=1)
        best[:, number] = there.max(axis=1)
    served = best.any(axis=1)
    rows, option, best = rows[served], option[served], best[served]
    steps = _steps_left(jobs.steps_left[rows], best.max(axis=1, initial=0.0))
    with np.errstate(divide="ignore", invalid="ignore"):
        return _Wishes(rows, option, np.where(best > 0, steps[:, None] / best, inf))


def _steps_left(steps: Floats, fastest: Floats) -> Floats:
    """Steps left by job; an unknown number is assumed to take as long as the longest known one."""
    known = np.isfinite(steps)
    longest = (steps[known] / fastest[known]).max(initial=0.0) or 1.0
    return np.where(known, steps, longest * fastest)


def least_sum(seconds: Floats, free: Ints) -> Ints:
    """By job: the GPU type on which it is to run, so that the sum of all completion times is minimal."""
    kinds = np.flatnonzero(free > 0)
    if len(kinds) <= 1 or len(seconds) == 0:
        return np.full(len(seconds), kinds[0] if len(kinds) else 0, dtype=np.int64)
    from horae.policies.allox_kernel import least_sum_by_paths  # noqa: PLC0415  (numba takes a while to import)

    order = np.argsort(-seconds.min(axis=1), kind="stable")  # with the long jobs first, fewer of them move later
    kind = least_sum_by_paths(seconds[order][:, kinds], free[kinds])
    if (kind < 0).any():
        raise Unsolved("the matching of jobs to GPUs", "a path of ever lower cost has no end")
    answer = np.empty(len(kind), dtype=np.int64)
    answer[order] = kinds[kind]
    return answer


def _first_in_line(seconds: Floats, kind: Ints, free: Ints) -> Ints:
    """Positions of the jobs that start: for each type as many as it has free GPUs, the shortest first.

    On identical GPUs the sum is minimal with the longest jobs at the ends of the queues and so on towards their heads;
    among equal queues the assignment makes no difference, so the shortest jobs are the heads.
    """
    mine = seconds[np.arange(len(kind)), kind]
    order = np.lexsort((np.arange(len(kind)), mine, kind))
    before = sums_before(kind, np.ones(len(kind)), order)
    return np.flatnonzero(before < free[kind])
