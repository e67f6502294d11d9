"""Jobs that are alike, collapsed: equal shapes, speeds and weight mean equal shares, exactly.

An allocation that treats equal jobs differently can be averaged over them: it stays feasible, for constraints are sums,
and no concave objective falls. So one row stands for a class, with the number of its jobs, and thirty thousand jobs of
twenty-six models are a program of twenty-six rows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from horae.model.arrays import Bools, Floats, Ints
from horae.model.view import View

_NONE: Ints = np.empty(0, dtype=np.int64)


class Classes(NamedTuple):
    """Rows are classes, columns options."""

    member: Ints  # by job: its class
    jobs: Floats  # how many
    gang: Floats  # GPUs of the reference shape
    gpus: Floats  # by option
    accelerator: Ints  # by option
    choice: Bools  # by option: the job accepts it, it runs there, and there are GPUs of the type
    speed: Floats  # by option: steps a second; 0 where there is no choice
    weight: Floats
    capacity: Floats  # by accelerator: GPUs
    first: Ints = _NONE  # by class: the row of its first job

    @property
    def served(self) -> Bools:
        """By class: there is something that it could have."""
        return np.logical_or.reduce(self.choice, axis=1)

    def by_job(self, fraction: Floats) -> Floats:
        """An allocation by class as one by job."""
        return fraction[self.member]

    @property
    def equal_speed(self) -> Floats:
        """By class: its speed with the same part of every GPU type, the best shape of each (Gavel's X_equal)."""
        best = np.zeros((len(self.jobs), len(self.capacity)))
        rows, columns = np.nonzero(self.choice)
        np.maximum.at(best, (rows, self.accelerator[rows, columns]), self.speed[rows, columns])
        return best @ self.capacity / max(float(self.capacity.sum()), 1.0)


def collapse(view: View, speed: Floats, state: Floats | None = None) -> Classes:
    """The classes of a pool, numbered in the order of their first job, for these speeds by job and option.

    `state`: by job and column, what else tells jobs apart.
    """
    jobs = view.jobs
    shape = np.where(jobs.shape >= 0, jobs.shape, -1)
    key = np.column_stack([shape, speed, jobs.weight] if state is None else [shape, speed, jobs.weight, state])
    first, member = _alike(key, jobs.serial)
    known = np.where(shape[first] >= 0, shape[first], 0)
    accelerator = view.shape_accelerator[known] if len(view.shapes) else known
    capacity = view.capacity.astype(np.float64)
    gpus = view.shape_gpus[known] if len(view.shapes) else known
    room = np.append(capacity, 0.0)[accelerator]  # -1, a type that the cluster lacks, is the last
    choice = (shape[first] >= 0) & (room > 0) & (speed[first] > 0)
    if _has_twins(accelerator, choice):
        level = view.shape_level[known]
        choice = choice & ~_superfluous(np.stack([accelerator, gpus]), np.where(choice, speed[first], -1.0), level)
    return Classes(
        member=member,
        jobs=np.bincount(member, minlength=len(first)).astype(np.float64),
        gang=jobs.gpus[first].astype(np.float64),
        gpus=gpus.astype(np.float64),
        accelerator=np.where(accelerator >= 0, accelerator, 0),
        choice=choice,
        speed=np.where(choice, speed[first], 0.0),
        weight=jobs.weight[first],
        capacity=capacity,
        first=first,
    )


def _has_twins(accelerator: Ints, choice: Bools) -> bool:
    """Whether any class has two shapes of one type."""
    kinds = np.sort(np.where(choice, accelerator, -1 - np.arange(choice.shape[1])), axis=1)
    return bool((kinds[:, 1:] == kinds[:, :-1]).any())


def _superfluous(kind: Ints, speed: Floats, level: Ints) -> Bools:
    """By class and option: there is another of its type and size, as fast, that is easier to have.

    A gang that may be anywhere also runs where it is close together; if it is no faster there, to ask for both would
    only make it move from one to the other.
    """
    superfluous = np.zeros(speed.shape, dtype=bool)
    for one in range(speed.shape[1]):
        for other in range(speed.shape[1]):
            looser = level[:, other] > level[:, one] if other > one else level[:, other] >= level[:, one]
            same = (kind[:, :, one] == kind[:, :, other]).all(axis=0) & (speed[:, one] == speed[:, other])
            superfluous[:, one] |= same & looser & (other != one)
    return superfluous


def _alike(key: Floats, serial: Ints) -> tuple[Ints, Ints]:
    """The row of the first job of each class, and the class of each job; whatever the order of rows."""
    from horae.policies.solve.classes_kernel import alike  # noqa: PLC0415  numba is slow to import

    return alike(key, serial.copy())
