"""Maximises a total that grows with the time of each job: steps per second, or steps per dollar.

    maximise   sum over classes c and options o of jobs[c] value[c, o] x[c, o]

subject to the time of each job, the GPUs of each type and, where requested, a speed below which a job must not fall.
"""

from __future__ import annotations

import numpy as np

from horae.model.arrays import Floats
from horae.solvers.classes import Classes
from horae.solvers.milp import ENDLESS, LinearProgram, Triplets, grid_of, solve
from horae.solvers.solution import Answer

ROUNDING = 1e-10  # relative: a floor that can just be reached must not fail by rounding


def largest_total(
    problem: str, classes: Classes, value: Floats, floor: Floats | None = None, slack: float = ROUNDING
) -> Answer | None:
    """The largest total, or None where the floors are infeasible.

    `value`: by class and option, of one job; `floor`: by class, steps per second.
    """
    grid = grid_of(classes)
    shares, types = len(classes.jobs), len(classes.capacity)
    floor = np.zeros(shares) if floor is None else floor
    if not len(grid.row):
        nothing = Answer(np.zeros(classes.choice.shape), 0.0, 0.0, np.zeros(types))
        return nothing if not floor.any() else None
    wishes = np.flatnonzero(floor > 0)
    part = classes.speed / np.where(floor > 0, floor, 1.0)[:, None]  # relative to its floor
    cells = np.flatnonzero(floor[grid.row] > 0)
    floors = Triplets(
        shares + types + np.searchsorted(wishes, grid.row[cells]), grid.time.column[cells], grid.over(part)[cells]
    )
    program = LinearProgram(
        cost=grid.over(value * classes.jobs[:, None]),
        triplets=(grid.time, grid.gpus, floors),
        low=np.concatenate([np.full(shares + types, -ENDLESS), np.full(len(wishes), 1.0 - slack)]),
        high=np.concatenate([np.ones(shares), classes.capacity, np.full(len(wishes), ENDLESS)]),
    )
    found = solve(problem, program)
    if found is None:
        return None
    prices = np.maximum(found.row_price[shares : shares + types], 0.0)
    pull = np.zeros(shares)
    pull[wishes] = np.maximum(-found.row_price[shares + types :], 0.0)
    fraction = grid.spread(classes, found.columns)
    total = float((fraction * value * classes.jobs[:, None]).sum())
    return Answer(fraction, total, _bound(classes, value * classes.jobs[:, None], prices, pull, part, slack), prices)


def _bound(classes: Classes, value: Floats, prices: Floats, pull: Floats, part: Floats, slack: float) -> float:
    """An upper bound on the total, valid for any prices of GPUs and of floors: weak duality."""
    cost = prices[classes.accelerator] * classes.gpus * classes.jobs[:, None]
    gain = np.where(classes.choice, value + pull[:, None] * part - cost, 0.0)
    best = np.maximum(gain.max(axis=1, initial=0.0), 0.0)
    return float(prices @ classes.capacity + best.sum() - pull.sum() * (1.0 - slack))
