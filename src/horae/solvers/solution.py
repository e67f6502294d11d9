"""The result of a solve: an allocation, its value, the prices behind it, and a bound on the optimum."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from horae.model.arrays import Floats
from horae.model.decisions import Evidence, Limit
from horae.model.errors import HoraeError
from horae.solvers.classes import Classes


class Unsolved(HoraeError):
    """A solver gave up. The previous decision stands; no substitute is made up."""

    def __init__(self, problem: str, status: str) -> None:
        self.problem = problem
        self.status = status
        super().__init__(f"{problem} was not solved: {status}")


class Answer(NamedTuple):
    fraction: Floats  # by class and option: the fraction of its time that each job of the class spends there
    value: float  # of the objective
    bound: float  # no allocation has a better value
    prices: Floats  # by accelerator: what one more GPU would add to the value

    @property
    def gap(self) -> float:
        """The largest possible distance of the value from the optimum, relative to the bound."""
        return abs(self.bound - self.value) / max(abs(self.bound), 1e-300)


# Evidence of a solve for explanations: prices, scarce GPU types, and what limits each job.

_HAIR = 1e-6


def evidence_of(objective: str, answer: Answer, classes: Classes, time: Floats | None = None) -> Evidence:
    """The evidence of an answer.

    `time`: by class, where jobs also share GPUs; otherwise it follows from the answer's fractions.
    """
    used = np.where(classes.choice, answer.fraction * classes.gpus * classes.jobs[:, None], 0.0)
    given = np.bincount(classes.accelerator.ravel(), used.ravel(), minlength=len(classes.capacity))
    busy = (answer.fraction.sum(axis=1) if time is None else time) >= 1 - _HAIR
    limit = np.where(busy, int(Limit.TIME), int(Limit.SCARCE))
    limit = np.where(classes.served, limit, int(Limit.NOWHERE))
    is_full = (answer.prices > 0) | (given >= classes.capacity * (1 - _HAIR))
    return Evidence(objective, answer.value, answer.bound, answer.prices, is_full, limit[classes.member])
