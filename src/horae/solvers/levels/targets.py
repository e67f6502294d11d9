"""How fast the jobs of each class must be for a level: what max-min, finish-time fairness and makespan differ in."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from horae.model.arrays import Bools, Floats
from horae.solvers.classes import Classes

_MOMENT_SECONDS = 1e-3


class Wish(NamedTuple):
    """At a level v: slope x v, or, if inverse, 1 / (slope x v - shift)."""

    rising: Bools  # by class; the others wish for nothing
    slope: Floats
    shift: Floats
    inverse: bool = False  # then lower levels are better

    def speeds(self, level: float, rising: Bools, floor: Floats) -> Floats:
        """By class; those that do not rise have their floor."""
        inner = self.slope * level - self.shift
        wanted = 1 / np.where(rising, inner, 1.0) if self.inverse else inner
        return np.where(rising, wanted, floor)

    def speeds_change(self, level: float, rising: Bools) -> Floats:
        """By class: how fast that changes with the level."""
        if not self.inverse:
            return np.where(rising, self.slope, 0.0)
        inner = np.where(rising, self.slope * level - self.shift, 1.0)
        return np.where(rising, -self.slope / inner**2, 0.0)

    def level(self, speed: Floats) -> float:
        """The worst of any class at these speeds."""
        if not self.rising.any():
            return 0.0
        speed, slope = speed[self.rising], self.slope[self.rising]
        if not self.inverse:
            return float((speed / slope).min())
        with np.errstate(divide="ignore"):
            return float(((1 / speed + self.shift[self.rising]) / slope).max())

    def best_level(self, top: Floats, rising: Bools) -> float:
        """The level at which the first class has all the speed that its time allows."""
        if self.inverse:
            return float(((1 / top + self.shift) / self.slope)[rising].max())
        return float((top / self.slope)[rising].min())


def has_work(classes: Classes, steps_left: Floats) -> Bools:
    """By class: so much is left that shares matter. Not where it is unknown (nan), nor a millisecond from the end."""
    return steps_left > classes.speed.max(axis=1, initial=0.0) * _MOMENT_SECONDS
