"""Level problems by HiGHS and bisection: slow, independent of the compiled method, and its fallback."""

from __future__ import annotations

import numpy as np

from horae.model.arrays import Bools, Floats
from horae.model.errors import bounded
from horae.solvers.classes import Classes
from horae.solvers.levels.targets import LevelTarget
from horae.solvers.linear_program import ProgramRow, Solved, cells_of, maximise
from horae.solvers.solution import Answer

_ENDLESS = float("inf")
_HALVINGS = 45
_DOUBLINGS_MAX = 1100  # beyond that a float is infinite
_PULL_MIN = 1e-7  # of the largest: below that GPUs are not what keeps a class from rising


def reach_by_program(problem: str, classes: Classes, wish: LevelTarget, *, fill: bool, gain: Floats | None) -> Answer:
    """The answer of `reach_level`, to some 1e-9."""
    program = _Program(problem, classes)
    rising, floor = wish.rising.copy(), np.zeros(len(wish.rising))
    first: Answer | None = None
    for _ in bounded(len(rising) + 1, "raising levels stage by stage"):
        if not rising.any():
            break
        level, beyond = _bisect(program, wish, rising, floor)
        asked = wish.speeds(level, rising, floor)
        if first is None:
            solved = program.most_idle(asked)
            first = Answer(program.shares(solved), level, beyond, _prices(program, solved, wish, level, rising))
        held = _held_down(program, wish, beyond, rising, floor) & (beyond != level)
        held |= rising & (asked >= program.top * (1 - 1e-9))
        floor, rising = np.where(rising, asked, floor), rising & ~(held if held.any() else rising)
        if not fill:
            break
    if first is None:
        first = Answer(np.zeros(classes.choice.shape), 0.0, 0.0, np.zeros(len(classes.capacity)))
    if gain is not None:
        return first._replace(fraction=program.most_gain(floor * (1 - 1e-8), gain))
    return first._replace(fraction=program.shares(program.most_idle(floor))) if fill else first


class _Program:
    """Shares of classes that must reach given speeds; the last column is the part of every type that stays idle."""

    def __init__(self, problem: str, classes: Classes) -> None:
        self.problem = problem
        self.classes = classes
        self.cells = cells_of(classes)
        self.top = np.where(classes.served, classes.speed.max(axis=1, initial=0.0), 1.0)
        self.speed_rows = slice(len(self.cells.share_rows), None)
        self.type_rows = slice(len(classes.jobs), len(self.cells.share_rows))

    def most_idle(self, asked: Floats) -> Solved:
        asked = np.minimum(asked, self.top * (1 - 1e-12))  # at the best level rounding may ask for too much
        last = len(self.cells.row)
        cost = np.zeros(last + 2)
        cost[last], cost[last + 1] = 1.0, -1.0  # the idle part may be negative: then that part is missing
        rows = list(self.cells.share_rows)
        for number, gpus in enumerate(self.classes.capacity):
            row = rows[len(self.classes.jobs) + number]
            rows[len(self.classes.jobs) + number] = ProgramRow(
                np.append(row.columns, [last, last + 1]), np.append(row.coefficients, [gpus, -gpus]), row.low, row.high
            )
        return maximise(self.problem, cost, (*rows, *self._speeds(asked)))

    def most_gain(self, asked: Floats, gain: Floats) -> Floats:
        cost = (gain * self.classes.jobs[:, None])[self.cells.row, self.cells.option]
        return self.shares(maximise(self.problem, cost, (*self.cells.share_rows, *self._speeds(asked))))

    def shares(self, solved: Solved) -> Floats:
        return self.cells.spread(self.classes, solved.columns)

    def _speeds(self, asked: Floats) -> list[ProgramRow]:
        rows = []
        for number, least in enumerate(asked):
            mine = np.flatnonzero(self.cells.row == number)
            rows.append(ProgramRow(mine, self.classes.speed[number, self.cells.option[mine]], float(least), _ENDLESS))
        return rows


def _bisect(program: _Program, wish: LevelTarget, rising: Bools, floor: Floats) -> tuple[float, float]:
    """The best feasible level, and one just beyond it."""

    def within_reach(level: float) -> bool:
        return program.most_idle(wish.speeds(level, rising, floor)).value >= -1e-9

    best = wish.best_level(program.top, rising)
    if within_reach(best):
        return best, best
    near, far = (2 * best, best) if wish.inverse else (0.0, best)
    for _ in bounded(_DOUBLINGS_MAX, "looking for a level within reach"):
        if not wish.inverse or within_reach(near):
            break
        near, far = 2 * near, near
    for _ in range(_HALVINGS):
        middle = (near + far) / 2
        near, far = (middle, far) if within_reach(middle) else (near, middle)
    return near, far


def _held_down(program: _Program, wish: LevelTarget, beyond: float, rising: Bools, floor: Floats) -> Bools:
    """By class: whether it is part of the proof that the level beyond is infeasible."""
    solved = program.most_idle(wish.speeds(beyond, rising, floor))
    pull = np.maximum(-solved.row_price[program.speed_rows], 0.0) * program.top
    return rising & (pull > _PULL_MIN * pull.max(initial=0.0))


def _prices(program: _Program, solved: Solved, wish: LevelTarget, level: float, rising: Bools) -> Floats:
    """What one more GPU would add to the level: the idle part it makes, over what a better level takes of that."""
    worth = np.maximum(solved.row_price[program.type_rows], 0.0)
    pull = np.maximum(-solved.row_price[program.speed_rows], 0.0)
    taken = float((pull * np.abs(wish.speeds_change(level, rising))).sum())
    return worth / taken if taken > 0 and solved.value <= 1e-8 else np.zeros(len(worth))
