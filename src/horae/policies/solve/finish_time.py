"""Finish-time fairness (Themis; Gavel, section 4.2): the worst ratio of finish times is as small as can be.

    minimise rho   subject to   (age + left / speed(x)) / (isolated so far + left / isolated speed) <= rho

for every job: its whole time in the pool against its time on a share of its own. At a ratio rho a class needs a speed
of left / (rho x isolated total - age), and that is a level problem.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from horae.model.arrays import Bools, Floats
from horae.policies.solve.answers import Answer
from horae.policies.solve.classes import Classes
from horae.policies.solve.levels import reach_level
from horae.policies.solve.wishes import Wish, has_work


class Progress(NamedTuple):
    """By class."""

    age_seconds: Floats
    steps_left: Floats  # nan where nobody knows
    isolated_seconds: Floats  # that the steps so far would have taken alone


def isolated_speed(classes: Classes) -> Floats:
    """By class: the speed of one job on its 1/N of every type's GPUs, in its best shape there (Gavel's X_isolated).

    A row of more than all of its time is scaled down.
    """
    jobs = max(float(classes.jobs.sum()), 1.0)
    share = np.where(classes.choice, classes.capacity[classes.accelerator] / jobs / np.maximum(classes.gpus, 1.0), 0.0)
    share = np.where(_best_of_type(classes), share, 0.0)
    return (share * classes.speed).sum(axis=1) / np.maximum(share.sum(axis=1), 1.0)


def finish_time_fairness(classes: Classes, progress: Progress, alone: Floats) -> Answer:
    """The best worst ratio; what is left goes to whoever gains most of its isolated speed, `alone`.

    A job of which nobody knows how much is left, or which has next to nothing left, has no ratio that shares could
    change: it gets of what is left over only.
    """
    rising = classes.served & has_work(classes, progress.steps_left) & (alone > 0)
    left = np.where(rising, progress.steps_left, 1.0)
    total = progress.isolated_seconds + left / np.where(rising, alone, 1.0)
    wish = Wish(rising, total / left, progress.age_seconds / left, inverse=True)
    gain = classes.speed / np.where(alone > 0, alone, 1.0)[:, None]
    return reach_level("finish-time fairness", classes, wish, gain=gain)


def _best_of_type(classes: Classes) -> Bools:
    """By class and option: it is the fastest of its accelerator, and the first of equals."""
    speed, kind = np.where(classes.choice, classes.speed, -1.0), classes.accelerator
    best = classes.choice.copy()
    for one in range(speed.shape[1]):
        for other in range(one):  # comes first, so it stays in a tie
            same = kind[:, one] == kind[:, other]
            best[:, one] &= ~(same & (speed[:, other] >= speed[:, one]))
            best[:, other] &= ~(same & (speed[:, one] > speed[:, other]))
    return best
