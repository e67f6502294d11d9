"""Every job gets the same fraction of every GPU type, by weight: Gavel's isolated allocation.

The fractions are what a job would have alone on its 1/N of the cluster; a row is scaled down where a small job could
not use all of its share.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from horae.model.arrays import Bools, Ints
from horae.model.decisions import Shares
from horae.model.view import View


@dataclass(frozen=True)
class EqualShare:
    name: ClassVar[str] = "equal-share"

    def decide(self, view: View) -> Shares:
        jobs = view.jobs
        accelerator = view.shape_accelerator[jobs.shape]  # undefined beyond the last option, masked below
        accepted = (jobs.shape >= 0) & (accelerator >= 0)
        gang = view.shape_gpus[jobs.shape]
        accepted &= ~_is_narrower(accelerator, gang, view.shape_level[jobs.shape], accepted)
        part = jobs.weight / max(float(jobs.weight.sum()), np.finfo(float).tiny)
        fraction = np.where(accepted, view.capacity[accelerator] * part[:, None] / gang, 0.0)
        # A job may accept one type in several shapes; they divide the share of that type.
        fraction /= _options_of_type(accelerator, accepted)
        total = fraction.sum(axis=1, keepdims=True)
        return Shares(fraction / np.maximum(total, 1.0))


def _options_of_type(accelerator: Ints, accepted: Bools) -> Ints:
    """By row and option: how many accepted options of that row have the same accelerator."""
    same = (accelerator[:, :, None] == accelerator[:, None, :]) & accepted[:, None, :]
    return np.maximum(same.sum(axis=2), 1)


def _is_narrower(accelerator: Ints, gang: Ints, level: Ints, accepted: Bools) -> Bools:
    """By row and option: whether the row also accepts as many GPUs of that type anywhere in a larger cell.

    That option has the GPUs of both: dividing time between the two would move a job back and forth on the same GPUs.
    """
    same = (accelerator[:, :, None] == accelerator[:, None, :]) & (gang[:, :, None] == gang[:, None, :])
    earlier = np.tri(gang.shape[1], k=-1, dtype=bool)
    wider = (level[:, :, None] < level[:, None, :]) | ((level[:, :, None] == level[:, None, :]) & earlier)
    narrower: Bools = (same & wider & accepted[:, None, :]).any(axis=2)
    return narrower
