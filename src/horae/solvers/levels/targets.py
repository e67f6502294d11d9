"""The speed required of each class at a level, in which max-min, finish-time fairness and makespan differ."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from horae.model.arrays import Bools, Floats
from horae.solvers.classes import Classes

_MOMENT_SECONDS = 1e-3


class LevelTarget(NamedTuple):
    """The speed required at a level v: slope x v, or, if inverse, 1 / (slope x v - shift)."""

    rising: Bools  # by class; the others have no target
    slope: Floats
    shift: Floats
    inverse: bool = False  # then lower levels are better

    def speeds(self, level: float, rising: Bools, floor: Floats) -> Floats:
        """By class: the speed required at this level; classes that do not rise have their floor."""
        inner = self.slope * level - self.shift
        wanted = 1 / np.where(rising, inner, 1.0) if self.inverse else inner
        return np.where(rising, wanted, floor)

    def speeds_change(self, level: float, rising: Bools) -> Floats:
        """By class: the derivative of the required speed with respect to the level."""
        if not self.inverse:
            return np.where(rising, self.slope, 0.0)
        inner = np.where(rising, self.slope * level - self.shift, 1.0)
        return np.where(rising, -self.slope / inner**2, 0.0)

    def level(self, speed: Floats) -> float:
        """The worst level of any class at these speeds."""
        if not np.count_nonzero(self.rising):
            return 0.0
        speed, slope = speed[self.rising], self.slope[self.rising]
        if not self.inverse:
            return float((speed / slope).min())
        with np.errstate(divide="ignore"):
            return float(((1 / speed + self.shift[self.rising]) / slope).max())

    def best_level(self, top: Floats, rising: Bools) -> float:
        """The level at which the first class runs at the full speed that its time allows."""
        if self.inverse:
            return float(((1 / top + self.shift) / self.slope)[rising].max())
        return float((top / self.slope)[rising].min())


def has_work(classes: Classes, steps_left: Floats) -> Bools:
    """By class: whether the work left is known (not nan) and enough for shares to matter: over a millisecond."""
    return steps_left > classes.speed.max(axis=1, initial=0.0) * _MOMENT_SECONDS
