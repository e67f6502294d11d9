"""What a solve comes to: an allocation, its value, the prices behind it, and a bound on how good it could have been."""

from __future__ import annotations

from typing import NamedTuple

from horae.model.arrays import Floats
from horae.model.errors import HoraeError


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
