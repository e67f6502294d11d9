"""Shares that prefer no GPU type, for policies that are not aware of their speeds.

To such a policy all types are the same, so any way to spread a job's time over them is equally good, and a solver
returns the first vertex that it finds. That implies an arbitrary order of types: if the fastest happen to come first,
the unaware policy looks as if it were aware. So time is spread in proportion to the GPUs.
"""

from __future__ import annotations

import numpy as np

from horae.model.arrays import Floats
from horae.model.view import View
from horae.solvers.classes import Classes

_HAIR = 1e-12


def spread_evenly(classes: Classes, fraction: Floats) -> Floats:
    """The same time for each job, spread over all types that it accepts in proportion to their GPUs.

    Where some jobs do not accept all types that may need more GPUs than there are; then the shares stay as they are.
    """
    part = np.where(classes.choice, classes.capacity[classes.accelerator], 0.0)
    for number in range(len(classes.capacity)):  # several shapes of one type divide its part
        here = classes.choice & (classes.accelerator == number)
        part /= np.where(here, np.maximum(here.sum(axis=1, keepdims=True), 1), 1)
    total = part.sum(axis=1, keepdims=True)
    even = fraction.sum(axis=1, keepdims=True) * part / np.where(total > 0, total, 1.0)
    used = np.bincount(
        classes.accelerator.ravel(),
        (even * classes.gpus * classes.jobs[:, None]).ravel(),
        minlength=len(classes.capacity),
    )
    return even if (used <= classes.capacity * (1 + _HAIR)).all() else fraction


# The speeds a policy uses: those of each GPU type, or, if it is not aware of types, one for all of them.


def speeds_of(view: View, *, aware: bool, reference: str) -> Floats:
    """Speeds by job and option; if not aware, the best on the reference type, wherever a job runs at all.

    Where there is no such type, or the job does not accept it, the speed of its first option stands for all.
    """
    jobs = view.jobs
    if aware or not len(jobs):
        return jobs.speed
    speed = jobs.speed[:, 0]
    if reference in view.accelerators:
        of_type = view.shape_accelerator[jobs.shape] == view.accelerators.index(reference)
        on_type = np.where(of_type & (jobs.shape >= 0), jobs.speed, 0.0).max(axis=1)
        speed = np.where(on_type > 0, on_type, speed)
    return np.where((jobs.shape >= 0) & (jobs.speed > 0), speed[:, None], 0.0)
