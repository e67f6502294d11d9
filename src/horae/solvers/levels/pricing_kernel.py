"""Classes at given prices of the GPU types, compiled: the least cost of a level, and the best level affordable.

At prices a class is solved in closed form: its options are points (speed, cost), and the cheapest way to a speed is the
lower hull of these points and of idling.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numba import njit

from horae.compiling import kernel as kernel_with
from horae.model.arrays import Bools, Floats, Ints

Function = TypeVar("Function", bound=Callable[..., Any])
_PART: dict[str, Any] = {"error_model": "numpy", "no_cpython_wrapper": True, "no_cfunc_wrapper": True}


def part(function: Function) -> Function:
    """Compile a function that is called only by other kernels."""
    compiled: Any = njit(**_PART)(function)
    return compiled


kernel = kernel_with(error_model="numpy")  # entry points: only these are cached, with their parts inlined
HAIR = 1e-12  # speeds, fractions and parts of capacity are of the order of 1
NUDGE = 1e-10  # to be on the far side of a corner rather than on it
_STEPS_MAX = 200  # of Newton's method; five are usual


class LevelData(NamedTuple):
    """Classes by column: their options, then idling, then running faster than asked."""

    speed: Floats  # relative to the class's best; 0: no choice. 0 for idling, -1 for faster than asked
    use: Floats  # the part of its type's GPUs that is taken when all of the class run there all the time
    kind: Ints  # the type
    gain: Floats  # what that adds to the objective, once the required speeds are met


class Need(NamedTuple):
    """How fast a class must be at a level v: its floor, or slope x v, or, if inverse, 1 / (slope x v - shift)."""

    rising: Bools
    floor: Floats
    slope: Floats
    shift: Floats
    inverse: bool  # then lower levels are better


@part
def support(board: LevelData, prices: Floats, row: int, asked: float) -> tuple[int, int]:
    """The edge of the lower hull of (speed, cost) above the speed asked for: its slower and its faster end."""
    options = board.speed.shape[1] - 2
    before, here = options + 1, options
    while True:
        ahead, least, cost = -1, np.inf, 0.0
        if here < options:
            cost = prices[board.kind[row, here]] * board.use[row, here]
        for option in range(options):
            faster = board.speed[row, option] - board.speed[row, here]
            if faster > HAIR:
                steep = (prices[board.kind[row, option]] * board.use[row, option] - cost) / faster
                if steep < least or (steep == least and board.speed[row, option] > board.speed[row, ahead]):
                    ahead, least = option, steep
        if ahead < 0:
            return before, here
        if board.speed[row, ahead] > asked:
            return here, ahead
        before, here = here, ahead


@part
def line(board: LevelData, prices: Floats, row: int, ends: tuple[int, int]) -> tuple[float, float]:
    """The cost at speed 0 and the slope of an edge."""
    slow, fast = ends
    width = board.speed[row, fast] - board.speed[row, slow]
    if width <= 0:
        return 0.0, 0.0
    low = prices[board.kind[row, slow]] * board.use[row, slow]
    steep = (prices[board.kind[row, fast]] * board.use[row, fast] - low) / width
    return low - steep * board.speed[row, slow], steep


@part
def asked_of(need: Need, row: int, level: float) -> float:
    if not need.rising[row]:
        return need.floor[row]
    if need.inverse:
        return min(1 / (need.slope[row] * level - need.shift[row]), 1.0)
    return min(need.slope[row] * level, 1.0)


@part
def anybody_rises(need: Need) -> bool:
    """Whether any class still rises."""
    found = False
    for rises in need.rising:
        found = found or rises
    return found


@part
def largest(values: Floats) -> float:
    largest = values[0]
    for value in values:
        largest = max(largest, value)
    return largest


@part
def least(values: Floats) -> float:
    least = values[0]
    for value in values:
        least = min(least, value)
    return least


@part
def best_level(need: Need) -> float:
    """The level at which the first class runs at the full speed that its time allows."""
    best = 0.0 if need.inverse else np.inf
    for row in range(len(need.rising)):
        if need.rising[row] and need.inverse:
            best = max(best, (1 + need.shift[row]) / need.slope[row])
        elif need.rising[row]:
            best = min(best, 1 / need.slope[row])
    return best


@part
def proper(prices: Floats) -> Floats:
    """Prices with tiny negative values from rounding set to zero."""
    proper = np.zeros(len(prices))
    for kind in range(len(prices)):
        proper[kind] = max(prices[kind], 0.0)
    return proper


@part
def total_of(values: Floats) -> float:
    total = 0.0
    for value in values:
        total += value
    return total


@part
def cost_of_level(board: LevelData, prices: Floats, need: Need, level: float) -> tuple[float, float]:
    """The least cost of a level at these prices, and its derivative towards better levels."""
    total, change = 0.0, 0.0
    for row in range(len(need.rising)):
        asked = asked_of(need, row, level)
        cost, steep = line(board, prices, row, support(board, prices, row, asked))
        total += cost + steep * asked
        if need.rising[row]:
            change += steep * need.slope[row] * (-asked * asked if need.inverse else 1.0)
    return total, change


@part
def bound_of(board: LevelData, prices: Floats, need: Need, level: float) -> float:
    """The best level affordable at these prices. The cost is convex: Newton's method, from beyond."""
    best = best_level(need)
    budget = total_of(prices)
    total, change = cost_of_level(board, prices, need, level)
    if total <= budget and level != best:  # feasible: move to the far side
        over = level - (total - budget) / change if change != 0.0 else best
        level = max(over, best) if need.inverse else min(over, best)
        total, change = cost_of_level(board, prices, need, level)
    bold = need.inverse  # then the inverse of the cost is almost linear, and steps may be longer
    for _ in range(_STEPS_MAX):
        if total <= budget * (1 + 1e-15) or change == 0.0:
            break
        step = (total - budget) / change
        if level - step == level:
            break
        beyond, level = level, level - step * (total / budget if bold else 1.0)
        total, change = cost_of_level(board, prices, need, level)
        if bold and total < budget:  # too far: back to where it is not affordable, then short steps
            bold = False
            level = max(level - (total - budget) / change, beyond) if change != 0.0 else beyond
            total, change = cost_of_level(board, prices, need, level)
    return level


@part
def worth_of(board: LevelData, prices: Floats, need: Need, level: float) -> Floats:
    """By type: by how much the level would improve if the type had twice its GPUs, at that rate.

    Zero where GPUs are not what limits the level.
    """
    total, _ = cost_of_level(board, prices, need, level)
    _, change = cost_of_level(board, prices, need, level * (1 - NUDGE if need.inverse else 1 + NUDGE))
    if total < total_of(prices) * (1 - 1e-11) or change == 0.0:
        return np.zeros(len(prices))
    worth = np.zeros(len(prices))
    for kind in range(len(prices)):
        worth[kind] = prices[kind] / abs(change)
    return worth
