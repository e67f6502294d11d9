"""Shares that prefer no GPU type, for policies that are not aware of their speeds.

To such a policy all types are the same, so any way to spread a job's time over them is equally good, and a solver
returns the first vertex that it finds. That implies an arbitrary order of types: if the fastest happen to come first,
the unaware policy looks as if it were aware. So time is spread in proportion to the GPUs, as far as jobs accept all
types.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from horae.model.arrays import Floats
from horae.model.view import View
from horae.solvers.classes import Classes

_STEPS_MAX = 100
_HALVINGS_MAX = 30
_SLACK = 1e-9  # of a capacity: without it, the price of a type that some jobs must have to themselves is infinite
_EXACT = 1e-8  # of a capacity: a larger excess is a failure
_RIDGE = 1e-12


def spread_evenly(classes: Classes, fraction: Floats) -> Floats:
    """The same time for each job, spread over the types that it accepts in proportion to their GPUs.

    Where some jobs do not accept all types, that may need more GPUs of a type than there are. Then the shares are those
    nearest to it by relative entropy, weighted by GPUs, that fit: each is multiplied by exp(-price of the type x GPUs /
    gang), where only full types have a price. The prices minimise a convex function of as many variables as there are
    types, by Newton's method.
    """
    part = even_weights(classes)
    wanted = fraction.sum(axis=1)
    market = _Market(classes, part, wanted, classes.capacity * (1 + _SLACK))
    price = np.zeros(len(classes.capacity))
    even, used = market.at(price)
    for _ in range(_STEPS_MAX):
        if market.is_settled(price, used):
            break
        price = market.step(price, even, used)
        even, used = market.at(price)
    excess = float((used / np.maximum(classes.capacity, 1.0)).max(initial=0.0)) - 1
    if excess > _EXACT:
        return fraction
    return even / (1 + max(excess, 0.0))


def even_weights(classes: Classes) -> Floats:
    """By class and option: its weight, the GPUs of the type; several shapes of one type divide them."""
    part = np.where(classes.choice, classes.capacity[classes.accelerator], 0.0)
    for number in range(len(classes.capacity)):
        here = classes.choice & (classes.accelerator == number)
        part /= np.where(here, np.maximum(here.sum(axis=1, keepdims=True), 1), 1)
    return part


class _Market(NamedTuple):
    classes: Classes
    part: Floats  # by class and option: of the shares that are even
    wanted: Floats  # by class: its time
    capacity: Floats

    @property
    def per_gang(self) -> Floats:
        return self.classes.gpus / np.maximum(self.classes.gang, 1.0)[:, None]

    def at(self, price: Floats) -> tuple[Floats, Floats]:
        """Shares at these prices, and the GPUs of each type that they take."""
        exponent = -price[self.classes.accelerator] * self.per_gang
        exponent -= np.where(self.part > 0, exponent, -np.inf).max(axis=1, initial=-np.inf, keepdims=True)
        shares = np.where(self.part > 0, self.part * np.exp(np.minimum(exponent, 0.0)), 0.0)
        total = shares.sum(axis=1, keepdims=True)
        shares *= self.wanted[:, None] / np.where(total > 0, total, 1.0)
        return shares, self._by_type(shares * self.classes.gpus * self.classes.jobs[:, None])

    def value(self, price: Floats) -> float:
        """The function that prices minimise; its slope is what the capacity exceeds the use of each type by."""
        exponent = -price[self.classes.accelerator] * self.per_gang
        top = np.where(self.part > 0, exponent, -np.inf).max(axis=1, initial=-np.inf)
        there = self.part.any(axis=1)
        total = (self.part * np.exp(np.minimum(exponent - np.where(there, top, 0.0)[:, None], 0.0))).sum(axis=1)
        logarithm = np.where(there, top + np.log(np.where(there, total, 1.0)), 0.0)
        return float((self._weight * logarithm).sum() + price @ self.capacity)

    def is_settled(self, price: Floats, used: Floats) -> bool:
        """Whether types with a price are full, and no other type is over its capacity."""
        slack = self.capacity - used
        return bool((np.where(price > 0, np.abs(slack), -slack) <= _EXACT * self.capacity / 10).all())

    def step(self, price: Floats, shares: Floats, used: Floats) -> Floats:
        """A step of Newton's method along the types that are full or have a price."""
        slope = self.capacity - used
        free = (price > 0) | (slope < 0)
        move = np.zeros(len(price))
        curvature = self._curvature(shares)[np.ix_(free, free)]
        curvature[np.diag_indices(len(curvature))] += _RIDGE + _RIDGE * np.abs(np.diag(curvature))
        move[free] = np.linalg.solve(curvature, -slope[free])
        before, length = self.value(price), 1.0
        for _ in range(_HALVINGS_MAX):
            there = np.maximum(price + length * move, 0.0)
            if self.value(there) <= before + 1e-4 * float(slope @ (there - price)):
                break
            length /= 2
        return there

    def _curvature(self, shares: Floats) -> Floats:
        """How the use of each type falls with each price."""
        taken = shares / np.where(self.wanted > 0, self.wanted, 1.0)[:, None] * self.per_gang
        kinds = len(self.capacity)
        of_type = np.stack([np.where(self.classes.accelerator == k, taken, 0.0).sum(axis=1) for k in range(kinds)])
        squares = taken * self.per_gang * self._weight[:, None]
        return np.diag(self._by_type(squares)) - (of_type * self._weight) @ of_type.T

    @property
    def _weight(self) -> Floats:
        """By class: the GPUs that all of its jobs take in their reference shape."""
        weight: Floats = self.classes.jobs * np.maximum(self.classes.gang, 1.0) * self.wanted
        return weight

    def _by_type(self, numbers: Floats) -> Floats:
        kinds = self.classes.accelerator.ravel()
        return np.bincount(kinds, numbers.ravel(), minlength=len(self.capacity)).astype(np.float64)


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
