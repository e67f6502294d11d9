"""What a solve comes to: an allocation, its value, the prices behind it, and a bound on how good it could have been."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from horae.model.arrays import Floats
from horae.model.decisions import Evidence, Limit
from horae.model.errors import HoraeError
from horae.solvers.classes import Classes


class Unsolved(HoraeError):
    """A solver gave up. The decision before stands; nothing is made up in its place."""

    def __init__(self, problem: str, status: str) -> None:
        self.problem = problem
        self.status = status
        super().__init__(f"{problem} was not solved: {status}")


class Answer(NamedTuple):
    fraction: Floats  # by class and option: the part of its time that each job of the class spends there
    value: float  # of the objective
    bound: float  # no allocation has a better value
    prices: Floats  # by accelerator: what one more GPU would add to the value

    @property
    def gap(self) -> float:
        """How far from the best the value can be at most, relative to the bound."""
        return abs(self.bound - self.value) / max(abs(self.bound), 1e-300)


# What a solve can tell those who ask why: prices, what is scarce, and what keeps each job from more.

_HAIR = 1e-6


def evidence_of(objective: str, answer: Answer, classes: Classes, time: Floats | None = None) -> Evidence:
    """`time`: by class, where jobs also run in company; otherwise it is what the answer's fractions come to."""
    used = np.where(classes.choice, answer.fraction * classes.gpus * classes.jobs[:, None], 0.0)
    given = np.bincount(classes.accelerator.ravel(), used.ravel(), minlength=len(classes.capacity))
    busy = (answer.fraction.sum(axis=1) if time is None else time) >= 1 - _HAIR
    limit = np.where(busy, int(Limit.TIME), int(Limit.SCARCE))
    limit = np.where(classes.served, limit, int(Limit.NOWHERE))
    is_full = (answer.prices > 0) | (given >= classes.capacity * (1 - _HAIR))
    return Evidence(objective, answer.value, answer.bound, answer.prices, is_full, limit[classes.member])
