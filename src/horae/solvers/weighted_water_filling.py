"""Water filling with levels that rise at different paces, which change when a class can no longer rise.

    maximise t   subject to   level(c) = sum over options of rate[c, o] x[c, o] >= floor[c] + pace[c] t

in stages: a class that limits the others at the end of a stage is full, its level becomes its floor, and the paces of
the rest are recomputed. No integer variables are needed to find the full classes, because prices prove it. A class
whose row has a positive price is at its floor plus pace x t in every optimum, so it can no longer rise. And of a type
that has a price, no other class can have anything without pushing those below their floors: so a class without a price
of its own is full once it has all that the other types can give.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from horae.model.arrays import Bools, Floats
from horae.model.errors import bounded
from horae.solvers.classes import Classes
from horae.solvers.milp import ENDLESS, Grid, LinearProgram, ProgramSolution, Triplets, grid_of, solve
from horae.solvers.solution import Answer, Unsolved

if TYPE_CHECKING:
    import highspy

_PROBLEM = "water filling by organisation"
_PRICE_MIN = 1e-9  # relative to all prices of its kind: less is rounding
_SLACK = 1e-8  # relative: a floor that was just reached must remain feasible

Pace = Callable[[Bools], Floats]  # by class: how fast levels rise, given which classes are full


class _Stage(NamedTuple):
    found: ProgramSolution
    rise: float  # t
    prices: Floats  # by accelerator
    pull: Floats  # by class: the price of its floor


class _Ladder(NamedTuple):
    classes: Classes
    grid: Grid
    rate: Floats  # by class and option

    def climb(self, pace: Floats, floor: Floats, start: highspy.HighsBasis | None) -> _Stage:
        """Raise all classes at their paces as far as possible."""
        shares, types, cells = *(len(axis) for axis in (self.classes.jobs, self.classes.capacity)), len(self.grid.row)
        rising = np.flatnonzero(pace > 0)
        level = Triplets(shares + types + self.grid.row, self.grid.time.column, self.grid.over(self.rate))
        common = Triplets(shares + types + rising, np.full(len(rising), cells), -pace[rising])
        cost = np.zeros(cells + 1)
        cost[cells] = 1.0
        program = LinearProgram(
            cost=cost,
            triplets=(self.grid.time, self.grid.gpus, level, common),
            low=np.concatenate([np.full(shares + types, -ENDLESS), floor * (1 - _SLACK)]),
            high=np.concatenate([np.ones(shares), self.classes.capacity, np.full(shares, ENDLESS)]),
        )
        found = solve(_PROBLEM, program, start)
        if found is None:
            raise Unsolved(_PROBLEM, "levels that were reached cannot be reached again")
        prices = np.maximum(found.row_price[shares : shares + types], 0.0)
        pull = np.maximum(-found.row_price[shares + types :], 0.0)
        return _Stage(found, max(float(found.columns[cells]), 0.0), prices, pull)


def rise(classes: Classes, rate: Floats, pace_of: Pace) -> Answer:
    """Levels that no class can exceed without lowering a full one; the value is where the first class is full."""
    ladder = _Ladder(classes, grid_of(classes), rate)
    full = ~classes.served
    floor = np.zeros(len(full))
    within_reach = classes.choice.copy()  # by class and option: it might still be given more of it
    stage: _Stage | None = None
    first = Answer(np.zeros(rate.shape), 0.0, 0.0, np.zeros(len(classes.capacity)))
    for _ in bounded(len(full) + 1, "raising levels stage by stage"):
        if full.all():
            break
        pace = pace_of(full)
        last, stage = stage, ladder.climb(pace, floor, stage.found.basis if stage else None)
        floor = floor + pace * stage.rise
        if last is None:
            first = first._replace(value=stage.rise, bound=_bound(ladder, stage, pace), prices=stage.prices)
        held = stage.pull * pace > _PRICE_MIN
        if not held.any():
            raise Unsolved(_PROBLEM, "no class limits the others, and yet they do not rise")
        within_reach &= ~_closed(classes, stage)
        reach = np.where(within_reach, rate, 0.0).max(axis=1, initial=0.0)
        full = full | held | (floor >= reach * (1 - _PRICE_MIN))
    if stage is None:
        return first
    return first._replace(fraction=ladder.grid.spread(classes, stage.found.columns))


def _closed(classes: Classes, stage: _Stage) -> Bools:
    """By class and option: whether it can have none of it, because a class with a price would fall below its floor."""
    spent = stage.prices * classes.capacity
    dear = spent > _PRICE_MIN * max(float(spent.max(initial=0.0)), 1e-300)
    return dear[classes.accelerator] & (stage.pull <= 0)[:, None]


def _bound(ladder: _Ladder, stage: _Stage, pace: Floats) -> float:
    """An upper bound on the rise in the first stage, valid for any prices: weak duality."""
    classes = ladder.classes
    total = float(stage.pull @ pace)
    if total <= 0:
        return float("inf")
    pull, prices = stage.pull / total, stage.prices / total
    cost = prices[classes.accelerator] * classes.gpus * classes.jobs[:, None]
    gain = np.where(classes.choice, pull[:, None] * ladder.rate - cost, 0.0)
    return float(prices @ classes.capacity + np.maximum(gain.max(axis=1, initial=0.0), 0.0).sum())
