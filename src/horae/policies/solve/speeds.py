"""The speeds that a policy goes by: those of each GPU type, or, if it is not aware of types, one for all of them."""

from __future__ import annotations

import numpy as np

from horae.model.arrays import Floats
from horae.model.view import View


def speeds_of(view: View, *, aware: bool, reference: str) -> Floats:
    """By job and option. Not aware: the best on the reference type, wherever a job runs at all.

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
