"""Max-min fairness (Gavel, section 4.1): the least normalised speed of any job is as large as can be.

    maximise t   subject to   level(c) = sum over options of rate[c, o] x[c, o] >= t   for every class c

Then, if wanted, lexicographically: whoever cannot rise any more is frozen, and the rest rises on; a positive price on
its level says that a class cannot. What is left in the end goes to whoever gains most.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from horae.model.arrays import Bools, Floats
from horae.policies.solve.answers import Answer
from horae.policies.solve.classes import Classes
from horae.policies.solve.program import Cells, Row, cells_of, maximise

_ENDLESS = float("inf")
_PRICE_MIN = 1e-9  # below that a level is not what keeps the others down
_SLACK = 1e-8  # relative: a floor that was just reached must be within reach again


class _Levels(NamedTuple):
    """A program whose last column is the level that all who still rise have in common."""

    classes: Classes
    cells: Cells
    rate: Floats  # by class and option


def max_min(classes: Classes, rate: Floats) -> Answer:
    """The best least level, with prices and a bound that proves it."""
    levels = _Levels(classes, cells_of(classes), rate)
    rising = classes.served
    answer, _ = _rise(levels, rising, np.zeros(len(rising)))
    return answer


def water_filling(classes: Classes, rate: Floats) -> Answer:
    """The lexicographically best levels; the value and its bound are those of the least one."""
    levels = _Levels(classes, cells_of(classes), rate)
    rising = classes.served
    floor = np.zeros(len(rising))
    first: Answer | None = None
    while rising.any():
        answer, held_down = _rise(levels, rising, floor)
        first = first or answer
        floor[rising] = answer.value
        rising = rising & ~held_down
    if first is None:
        return Answer(np.zeros(rate.shape), 0.0, 0.0, np.zeros(len(classes.capacity)))
    return first._replace(fraction=_most_above(levels, floor))


def _rise(levels: _Levels, rising: Bools, floor: Floats) -> tuple[Answer, Bools]:
    """Raise all that rise together as far as it goes; who is it that keeps them from going further?"""
    classes, cells = levels.classes, levels.cells
    level = len(cells.row)
    rows = [*cells.share_rows]
    for number in range(len(rising)):
        mine = np.flatnonzero(cells.row == number)
        rates = levels.rate[number, cells.option[mine]]
        if rising[number]:
            rows.append(Row(np.append(mine, level), np.append(rates, -1.0), 0.0, _ENDLESS))
        else:
            rows.append(Row(mine, rates, floor[number] * (1 - _SLACK), _ENDLESS))
    cost = np.zeros(level + 1)
    cost[level] = 1.0
    solved = maximise("max-min fairness", cost, tuple(rows))
    share_rows = len(cells.share_rows)
    prices = np.maximum(solved.row_price[len(classes.jobs) : share_rows], 0.0)
    pull = np.maximum(-solved.row_price[share_rows:], 0.0)
    fraction = cells.spread(classes, solved.columns)
    bound = _bound(levels, prices, pull, rising, floor)
    return Answer(fraction, float(solved.columns[level]), bound, prices), rising & (pull > _PRICE_MIN)


def _bound(levels: _Levels, prices: Floats, pull: Floats, rising: Bools, floor: Floats) -> float:
    """No level above this can be reached, whatever the prices are: weak duality.

    With weights `pull` that are 1 in all over those who rise, t <= sum of pull x level; and a class's time is worth at
    most the best of pull x rate - price of the GPUs over its options.
    """
    total = float(pull[rising].sum())
    if total <= 0:
        return _ENDLESS
    pull, prices = pull / total, prices / total
    classes = levels.classes
    gain = pull[:, None] * levels.rate - prices[classes.accelerator] * classes.gpus * classes.jobs[:, None]
    best = np.where(classes.choice, gain, 0.0).max(axis=1, initial=0.0)
    return float(prices @ classes.capacity + np.maximum(best, 0.0).sum() - (pull * floor)[~rising].sum())


def _most_above(levels: _Levels, floor: Floats) -> Floats:
    """What is left goes to whoever gains most; nobody falls below its level."""
    classes, cells = levels.classes, levels.cells
    rows = [*cells.share_rows]
    for number in range(len(floor)):
        mine = np.flatnonzero(cells.row == number)
        rates = levels.rate[number, cells.option[mine]]
        rows.append(Row(mine, rates, floor[number] * (1 - _SLACK), _ENDLESS))
    cost = (levels.rate * classes.jobs[:, None])[cells.row, cells.option]
    return cells.spread(classes, maximise("what is left", cost, tuple(rows)).columns)
