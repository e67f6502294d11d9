"""Gandiva (OSDI'18) in the form in which Gavel's evaluation ran it: equal shares of time, and random pairs.

If all gangs fit at once, every job gets the same part of every GPU type, as far as it can use it. Otherwise jobs of one
size share GPUs two by two, at random, until the rest fits or no jobs are left to pair, and the cluster is divided
equally among pairs and single jobs. A pair is kept while the two keep at least a whole speed in total on every GPU type
that both run on. Jobs that share GPUs at present stay together while GPUs are short; the random numbers of the others
are fixed, so that few pairs change when a job arrives or ends.

The public code of Gavel pairs all jobs as soon as there is one gang too many, and then leaves half of the cluster idle.
It also adds the speeds of a pair up over all GPU types, and so keeps almost any that fits; `packing_min` 0 comes close
to that. It ignores weights. Gandiva by its own rules is the policy `gandiva-time-slicing`, in `time_slicing.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from horae.model.arrays import Bools, Floats, Ints
from horae.model.decisions import Pairs, Shares
from horae.model.view import View
from horae.policies.pairing import check_packing_min, combined, random_pairs

_HAIR = 1e-12  # two halves are a whole, up to rounding


@dataclass(frozen=True)
class Gandiva:
    name: ClassVar[str] = "gandiva"
    packing_min: float = 1.0  # two jobs share while the fractions of their speeds that they keep add up to this

    def __post_init__(self) -> None:
        check_packing_min(self.packing_min)

    def decide(self, view: View) -> Shares:
        jobs, choices = view.jobs, choices_of(view)
        rows = np.flatnonzero((choices.option >= 0).any(axis=1))
        excess_gpus = int(jobs.gpus[rows].sum() - view.capacity.sum())
        if excess_gpus <= 0 or not len(view.kept):
            first = second = np.empty(0, dtype=np.int64)
        else:
            first, second = self._pairs(view, choices, rows)
            needed = int(np.searchsorted(np.cumsum(jobs.gpus[first]), excess_gpus)) + 1
            first, second = first[:needed], second[:needed]
        single = np.setdiff1d(rows, np.concatenate([first, second]))
        part = 1.0 / max(len(single) + len(first), 1)
        fraction = np.zeros(jobs.shape.shape)
        row, kind = np.nonzero(choices.option[single] >= 0)
        fraction[single[row], choices.option[single[row], kind]] = _time(view, choices.gpus[single], part)[row, kind]
        pairs = _company(view, choices, (first, second), part) if len(first) else None
        return Shares(fraction, pairs=pairs)

    def _pairs(self, view: View, choices: Choices, rows: Ints) -> tuple[Ints, Ints]:
        """The pairs that share GPUs now and may continue, then random pairs of the others."""
        jobs = view.jobs
        # Jobs of one model that accept the same shapes match the same others, so a small table suffices.
        key = np.column_stack([jobs.model, jobs.gpus, np.where(choices.option >= 0, choices.shape, -1)])[rows]
        _, example, kind = np.unique(key, axis=0, return_index=True, return_inverse=True)
        matches = self._matches(view, choices, rows[example])
        kind = kind.ravel()
        now = _sharing_now(view, rows)
        now = now[matches[kind[now[:, 0]], kind[now[:, 1]]]]
        others = np.setdiff1d(np.arange(len(rows)), now)
        first, second = random_pairs(view.seed, jobs.serial[rows[others]], kind[others], matches)
        return rows[np.append(now[:, 0], others[first])], rows[np.append(now[:, 1], others[second])]

    def _matches(self, view: View, choices: Choices, rows: Ints) -> Bools:
        """By two of these rows: whether gang sizes are equal, a GPU type is common, and pairing pays on all such."""
        jobs = view.jobs
        both = (choices.option[rows] >= 0)[:, None] & (choices.option[rows] >= 0)
        shape = choices.shape[rows]
        model = jobs.model[rows][:, None, None], jobs.model[rows][None, :, None]
        together = combined(view, model, (shape[:, None], shape[None, :]))
        worth = (together > 0) & (together >= self.packing_min - _HAIR)
        worth &= choices.gpus[rows][:, None] == choices.gpus[rows]
        same: Bools = jobs.gpus[rows][:, None] == jobs.gpus[rows]
        return same & both.any(axis=2) & (worth | ~both).all(axis=2)


class Choices(NamedTuple):
    """By row and accelerator: the fastest of the shapes that the job accepts there."""

    option: Ints  # -1: none, or there are no GPUs
    shape: Ints  # undefined where there is none, as are the GPUs
    gpus: Floats  # infinite where there is none


def choices_of(view: View) -> Choices:
    jobs = view.jobs
    accelerator = view.shape_accelerator[jobs.shape]
    accepted = (jobs.shape >= 0) & (accelerator >= 0) & (jobs.speed > 0)
    option = np.full((len(jobs), len(view.accelerators)), -1)
    for number, gpus in enumerate(view.capacity.tolist()):
        speed = np.where(accepted & (accelerator == number), jobs.speed, 0.0)
        if gpus and speed.size:
            best = speed.argmax(axis=1)
            option[:, number] = np.where(speed.max(axis=1) > 0, best, -1)
    shape = np.take_along_axis(jobs.shape, np.maximum(option, 0), axis=1)
    gpus_of_shape = view.shape_gpus[shape].astype(np.float64)
    return Choices(option, shape, np.where(option >= 0, gpus_of_shape, np.inf))


def _time(view: View, gpus: Floats, part: float) -> Floats:
    """By row and accelerator: the time that this part of the GPUs amounts to, in total at most 1 per row."""
    time = view.capacity * part / gpus
    whole: Floats = time / np.maximum(time.sum(axis=1, keepdims=True), 1.0)
    return whole


def _company(view: View, choices: Choices, rows: tuple[Ints, Ints], part: float) -> Pairs:
    first, second = rows
    both = (choices.option[first] >= 0) & (choices.option[second] >= 0)
    time = _time(view, np.where(both, choices.gpus[first], np.inf), part)
    pair, kind = np.nonzero(both)
    first, second = first[pair], second[pair]
    return Pairs(first, second, choices.option[first, kind], choices.option[second, kind], time[pair, kind])


def _sharing_now(view: View, rows: Ints) -> Ints:
    """Two columns of positions in these rows: jobs that share GPUs and stay there, the earlier of the two first."""
    jobs = view.jobs
    position = np.full(len(jobs), -1)
    position[rows] = np.arange(len(rows))
    partner = jobs.partner[rows]
    stays = (partner >= 0) & jobs.running[rows] & jobs.running[partner] & (position[partner] >= 0)
    first = np.flatnonzero(stays & (jobs.serial[rows] < jobs.serial[partner]))
    return np.column_stack([first, position[partner[first]]])
