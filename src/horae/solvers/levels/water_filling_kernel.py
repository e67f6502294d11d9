"""The best level, the levels of all others after it, and what is left: the compiled method as a whole."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from horae.compiling import kernel as kernel_with
from horae.model.arrays import Floats
from horae.solvers.classes import Classes
from horae.solvers.levels.pricing_kernel import (
    NUDGE,
    LevelData,
    Need,
    anybody_rises,
    asked_of,
    best_level,
    bound_of,
    kernel,
    largest,
    least,
    line,
    part,
    proper,
    support,
    total_of,
    worth_of,
)
from horae.solvers.levels.simplex_kernel import (
    REACHED,
    LevelBasis,
    adapt,
    begin,
    idle_part,
    improve,
    price,
    settle,
)
from horae.solvers.levels.targets import LevelTarget

_LEVELS_MAX = 200  # steps of Newton's method; five are usual


@part
def _within(board: LevelData, basis: LevelBasis, guide: Floats, asked: Floats) -> bool:
    """Lower the speeds asked for to what is feasible, where a level is known only up to its last digit."""
    missing = -idle_part(basis)
    if missing <= REACHED:
        return True
    for row in range(len(asked)):
        asked[row] /= 1 + missing  # costs at most that part of what it did, because costs are convex
    adapt(board, basis, asked)
    return improve(board, basis, guide, asked, 0.0)


@part
def reach(board: LevelData, basis: LevelBasis, need: Need, asked: Floats, guess: float) -> float:
    """The best level for all rising classes, from the prices in the basis; nan if it does not converge.

    Newton's method: the prices that prove a level to be infeasible also bound how much of it is affordable. The prices
    left in the basis are those that prove the level, which those of its own shares need not do.
    """
    proof = proper(basis.prices)
    level = bound_of(board, proof, need, guess if guess > 0 else best_level(need))
    for _ in range(_LEVELS_MAX):
        for row in range(len(asked)):
            asked[row] = asked_of(need, row, level)
        adapt(board, basis, asked)
        if not improve(board, basis, proof, asked, 0.0):
            return np.nan
        prices = proper(basis.prices)
        lower = level if idle_part(basis) >= -REACHED else bound_of(board, prices, need, level)
        if abs(lower - level) <= 4e-16 * abs(level):
            if not _within(board, basis, proof, asked):
                return np.nan
            for kind in range(len(proof)):
                basis.prices[kind] = proof[kind]
            return level
        proof, level = prices, lower
    return np.nan


@part
def freeze(board: LevelData, basis: LevelBasis, need: Need, asked: Floats) -> None:
    """Freeze the classes that cannot rise: they run all the time, or more would cost more than is available."""
    total = 0.0
    for row in range(len(asked)):
        cost, steep = line(board, basis.prices, row, support(board, basis.prices, row, asked[row]))
        total += cost + steep * asked[row]
    scarce = total >= total_of(basis.prices) * (1 - 1e-11)
    steepest, most, frozen = -1, 0.0, False
    for row in range(len(asked)):
        if not need.rising[row]:
            continue
        _, steep = line(board, basis.prices, row, support(board, basis.prices, row, asked[row] + NUDGE))
        relative = steep / largest(board.use[row])
        if relative > most:
            steepest, most = row, relative
        if asked[row] >= 1 - NUDGE or (scarce and relative > 1e-9):
            need.rising[row], need.floor[row], frozen = False, asked[row], True
    if not frozen and steepest >= 0:
        need.rising[steepest], need.floor[steepest] = False, asked[steepest]


@part
def rise(board: LevelData, basis: LevelBasis, need: Need, asked: Floats) -> bool:
    """Raise all rising classes together until none rises; their final speeds are left in `asked`."""
    for _ in range(len(asked)):
        if not anybody_rises(need):
            return True
        if np.isnan(reach(board, basis, need, asked, 0.0)):
            return False
        freeze(board, basis, need, asked)
    return not anybody_rises(need)


@part
def shares_of(board: LevelData, basis: LevelBasis) -> Floats:
    """By class and option: the fraction of time."""
    options = board.speed.shape[1] - 2
    fraction = np.zeros((len(board.speed), options + 2))
    for row in range(len(fraction)):
        fraction[row, basis.key[row, 0]] += basis.value[row, 0]
        fraction[row, basis.key[row, 1]] += basis.value[row, 1]
    for slot in range(len(basis.row)):
        if basis.row[slot] >= 0:
            fraction[basis.row[slot], basis.column[slot]] += basis.amount[slot]
    return fraction[:, :options]


@part
def _first_basis(board: LevelData, prices: Floats) -> LevelBasis:
    classes, size = len(board.speed), len(prices)
    basis = LevelBasis(
        np.zeros((classes, 2), dtype=np.int64),
        np.zeros((classes, 2)),
        np.full(size, -1, dtype=np.int64),
        np.arange(1, size + 1),
        np.zeros(size),
        prices.copy(),
    )
    begin(board, basis, prices, np.zeros(classes))
    return basis


@kernel
def prices_of(board: LevelData, need: Need, prices: Floats, guess: float) -> tuple[Floats, float]:
    """The prices at the best level, and that level, from initial prices; the latter where it does not converge."""
    basis = _first_basis(board, prices)
    level = reach(board, basis, need, np.zeros(len(board.speed)), guess)
    return (prices, guess) if np.isnan(level) else (proper(basis.prices), level)


@part
def give_rest(board: LevelData, basis: LevelBasis, asked: Floats) -> bool:
    """Allocate what the speeds asked for leave for the most gain; they are lowered by the numerical error."""
    size = len(basis.row)
    over = 1 - min(idle_part(basis), 0.0)
    for row in range(len(asked)):
        asked[row] /= over
    inverse, matrix, use = np.zeros((size, size)), np.zeros((size, size)), np.zeros(size)
    if not price(board, basis, 1.0, inverse, matrix, use):
        return False
    settle(board, basis, asked, 1.0, inverse)
    return improve(board, basis, basis.prices, asked, 1.0)


@part
def _solved(
    board: LevelData, need: Need, start: Floats, guess: float, fill: bool, rest: bool
) -> tuple[bool, float, Floats, Floats]:
    """Whether it was solved; the bound of the level, the prices in GPUs of a type, and the shares."""
    basis, asked = _first_basis(board, start), np.zeros(len(board.speed))
    level, bound, worth = 0.0, 0.0, np.zeros(len(start))
    done = True
    if anybody_rises(need):
        level = reach(board, basis, need, asked, guess)
        done = not np.isnan(level)
        if done:
            prices = proper(basis.prices)
            bound = bound_of(board, prices, need, level)
            worth = worth_of(board, prices, need, bound)
            rest = rest and least(worth) <= 1e-9 * largest(worth)
            if fill:
                freeze(board, basis, need, asked)
                done = rise(board, basis, need, asked)
    else:
        adapt(board, basis, asked)
    if done and rest:
        done = give_rest(board, basis, asked)
    return done, bound, worth, shares_of(board, basis)


@kernel
def board_of(classes: Classes, gain: Floats) -> LevelData:
    """Speeds over the best of each class. The gain, of one job there all the time, may be empty: then it is zero."""
    rows, options = classes.choice.shape
    speed, use, gains = np.zeros((rows, options + 2)), np.zeros((rows, options + 2)), np.zeros((rows, options + 2))
    kind = np.zeros((rows, options + 2), np.int64)
    most = 0.0
    for row in range(rows):
        top = _best(classes, row)
        speed[row, options + 1] = -1.0
        for option in range(options):
            speed[row, option] = classes.speed[row, option] / top
            kind[row, option] = classes.accelerator[row, option]
            if classes.choice[row, option]:
                gpus = max(classes.capacity[kind[row, option]], 1.0)
                use[row, option] = classes.jobs[row] * classes.gpus[row, option] / gpus
                if len(gain):
                    gains[row, option] = classes.jobs[row] * gain[row, option]
                    most = max(most, gains[row, option])
    if most > 0:
        gains /= most
    return LevelData(speed, use, kind, gains)


@part
def _best(classes: Classes, row: int) -> float:
    """The best speed of a class; 1 where it has no choice."""
    best, served = classes.speed[row, 0], False
    for option in range(classes.choice.shape[1]):
        served = served or classes.choice[row, option]
        best = max(best, classes.speed[row, option])
    return best if served else 1.0


@kernel
def need_of(classes: Classes, wish: LevelTarget) -> Need:
    """The required speeds, over the best speed of each class."""
    floor, slope, shift = np.zeros(len(wish.slope)), wish.slope.copy(), wish.shift.copy()
    for row in range(len(slope)):
        top = _best(classes, row)
        slope[row] = slope[row] * top if wish.inverse else slope[row] / top
        shift[row] *= top
    return Need(wish.rising.copy(), floor, slope, shift, wish.inverse)


class LevelOutcome(NamedTuple):
    done: bool
    bound: float
    worth: Floats  # by type: all of its GPUs
    shares: Floats
    over: float  # the excess over all GPUs of a type or all time of a job, before it was taken off


@kernel_with(error_model="numpy", small=5_000)
def solve(classes: Classes, wish: LevelTarget, gain: Floats, start: Floats, guess: float, fill: bool) -> LevelOutcome:
    board = board_of(classes, gain)
    done, bound, worth, fraction = _solved(board, need_of(classes, wish), start, guess, fill, len(gain) > 0)
    rows, options = fraction.shape
    given, used, below = np.zeros(len(classes.capacity)), 0.0, 0.0
    for row in range(rows):
        time = 0.0
        for option in range(options):
            below = max(below, -fraction[row, option])
            fraction[row, option] = max(fraction[row, option], 0.0)
            time += fraction[row, option]
            gpus = fraction[row, option] * classes.gpus[row, option] * classes.jobs[row]
            given[classes.accelerator[row, option]] += gpus
        used = max(used, time)
    for number in range(len(given)):
        used = max(used, given[number] / max(classes.capacity[number], 1.0))
    # The numerical error is taken off all classes.
    fraction /= max(used, 1.0)
    return LevelOutcome(done, bound, worth, fraction, max(used - 1, below))
