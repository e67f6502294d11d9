"""Level problems: the best level v at which every class c is as fast as it must be, need(c, v).

Max-min fairness, finish-time fairness and the makespan (Gavel, section 4) differ only in that need. Only the GPU types
tie classes together, so prices of the types decompose the problem, and any prices are a proof: no level is feasible
that costs more than all GPUs are worth. The compiled simplex method finds the prices at which that bound is met.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from horae.model.arrays import Floats
from horae.solvers.classes import Classes
from horae.solvers.levels.bisection import reach_by_program
from horae.solvers.levels.targets import LevelTarget
from horae.solvers.solution import Answer, Unsolved

if TYPE_CHECKING:
    from horae.solvers.levels.pricing_kernel import LevelData, Need

_SAMPLE_MIN = 2048  # classes; beyond this number the prices of a sample are a good start for all
_SAMPLE_EVERY = 8
_GAP_MAX = 1e-6  # relative
_OVER_MAX = 1e-9  # relative: numerical error beyond which the fallback is used


def reach_level(
    problem: str, classes: Classes, wish: LevelTarget, *, fill: bool = False, gain: Floats | None = None
) -> Answer:
    """The best level; then, with `fill`, lexicographically those of all others; then the most gain from what is left.

    The gain is by class and option, of one job there all the time. Value and bound are those of the worst level.
    """
    if not np.count_nonzero(classes.choice):
        return Answer(np.zeros(classes.choice.shape), 0.0, 0.0, np.zeros(len(classes.capacity)))
    from horae.solvers.levels.water_filling_kernel import solve  # noqa: PLC0415  numba is slow to import

    gains = np.empty((0, 0)) if gain is None else gain
    start, guess = _first_prices(classes, wish, gains)
    found = solve(classes, wish, gains, start, guess, fill)
    if found.done and found.over <= _OVER_MAX:
        # The value is that of these shares rather than the level they were made for, so that the gap is the actual one.
        level = wish.level((found.shares * classes.speed).sum(axis=1))
        answer = Answer(found.shares, level, found.bound, found.worth / np.maximum(classes.capacity, 1.0))
        if answer.gap <= _GAP_MAX or not wish.rising.any():
            return answer
    answer = reach_by_program(problem, classes, wish, fill=fill, gain=gain)
    if not answer.gap <= _GAP_MAX:
        raise Unsolved(problem, f"the best that was found may be {answer.gap:.1e} from the best there is")
    return answer


def _first_prices(classes: Classes, wish: LevelTarget, gain: Floats) -> tuple[Floats, float]:
    """Initial prices: equal for all types; or, with many classes, those of a sample of them, at its level."""
    types = len(classes.capacity)
    even = np.full(types, 1 / types)
    if len(classes.jobs) <= _SAMPLE_MIN:
        return even, 0.0
    from horae.solvers.levels.water_filling_kernel import board_of, need_of  # noqa: PLC0415

    return _prices_of_some(board_of(classes, gain), need_of(classes, wish), even)


def _prices_of_some(board: LevelData, need: Need, even: Floats) -> tuple[Floats, float]:
    if len(board.speed) <= _SAMPLE_MIN or not need.rising[::_SAMPLE_EVERY].any():
        return even, 0.0
    from horae.solvers.levels.pricing_kernel import LevelData, Need  # noqa: PLC0415
    from horae.solvers.levels.water_filling_kernel import prices_of  # noqa: PLC0415

    rows = np.arange(0, len(board.speed), _SAMPLE_EVERY)
    use = board.use[rows] * (board.use.sum() / max(float(board.use[rows].sum()), np.finfo(float).tiny))
    some = LevelData(board.speed[rows], use, board.kind[rows], board.gain[rows])
    of_some = Need(need.rising[rows], need.floor[rows], need.slope[rows], need.shift[rows], need.inverse)
    return prices_of(some, of_some, *_prices_of_some(some, of_some, even))
