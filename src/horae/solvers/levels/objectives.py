"""Max-min fairness (Gavel, section 4.1): maximise the least normalised speed of any job.

    maximise t   subject to   level(c) = sum over options of rate[c, o] x[c, o] >= t   for every class c

Then, if requested, lexicographically: a class that cannot rise any further is frozen, and the rest rises on; a positive
price on its level proves that a class cannot rise. A class whose rates are all zero is not in the objective.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from horae.model.arrays import Bools, Floats
from horae.solvers.classes import Classes
from horae.solvers.levels.solve import reach_level
from horae.solvers.levels.targets import LevelTarget, has_work
from horae.solvers.levels.types_alike import are_types_alike, fill_alike
from horae.solvers.solution import Answer

_PROBLEM = "max-min fairness"


def max_min(classes: Classes, rate: Floats) -> Answer:
    """The best least level, with prices and a bound that proves it; what is left over is not allocated."""
    return reach_level(_PROBLEM, *_levels(classes, classes.served, rate))


def water_filling(classes: Classes, rate: Floats) -> Answer:
    """The lexicographically best levels; the value and its bound are those of the least one.

    Then no class can have more without taking it from another, except for those not in the objective: what is left goes
    to whichever of them gains most.
    """
    served = classes.served
    levels, wish = _levels(classes, served, rate)
    others = served & ~wish.rising
    if not np.count_nonzero(others):
        return reach_level(_PROBLEM, levels, wish, fill=True)
    best = np.where(others, classes.speed.max(axis=1, initial=0.0), 1.0)
    gain = np.where(others[:, None], classes.speed / best[:, None], 0.0)
    return reach_level(_PROBLEM, levels, wish, fill=True, gain=gain)


def _levels(classes: Classes, served: Bools, rate: Floats) -> tuple[Classes, LevelTarget]:
    """The classes with rates in place of speeds, so that all must have the same level."""
    rising = served & (rate.max(axis=1, initial=0.0) > 0)
    levels = classes._replace(speed=np.where(rising[:, None] & classes.choice, rate, classes.speed))
    return levels, LevelTarget(rising, np.ones(len(rising)), np.zeros(len(rising)))


# Makespan (Gavel, section 4.2): minimise the time until the last job ends, if shares stayed as they are.


def makespan(classes: Classes, steps_left: Floats) -> Answer:
    """The shares of least makespan; value and bound in seconds; prices: seconds saved by one more GPU.

    Where the work left is unknown (nan) or nearly zero, a job gets only of what is left over; that goes to the jobs
    that gain most relative to their speed with the same part of every type.
    """
    rising = classes.served & has_work(classes, steps_left)
    slope = np.where(rising, steps_left, 1.0)
    equal = classes.equal_speed
    gain = classes.speed / np.where(equal > 0, equal, 1.0)[:, None]
    answer = reach_level("the makespan", classes, LevelTarget(rising, slope, np.zeros(len(slope))), gain=gain)
    if not rising.any():
        return answer
    return answer._replace(value=1 / answer.value, bound=1 / answer.bound, prices=answer.prices / answer.value**2)


# Finish-time fairness (Themis; Gavel, section 4.2): minimise the worst ratio of finish times.


class ClassProgress(NamedTuple):
    """Age, work left and isolated time so far, by class."""

    age_seconds: Floats
    steps_left: Floats  # nan where unknown
    isolated_seconds: Floats  # that the steps so far would have taken alone


def isolated_speed(classes: Classes) -> Floats:
    """By class: the speed of one job on its 1/N of every type's GPUs, in its best shape there (Gavel's X_isolated).

    A row that exceeds all of a job's time is scaled down.
    """
    jobs = max(float(classes.jobs.sum()), 1.0)
    share = np.where(classes.choice, classes.capacity[classes.accelerator] / jobs / np.maximum(classes.gpus, 1.0), 0.0)
    share = np.where(_best_of_type(classes), share, 0.0)
    return (share * classes.speed).sum(axis=1) / np.maximum(share.sum(axis=1), 1.0)


def finish_time_fairness(classes: Classes, progress: ClassProgress, alone: Floats, *, fill: bool = False) -> Answer:
    """The best worst ratio; what is left goes to the jobs that gain most relative to their isolated speed, `alone`.

    With `fill`, the other ratios are made as small as possible first, the worst of them before the rest. A job whose
    work left is unknown or nearly zero has no ratio that shares could change: it gets only of what is left over.
    """
    rising = classes.served & has_work(classes, progress.steps_left) & (alone > 0)
    left = np.where(rising, progress.steps_left, 1.0)
    total = progress.isolated_seconds + left / np.where(rising, alone, 1.0)
    wish = LevelTarget(rising, total / left, progress.age_seconds / left, inverse=True)
    if fill and are_types_alike(classes, rising):
        return fill_alike(classes, wish)
    gain = classes.speed / np.where(alone > 0, alone, 1.0)[:, None]
    return reach_level("finish-time fairness", classes, wish, fill=fill, gain=gain)


def _best_of_type(classes: Classes) -> Bools:
    """By class and option: whether it is the fastest of its accelerator, and the first of equals."""
    speed, kind = np.where(classes.choice, classes.speed, -1.0), classes.accelerator
    best = classes.choice.copy()
    for one in range(speed.shape[1]):
        for other in range(one):  # comes first, so it stays in a tie
            same = kind[:, one] == kind[:, other]
            best[:, one] &= ~(same & (speed[:, other] >= speed[:, one]))
            best[:, other] &= ~(same & (speed[:, one] > speed[:, other]))
    return best
