"""Which deadlines to meet where not all can be met: as many as possible, and then the best total.

Jobs of one class are interchangeable, so a program counts how many of each class are kept. Kept jobs have time of their
own in it, as have dropped ones; both in job-time, so that all rows are linear in the count.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from horae.model.arrays import Floats
from horae.solvers.classes import Classes
from horae.solvers.milp import ENDLESS, Grid, LinearProgram, ProgramSolution, Triplets, grid_of, solve
from horae.solvers.solution import Unsolved

SLACK = 1e-8  # relative: an integer search is less exact than a linear program


class Kept(NamedTuple):
    jobs: Floats  # by class: how many of its jobs meet their deadline
    bound: float  # no allocation that meets as many deadlines has a better total


class _Counting(NamedTuple):
    """Columns: time of kept jobs, time of all others, number kept. Rows: time of either, GPUs, floors."""

    classes: Classes
    grid: Grid
    floor: Floats

    def program(self, kept_cost: Floats, other_cost: Floats, count_cost: float, kept_min: float) -> LinearProgram:
        shares, types, cells = len(self.floor), len(self.classes.capacity), len(self.grid.row)
        grid, every, counts = self.grid, np.arange(shares), 2 * len(self.grid.row) + np.arange(shares)
        column, time = np.arange(cells), np.ones(cells)
        gpus = grid.over(self.classes.gpus)
        used_row = 2 * shares + self.classes.accelerator[grid.row, grid.option]
        floor_row = 2 * shares + types + every
        ones = np.ones(shares)
        triplets = (
            Triplets(grid.row, column, time),  # the time of kept jobs is at most their count
            Triplets(every, counts, -ones),
            Triplets(shares + grid.row, cells + column, time),  # and that of the others at most the rest
            Triplets(shares + every, counts, ones),
            Triplets(used_row, column, gpus),
            Triplets(used_row, cells + column, gpus),
            Triplets(floor_row[grid.row], column, grid.over(self._part())),
            Triplets(floor_row, counts, -ones * (1.0 - SLACK)),
            Triplets(np.full(shares, floor_row[-1] + 1), counts, ones),
        )
        high = (np.zeros(shares), self.classes.jobs, self.classes.capacity, np.full(shares + 1, ENDLESS))
        low = (np.full(2 * shares + types, -ENDLESS), np.zeros(shares), np.array([kept_min]))
        upper = np.concatenate([np.full(2 * cells, ENDLESS), np.where(self.floor > 0, self.classes.jobs, 0.0)])
        whole = np.arange(2 * cells + shares) >= 2 * cells
        cost = np.concatenate([kept_cost, other_cost, np.full(shares, count_cost)])
        return LinearProgram(cost, triplets, np.concatenate(low), np.concatenate(high), upper, whole)

    def _part(self) -> Floats:
        """By class and option: its speed as a fraction of the floor."""
        return self.classes.speed / np.where(self.floor > 0, self.floor, 1.0)[:, None]


def keep_most(classes: Classes, value: Floats, floor: Floats) -> Kept:
    """The number of deadlines to meet by class.

    `value`: by class and option, of one job; `floor`: by class, steps per second, 0 for jobs without a deadline.
    """
    counting = _Counting(classes, grid_of(classes), floor)
    nothing = np.zeros(len(counting.grid.row))
    most = _solved("the most deadlines kept", counting.program(nothing, nothing, 1.0, 0.0))
    total = counting.grid.over(value)
    best = _solved("the best of those deadlines", counting.program(total, total, 0.0, round(most.value)))
    return Kept(np.round(best.columns[2 * len(nothing) :]), best.bound)


def _solved(problem: str, program: LinearProgram) -> ProgramSolution:
    found = solve(problem, program)
    if found is None:  # meeting no deadline is always feasible, and so is the count just found
        raise Unsolved(problem, "rows that cannot contradict do")
    return found
