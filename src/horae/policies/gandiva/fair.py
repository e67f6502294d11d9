"""Gandiva_fair (EuroSys'20): users hold tickets for every GPU type, and trade fast GPUs for slow ones.

A user is a tenant, its tickets are the tenant's weight. First each user that has jobs gets its tickets' part of every
GPU type; what its jobs cannot use goes to the others. Then users trade: for two GPU types, the user whose jobs gain
most from the faster one buys fast GPUs from the user whose jobs gain least, and pays in slow GPUs. The price of a fast
GPU is the second-highest speed-up of all users, as in a second-price auction, or the buyer's own if that is less. So no
user is worse off after a trade: the buyer pays at most what a fast GPU is worth to it, the seller gets at least that.
Then the user with the next highest speed-up buys, or the one with the next lowest sells, until no user is left. A
user's speed-up is the mean over its jobs, weighted by GPUs; it sells GPUs of a type only to the extent that its jobs
there also run on the other type. Last, a user's GPUs of each type go to its jobs in equal parts of GPU time, and the
remainder to jobs that have time left.

The answer is the long-run shares to which the paper's gang-aware stride scheduling converges, as fractions of time;
turns convert them into rounds with whole gangs. The paper profiles speeds while jobs run, and balances load between
nodes; here the estimated speeds are used, and placement is left to the placer. Shares stand until jobs arrive or end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from horae.model.arrays import Bools, Floats, Ints
from horae.model.decisions import Shares
from horae.model.view import View
from horae.policies.gandiva.random_packing import Choices, choices_of

_HAIR = 1e-9


@dataclass(frozen=True)
class GandivaFair:
    name: ClassVar[str] = "gandiva-fair"
    trading: bool = True  # let users trade fast GPUs for slow ones

    def decide(self, view: View) -> Shares:
        jobs, choices = view.jobs, choices_of(view)
        usable = choices.option >= 0
        users, user = np.unique(jobs.tenant, return_inverse=True)
        wanted = np.bincount(user, np.where(usable.any(axis=1), jobs.gpus, 0), minlength=len(users)).astype(np.float64)
        gpus = _by_tickets(view, view.tenant_weight[users], wanted, _any_of(user, usable, len(users)))
        if self.trading:
            _trade(gpus, _speed_ups(view, choices, user, len(users)), wanted, _flexible(view, usable, user, len(users)))
        time = np.zeros(usable.shape)  # by job and accelerator
        for number in range(len(users)):
            _share_out(time, choices, np.flatnonzero(user == number), gpus[number])
        left = view.capacity - np.where(usable, time * np.where(usable, choices.gpus, 0.0), 0.0).sum(axis=0)
        _share_out(time, choices, np.arange(len(jobs)), np.maximum(left, 0.0))
        fraction = np.zeros(jobs.shape.shape)
        row, kind = np.nonzero(usable)
        fraction[row, choices.option[row, kind]] = time[row, kind]
        return Shares(fraction)


def _any_of(user: Ints, usable: Bools, users: int) -> Bools:
    """By user and accelerator: whether any of its jobs runs there."""
    found = np.zeros((users, usable.shape[1]), dtype=bool)
    np.logical_or.at(found, user, usable)
    return found


def _by_tickets(view: View, tickets: Floats, wanted: Floats, usable: Bools) -> Floats:
    """By user and accelerator: GPUs by tickets where its jobs run, in total at most what the user wants."""
    total = float(view.capacity.sum())
    part = _filled(np.minimum(wanted, total), total, tickets) / max(total, 1.0)
    weight = usable * part[:, None]
    gpus: Floats = view.capacity * weight / np.maximum(weight.sum(axis=0), np.finfo(float).tiny)
    return gpus


def _speed_ups(view: View, choices: Choices, user: Ints, users: int) -> Floats:
    """By user, fast and slow accelerator: how much faster its jobs are on the first, nan where none runs on both."""
    usable = choices.option >= 0
    speed = np.where(usable, np.take_along_axis(view.jobs.speed, np.maximum(choices.option, 0), axis=1), np.nan)
    ratio = speed[:, :, None] / speed[:, None, :]
    weight = np.where(np.isfinite(ratio), view.jobs.gpus[:, None, None], 0.0)
    sums = np.zeros((2, users, *ratio.shape[1:]))
    np.add.at(sums[0], user, np.nan_to_num(ratio) * weight)
    np.add.at(sums[1], user, weight)
    with np.errstate(invalid="ignore"):
        return sums[0] / sums[1]


def _flexible(view: View, usable: Bools, user: Ints, users: int) -> Floats:
    """By user and two accelerators: the fraction of its GPUs of the first wanted by jobs that run on the second too."""
    both = usable[:, :, None] & usable[:, None, :]
    wanted = np.zeros((users, *both.shape[1:]))
    np.add.at(wanted, user, both * view.jobs.gpus[:, None, None])
    all_there = np.diagonal(wanted, axis1=1, axis2=2)[:, :, None]
    part: Floats = wanted / np.maximum(all_there, 1.0)
    return part


def _trade(gpus: Floats, speed_ups: Floats, wanted: Floats, flexible: Floats) -> None:
    """Trade between each two GPU types, starting with those where some user gains most."""
    kinds = gpus.shape[1]
    pairs = [(fast, slow) for fast in range(kinds) for slow in range(kinds) if fast != slow]
    gain = {pair: float(np.nanmax(speed_ups[:, *pair], initial=0.0)) for pair in pairs}
    mean = {pair: float(np.nan_to_num(speed_ups[:, *pair]).sum()) for pair in pairs}
    for fast, slow in sorted(pairs, key=lambda pair: (-gain[pair], pair)):
        if mean[fast, slow] > mean[slow, fast] or (mean[fast, slow] == mean[slow, fast] and fast < slow):
            movable = gpus[:, fast] * flexible[:, fast, slow], gpus[:, slow] * flexible[:, slow, fast]
            _trade_two(gpus, (fast, slow), movable, speed_ups[:, fast, slow], wanted)


def _trade_two(
    gpus: Floats, kinds: tuple[int, int], movable: tuple[Floats, Floats], speed_up: Floats, wanted: Floats
) -> None:
    """Trade between two GPU types.

    `movable`: by user, the GPUs of the fast and of the slow type that it may sell; both are reduced by the trades.
    """
    (fast, slow), (for_sale, to_pay) = kinds, movable
    users = np.flatnonzero(np.isfinite(speed_up))
    users = users[np.lexsort((users, -speed_up[users]))]  # the largest gain first
    first, last = 0, len(users) - 1
    while first < last:
        buyer, seller = users[first], users[last]
        price = float(speed_up[users[1]])
        if speed_up[buyer] <= speed_up[seller] * (1 + _HAIR):
            return
        price = min(max(price, float(speed_up[seller])), float(speed_up[buyer]))
        amount = min(for_sale[seller], to_pay[buyer] / price)
        if price > 1:
            # The net gain in GPUs of the seller must be of use to it.
            amount = min(amount, max(wanted[seller] - gpus[seller].sum(), 0.0) / (price - 1))
        gpus[buyer, fast] += amount
        gpus[seller, fast] -= amount
        gpus[buyer, slow] -= amount * price
        gpus[seller, slow] += amount * price
        for_sale[seller] -= amount
        to_pay[buyer] -= amount * price
        if to_pay[buyer] <= _HAIR:
            first += 1
        else:
            last -= 1


def _share_out(time: Floats, choices: Choices, rows: Ints, gpus: Floats) -> None:
    """Add equal parts of a user's GPUs to the times of these jobs, type by type, at most to all of a job's time."""
    for kind in np.flatnonzero(gpus > _HAIR).tolist():
        there = rows[choices.option[rows, kind] >= 0]
        gang = choices.gpus[there, kind]
        room = gang * np.maximum(1.0 - time[there].sum(axis=1), 0.0)
        time[there, kind] += _filled(room, float(gpus[kind]), np.ones(len(there))) / gang


def _filled(most: Floats, total: float, weight: Floats) -> Floats:
    """Parts of a total in proportion to weights, each at most its maximum: the excess goes to the others."""
    if most.sum() <= total:
        return most
    level = most / weight
    order = np.argsort(level)
    full = np.cumsum(most[order]) - most[order]  # if all before it are full
    others = np.cumsum(weight[order][::-1])[::-1]
    rising = (total - full) / others
    stop = int(np.argmax(rising <= level[order]))
    return np.minimum(most, weight * rising[stop])
