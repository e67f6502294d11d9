"""Finish-time fairness where all GPU types are alike to every job: one resource, and a level found in closed form.

A policy that is not aware of types states such problems. The general method freezes one class after another as they
come to run all the time, and solves a program for each. With one resource the GPUs needed for a level are a sum over
classes, so the final level is where that sum meets the GPUs there are, and each class has min(all its time, what the
level requires).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from horae.model.arrays import Bools, Floats
from horae.model.errors import bounded
from horae.solvers.classes import Classes
from horae.solvers.levels.targets import LevelTarget
from horae.solvers.solution import Answer
from horae.solvers.type_blind import even_weights

_STEPS_MAX = 200  # of Newton's method; five are usual
_HAIR = 1e-12


def are_types_alike(classes: Classes, rising: Bools) -> bool:
    """Whether every class rises and has the same speed and gang on every type that has GPUs."""
    if not len(rising) or not rising.all():
        return False
    speed, gpus = classes.speed.max(axis=1, keepdims=True), classes.gpus.max(axis=1, where=classes.choice, initial=0.0)
    same = (classes.speed == speed) & (classes.gpus == gpus[:, None])
    return bool((same | ~classes.choice).all()) and all(
        (classes.choice & (classes.accelerator == kind)).any(axis=1).all() for kind in np.flatnonzero(classes.capacity)
    )


def fill_alike(classes: Classes, wish: LevelTarget) -> Answer:
    """The answer of `reach_level` with `fill`, for inverse targets of classes to which all types are alike."""
    top = classes.speed.max(axis=1)
    gpus = classes.jobs * classes.gpus.max(axis=1, where=classes.choice, initial=0.0)
    sums = _Sums(gpus, wish.slope * top, wish.shift * top)
    supply = float(classes.capacity.sum())
    worst = float(sums.full_at.max())
    is_short = float(gpus @ sums.time(worst)) > supply
    level = sums.level(supply)
    time = sums.time(level)
    # Rounding is taken off all classes.
    time /= max(float(gpus @ time) / supply, 1.0)
    prices = np.where(classes.capacity > 0, 1 / sums.gpus_change(level) if is_short else 0.0, 0.0)
    weights = even_weights(classes)
    shares = weights * (time / weights.sum(axis=1))[:, None]
    return Answer(shares, wish.level(time * top), level if is_short else worst, prices)


class _Sums(NamedTuple):
    """The time required of a class at a level v: 1 / (slope x v - shift), or all of its time."""

    gpus: Floats  # by class: those of all its jobs
    slope: Floats
    shift: Floats

    @property
    def full_at(self) -> Floats:
        """By class: the level from which on, downwards, it runs all the time."""
        return (1 + self.shift) / self.slope

    def time(self, level: float) -> Floats:
        return 1 / np.maximum(self.slope * level - self.shift, 1.0)

    def gpus_change(self, level: float) -> float:
        """The GPUs that a worse level takes less, at that rate; classes that still run all the time take no less."""
        inner = self.slope * level - self.shift
        return float((self.gpus * self.slope / inner**2)[inner >= 1 - _HAIR].sum())

    def level(self, supply: float) -> float:
        """The best level that this many GPUs allow; where all classes can run all the time, the last one's."""
        full_at = np.sort(self.full_at)
        low, high = -1, len(full_at)  # the first is not affordable, the second is
        for _ in bounded(len(full_at) + 2, "looking for a level within reach"):
            if high - low <= 1:
                break
            middle = (low + high) // 2
            is_enough = float(self.gpus @ self.time(full_at[middle])) <= supply
            low, high = (low, middle) if is_enough else (middle, high)
        if low < 0:
            return float(full_at[0])
        # Beyond it the sum is convex, up to the next class that runs all the time: Newton's method never goes too far.
        level = float(full_at[low])
        for _ in range(_STEPS_MAX):
            step = (float(self.gpus @ self.time(level)) - supply) / self.gpus_change(level)
            if step <= 0 or level + step == level:
                break
            level += step
        return level
