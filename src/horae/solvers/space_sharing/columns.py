"""Two jobs on the same GPUs as columns of a program: which pairs exist, and which of them are worth adding.

Two gangs can share where they have the same accelerator and the same number of GPUs; such a slot is called a berth
here. Equal shapes go first: only two jobs without a common shape in a berth share it in shapes of different levels. A
pair is possible if both keep some of their speed.

There are as many columns as pairs, so they are not listed in advance. Each is priced: it is worth what it adds to the
value at the present prices, less the price of its GPUs, once, and of the time of both jobs (column generation).

Rows are classes of equal jobs of one model, since what a job keeps beside others depends on its model. That is exact:
averaged over all orders of the jobs of a class, an allocation of time to jobs and pairs keeps the sums of which its
limits are made, and no concave objective falls; conversely, the time of two classes together can always be distributed
so that all jobs of a class have the same of it, and so can that of a class with itself, if it has two jobs or more
(`pairs_by_job`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from horae.model.arrays import Bools, Floats, Ints
from horae.model.view import View
from horae.solvers.classes import Classes, collapse


class Duos(NamedTuple):
    """Pairs of cells."""

    number: Ints  # of the place in `SharingProblem.kept`
    one: Ints  # cell
    other: Ints
    kept: Floats  # by the first
    kept_too: Floats  # by the second

    def some(self, which: Bools) -> Duos:
        return Duos(self.number[which], self.one[which], self.other[which], self.kept[which], self.kept_too[which])

    def sum(self, rate: Floats) -> Floats:
        """The combined value of both, as far as kept, for these rates by cell alone."""
        return rate[self.one] * self.kept + rate[self.other] * self.kept_too


class SharingProblem(NamedTuple):
    """The choices (class, option) of all classes as cells, and by berth which cells may share it."""

    classes: Classes
    row: Ints  # by cell: its class
    option: Ints  # by cell
    gpus: Floats  # by cell
    accelerator: Ints  # by cell
    speed: Floats  # by cell: alone
    cell: Ints  # by berth and place in it; 0 beyond the last
    kept: Floats  # by berth, place and partner's place: the fraction of its speed that the first one keeps
    possible: Bools  # likewise: whether the two can share

    @property
    def first(self) -> Ints:
        """By class: the row of its first job."""
        return self.classes.first

    @property
    def best_speed(self) -> Floats:
        """By class: the largest speed that one job can have; 1 for those that run nowhere."""
        best: Floats = self.classes.speed.max(axis=1, initial=0.0)
        return np.where(best > 0, best, 1.0)

    @property
    def rate(self) -> Floats:
        """By cell: its speed as a fraction of the class's best."""
        return self.speed / self.best_speed[self.row]

    @property
    def rate_of_equal(self) -> Floats:
        """By cell: speed over that with the same part of every GPU type."""
        return self.speed / self.classes.equal_speed[self.row]

    def duos(self, number: Ints) -> Duos:
        berth, first, second = np.unravel_index(number, self.kept.shape)
        cells = self.cell[berth, first], self.cell[berth, second]
        return Duos(number, *cells, self.kept[berth, first, second], self.kept[berth, second, first])

    def used(self, together: Together) -> tuple[Floats, Floats]:
        """By class: time of all its jobs; by accelerator: GPUs."""
        duos, alone, classes, types = together.duos, together.alone, len(self.classes.jobs), len(self.classes.capacity)
        time = _sums(self.row, alone, classes)
        gpus = _sums(self.accelerator, alone * self.gpus, types)
        gpus += _sums(self.accelerator[duos.one], together.paired * self.gpus[duos.one], types)
        for cell in (duos.one, duos.other):
            time += _sums(self.row[cell], together.paired, classes)
        return time, gpus

    def reached(self, rate: Floats, together: Together) -> Floats:
        """By class: the total rate of one job, for these rates by cell alone."""
        duos, paired = together.duos, together.paired
        total = _sums(self.row, rate * together.alone, len(self.classes.jobs))
        total += _sums(self.row[duos.one], rate[duos.one] * duos.kept * paired, len(self.classes.jobs))
        total += _sums(self.row[duos.other], rate[duos.other] * duos.kept_too * paired, len(self.classes.jobs))
        return total / self.classes.jobs


class Together(NamedTuple):
    """An allocation by class, in time summed over the jobs of a class."""

    alone: Floats  # by cell
    duos: Duos
    paired: Floats  # by duo


def company_of(view: View, speed: Floats, *keys: Floats) -> SharingProblem:
    """Classes by shapes, these speeds, weight, model and any further keys of each job; and their pairs."""
    classes = collapse(view, speed, np.column_stack([view.jobs.model, *keys]))
    first = classes.first
    row, option = np.nonzero(classes.choice)
    gpus, accelerator = classes.gpus[row, option], classes.accelerator[row, option]
    cell, filled = _berths(accelerator, gpus)
    if not view.kept.size or not cell.size:
        cell, kept = cell[:, :0], np.empty((len(cell), 0, 0))
        possible: Bools = kept > 0
    else:
        shape = view.jobs.shape[first[row], option][cell]
        kept = _kept(view, view.jobs.model[first[row]][cell], shape, filled)
        possible = kept > 0
        own = row[cell]
        possible &= (own[:, :, None] != own[:, None, :]) | (classes.jobs[own] >= 2)[:, :, None]
        possible &= _alike_first(own, shape, filled)
    return SharingProblem(classes, row, option, gpus, accelerator, classes.speed[row, option], cell, kept, possible)


def _sums(index: Ints, weights: Floats, count: int) -> Floats:
    return np.bincount(index, weights, count).astype(np.float64, copy=False)


def _kept(view: View, model: Ints, shape: Ints, filled: Bools) -> Floats:
    """By berth, place and partner's place: the fraction of its speed that the first keeps; 0 unless both keep some."""
    kept = view.kept[model[:, :, None], model[:, None, :], shape[:, :, None]]
    both = (kept > 0) & (kept > 0).transpose(0, 2, 1) & filled[:, :, None] & filled[:, None, :]
    return np.where(both, kept, 0.0)


def _berths(accelerator: Ints, gpus: Floats) -> tuple[Ints, Bools]:
    """The cells of each berth, one after the other, and which places are filled."""
    key = accelerator * (int(gpus.max(initial=0)) + 1) + gpus.astype(np.int64)
    _, berth, count = np.unique(key, return_inverse=True, return_counts=True)
    order = np.argsort(berth, kind="stable")
    place = np.arange(len(key)) - np.repeat(np.cumsum(count) - count, count)
    cell = np.zeros((len(count), int(count.max(initial=0))), dtype=np.int64)
    filled = np.zeros(cell.shape, dtype=np.bool_)
    cell[berth[order], place] = order
    filled[berth[order], place] = True
    return cell, filled


def _alike_first(own: Ints, shape: Ints, filled: Bools) -> Bools:
    """By berth and places: whether the shapes are equal, or these two classes have no common shape there."""
    alike: Bools = shape[:, :, None] == shape[:, None, :]
    if alike.all():
        return alike
    classes = int(own.max()) + 1
    common = np.zeros((len(own), classes, classes), dtype=np.bool_)
    berth, one, other = np.nonzero(alike & filled[:, :, None] & filled[:, None, :])
    common[berth, own[berth, one], own[berth, other]] = True
    return alike | ~common[np.arange(len(own))[:, None, None], own[:, :, None], own[:, None, :]]
