"""Classes of equal jobs: equal shapes, speeds and weight mean equal shares, exactly.

An allocation that treats equal jobs differently can be averaged over them: it stays feasible, because constraints are
sums, and no concave objective falls. So one row stands for a class, with the number of its jobs, and thirty thousand
jobs of twenty-six models are a program of twenty-six rows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from horae.model.arrays import Bools, Floats, Ints
from horae.model.view import View

_NONE: Ints = np.empty(0, dtype=np.int64)


class Classes(NamedTuple):
    """Classes of equal jobs: rows are classes, columns options."""

    member: Ints  # by job: its class
    jobs: Floats  # number of jobs
    gang: Floats  # GPUs of the reference shape
    gpus: Floats  # by option
    accelerator: Ints  # by option
    choice: Bools  # by option: the job accepts it, it runs there, and there are GPUs of the type
    speed: Floats  # by option: steps per second; 0 where there is no choice
    weight: Floats
    capacity: Floats  # by accelerator: GPUs
    first: Ints = _NONE  # by class: the row of its first job

    @property
    def served(self) -> Bools:
        """By class: whether it has any option."""
        return np.logical_or.reduce(self.choice, axis=1)

    def by_job(self, fraction: Floats) -> Floats:
        """Expand an allocation by class to one by job."""
        return fraction[self.member]

    @property
    def equal_speed(self) -> Floats:
        """By class: its speed with the same part of every GPU type, in the best shape of each (Gavel's X_equal)."""
        from horae.solvers.classes_kernel import best_of_types  # noqa: PLC0415  numba is slow to import

        best = best_of_types(self.accelerator, self.choice, self.speed, len(self.capacity))
        return best @ self.capacity / max(float(self.capacity.sum()), 1.0)


def collapse(view: View, speed: Floats, state: Floats | None = None) -> Classes:
    """The classes of a pool, numbered in the order of their first job, for these speeds by job and option.

    `state`: by job and column, further properties that distinguish jobs.
    """
    # Not at the top: numba is slow to import.
    from horae.solvers.classes_kernel import Alike, ClassShapes, sort_out  # noqa: PLC0415

    jobs = view.jobs
    capacity = view.capacity.astype(np.float64)
    weight = jobs.weight[:, None]
    # Copies, because read-only arrays are slow to pass to compiled code.
    found = sort_out(
        Alike(jobs.shape.copy(), speed.copy(), weight.copy() if state is None else np.hstack([weight, state])),
        jobs.serial.copy(),
        ClassShapes(view.shape_accelerator.copy(), view.shape_gpus.copy(), view.shape_level.copy(), capacity),
    )
    return Classes(
        member=found.member,
        jobs=found.jobs,
        gang=jobs.gpus[found.first].astype(np.float64),
        gpus=found.gpus,
        accelerator=found.accelerator,
        choice=found.choice,
        speed=found.speed,
        weight=jobs.weight[found.first],
        capacity=capacity,
        first=found.first,
    )
