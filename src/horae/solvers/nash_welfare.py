"""Nash welfare: the largest sum of weight x log(speed), by an interior-point method over classes of equal jobs.

    maximise   sum over classes c of jobs[c] weight[c] log(sum over options o of speed[c, o] x[c, o])

subject to the time of each job and the GPUs of each type. Classes interact only through the GPUs, so that a step of
Newton's method reduces to one small system per class and one of the size of the number of types. Many such markets that
differ only in the number of jobs are solved side by side: that is needed to leave out one job after the other.

With any prices p of GPUs and m of a job's time, no allocation has a better value than (Eisenberg and Gale, 1959)

    p x capacity + sum over c of jobs (m - weight + weight log(weight x max over o of speed / (m + p x gpus)))

How much better that is than the present shares is summed up from non-negative parts (`gap_of`): as the difference of
two sums of logarithms it would be lost in their rounding where one job weighs a thousandth of another.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from horae.model.arrays import Bools, Floats
from horae.solvers.solution import Unsolved

_PROBLEM = "Nash welfare"
_STEPS_MAX = 200
_TO_THE_WALL = 0.99  # of the way to where something would become negative
_CENTRED = 0.02  # each step aims at this part of the remaining distance
_SHORT = 0.1
_CENTRED_AFTER_SHORT = 0.5
_HALVINGS_MAX = 40
_RESIDUAL_MIN = 1e-12
_IDLE_MAX = 4  # successive steps without progress: a short one may be followed by one that corrects it
_PROGRESS_MIN = 0.9  # a step that leaves more of the gap than that makes no progress
_RIDGE = 1e-14  # relative: for two types equal to every job the difference of their prices would be undetermined
_REFINEMENTS = 2
_ROUNDING = 1e-15  # of the weight of all jobs: no gap is known more exactly
GAP_WANTED = 1e-10  # of a weight
GAP_MAX = 1e-6  # of a weight: a larger one is a failure


class Market(NamedTuple):
    """A market, by class and option; an option that is not a choice has speed 0."""

    speed: Floats
    choice: Bools
    used: Floats  # by class, option and type: GPUs of one job
    weight: Floats  # by class
    capacity: Floats  # by type; positive

    def given(self, jobs: Floats, fraction: Floats) -> Floats:
        """By market and type: GPUs that these shares take."""
        cells = (jobs[:, :, None] * np.where(self.choice, fraction, 0.0)).reshape(len(jobs), -1)
        return cells @ self.used.reshape(-1, len(self.capacity))

    def cost(self, gpu_price: Floats) -> Floats:
        """By market, class and option: what the GPUs of one job cost at these prices."""
        cost = gpu_price @ self.used.reshape(-1, len(self.capacity)).T
        return cost.reshape(-1, *self.choice.shape)

    def pace(self, fraction: Floats) -> Floats:
        """By market and class: the speed of a job under these shares."""
        pace: Floats = (self.speed * fraction).sum(axis=2)
        return pace


class InteriorPoint(NamedTuple):
    """Shares, slacks and prices, all positive, by market and then by class, option or type.

    Slacks are carried along, because the difference of capacity and allocation would soon be only rounding.
    """

    fraction: Floats
    time_left: Floats
    gpus_left: Floats
    nothing_price: Floats  # the price of the non-negativity of a share
    time_price: Floats
    gpu_price: Floats


class Optimum(NamedTuple):
    point: InteriorPoint
    value: Floats  # by market
    gap: Floats  # by market: no allocation is better by more

    @property
    def bound(self) -> Floats:
        return self.value + self.gap


def start_of(market: Market, jobs: Floats) -> InteriorPoint:
    """An interior start: every job has a little of everything, and there is room; `jobs`: by market and class."""
    options = np.maximum(market.choice.sum(axis=1, keepdims=True), 1)
    even = np.where(market.choice, 0.5 / options, 0.0)
    given = market.given(jobs, np.broadcast_to(even, (len(jobs), *even.shape)))
    room = np.minimum(1.0, 0.5 * market.capacity / np.maximum(given, 1e-300)).min(axis=0)
    fraction = even * np.where(market.used > 0, room, 1.0).min(axis=2)
    fraction = np.broadcast_to(np.where(market.choice, fraction, 1.0), (len(jobs), *even.shape)).copy()
    time_left = 1.0 - np.where(market.choice, fraction, 0.0).sum(axis=2)
    gpus_left = market.capacity - market.given(jobs, fraction)
    target = float(np.mean(market.weight))
    nothing = np.where(market.choice, target / fraction, 1.0)
    return InteriorPoint(fraction, time_left, gpus_left, nothing, target / time_left, target * _crowd(jobs) / gpus_left)


def largest_welfare(market: Market, jobs: Floats, start: InteriorPoint, weight: Floats) -> Optimum:
    """The optimum of each market. `jobs`: by market and class; `weight`: by market, the unit of its gap."""
    best = now = _judged(market, jobs, start)
    length, idle = np.ones(len(jobs)), np.zeros(len(jobs), dtype=np.int64)
    wanted = GAP_WANTED * weight + _ROUNDING * (jobs @ market.weight)
    for _ in range(_STEPS_MAX):
        going = (idle < _IDLE_MAX) & (best.gap > wanted)
        if not going.any():
            break
        now, length[going] = _closer(market, jobs, now, going, length[going])
        # Near the end rounding may dominate: once the answer is good enough, little progress counts as none.
        slow = going & (best.gap <= GAP_MAX * weight) & ~(now.gap <= _PROGRESS_MIN * best.gap)
        idle = np.where(slow, idle + 1, 0)
        best = _chosen(best, now, now.gap < best.gap)
    if not (best.gap <= GAP_MAX * weight).all():
        raise Unsolved(_PROBLEM, f"a gap of {float((best.gap / weight).max()):g} of the weight is left")
    return best


def half_way(market: Market, jobs: Floats, distance: float) -> InteriorPoint:
    """A point near the optimum of one market, and thus of similar ones, but not too near to the walls."""
    start = start_of(market, jobs)
    best, length = _judged(market, jobs, start), np.ones(1)
    for _ in range(_STEPS_MAX):
        if _distance(market, jobs, best.point)[0] <= distance:
            break
        best, length = _closer(market, jobs, best, np.ones(1, dtype=np.bool_), length)
    return best.point


def _closer(market: Market, jobs: Floats, best: Optimum, going: Bools, length: Floats) -> tuple[Optimum, Floats]:
    """One step in each of these markets; and its possible length, which determines the aim of the next."""
    point, crew = InteriorPoint(*(part[going] for part in best.point)), jobs[going]
    # After a short step the next one moves away from the walls.
    ahead = np.where(length < _SHORT, _CENTRED_AFTER_SHORT, _CENTRED)
    moved, length = _step(market, crew, point, ahead * _distance(market, crew, point))
    judged = _judged(market, crew, moved)
    points = InteriorPoint(*(_put(part, going, new) for part, new in zip(best.point, moved, strict=True)))
    return Optimum(points, _put(best.value, going, judged.value), _put(best.gap, going, judged.gap)), length


def _judged(market: Market, jobs: Floats, point: InteriorPoint) -> Optimum:
    return Optimum(point, welfare(market, jobs, point), gap_of(market, jobs, point))


def _chosen(one: Optimum, other: Optimum, second: Bools) -> Optimum:
    """By market, the first or the second of two optima."""
    points = (_put(part, second, new[second]) for part, new in zip(one.point, other.point, strict=True))
    value, gap = _put(one.value, second, other.value[second]), _put(one.gap, second, other.gap[second])
    return Optimum(InteriorPoint(*points), value, gap)


def welfare(market: Market, jobs: Floats, point: InteriorPoint) -> Floats:
    speed = market.pace(point.fraction)
    value: Floats = (jobs * market.weight * np.log(speed)).sum(axis=1)
    return value


def gap_of(market: Market, jobs: Floats, point: InteriorPoint) -> Floats:
    """By how much the bound proved by the prices of this point exceeds its value.

    A part of it is the price of what is left over, or was over-allocated by rounding. Another is what a job spends on
    options that are not its best, and the last that it spends more or less than its weight, u of it, which costs
    u - log(1 + u).
    """
    time_drift, gpus_drift = _drift(market, jobs, point)
    share = np.where(market.choice, point.fraction, 0.0)
    cost = point.time_price[:, :, None] + market.cost(point.gpu_price)
    best = np.where(market.choice, market.speed / cost, 0.0).max(axis=2)
    wasted = (share * np.maximum(cost - market.speed / best[:, :, None], 0.0)).sum(axis=2)
    over = ((share * cost).sum(axis=2) - wasted) / market.weight - 1
    of_job = (
        (point.time_left + np.abs(time_drift)) * point.time_price + wasted + market.weight * (over - np.log1p(over))
    )
    of_type = (point.gpus_left + np.abs(gpus_drift)) * point.gpu_price
    gap: Floats = of_type.sum(axis=1) + (jobs * of_job).sum(axis=1)
    return gap


def _drift(market: Market, jobs: Floats, point: InteriorPoint) -> tuple[Floats, Floats]:
    """Accumulated rounding: time and GPUs that are neither allocated nor left; below 0, both."""
    time = 1 - np.where(market.choice, point.fraction, 0.0).sum(axis=2) - point.time_left
    return time, market.capacity - market.given(jobs, point.fraction) - point.gpus_left


def _put(part: Floats, rows: Bools, new: Floats) -> Floats:
    part = part.copy()
    part[rows] = new
    return part


def _crowd(jobs: Floats) -> Floats:
    """By market: GPUs belong to all jobs, so their slack weighs as much as the slack of all jobs' time."""
    crowd: Floats = np.maximum(jobs.sum(axis=1, keepdims=True), 1.0)
    return crowd


def _distance(market: Market, jobs: Floats, point: InteriorPoint) -> Floats:
    """By market: the mean product of a price and its slack, which is zero at the optimum."""
    choices = market.choice.sum(axis=1)
    products = (np.where(market.choice, point.fraction * point.nothing_price, 0.0)).sum(axis=2)
    products = (products + point.time_left * point.time_price) * jobs
    total = products.sum(axis=1) + (point.gpus_left * point.gpu_price).sum(axis=1)
    crowd = _crowd(jobs)[:, 0]
    distance: Floats = total / ((jobs * (choices + 1)).sum(axis=1) + len(market.capacity) * crowd)
    return distance


def _step(market: Market, jobs: Floats, point: InteriorPoint, target: Floats) -> tuple[InteriorPoint, Floats]:
    """A step of Newton's method towards prices whose products with their slacks are the target; and its length."""
    try:
        move = _direction(market, jobs, point, target)
    except np.linalg.LinAlgError as error:
        raise Unsolved(_PROBLEM, str(error)) from None
    length = _TO_THE_WALL * _to_the_wall(point, move)
    before = _residual(market, jobs, point, target, point.fraction)
    for halving in range(_HALVINGS_MAX + 1):
        moved = InteriorPoint(*(part + _along(length, change) for part, change in zip(point, move, strict=True)))
        # Near the end residuals are rounding; then a step that does no harm is good enough.
        after = _residual(market, jobs, moved, target, point.fraction)
        short = ~(after <= (1 - 0.01 * length) * before + _RESIDUAL_MIN)
        if not short.any():
            break
        length = np.where(short, length / 2 if halving + 1 < _HALVINGS_MAX else 0.0, length)
    return moved, length


def _along(length: Floats, change: Floats) -> Floats:
    return length.reshape(-1, *([1] * (change.ndim - 1))) * change


def _to_the_wall(point: InteriorPoint, move: InteriorPoint) -> Floats:
    """By market: how long a step may be before a share, a slack or a price becomes negative; at most 1."""
    longest = np.full(len(point.fraction), 1.0 / _TO_THE_WALL)
    for now, change in zip(point, move, strict=True):
        ratio = np.where(change < 0, -now / np.where(change < 0, change, 1.0), np.inf)
        longest = np.minimum(longest, ratio.reshape(len(longest), -1).min(axis=1))
    return longest


def _direction(market: Market, jobs: Floats, point: InteriorPoint, target: Floats) -> InteriorPoint:
    """The direction of a step: solve for the shares given a change of the prices, then for the prices, then combine."""
    fraction, time_left, gpus_left, nothing_price, time_price, gpu_price = point
    aim, crowd = target[:, None], target[:, None] * _crowd(jobs)
    time_drift, drift = _drift(market, jobs, point)
    own, by_price, time_own, time_by_price = _responses(market, point, aim, time_drift)
    weighed = jobs[:, :, None, None] * market.used
    coupling = np.einsum("bcok,bcol->bkl", weighed, by_price)
    types = np.arange(len(market.capacity))
    coupling[:, types, types] += gpus_left / gpu_price
    coupling[:, types, types] *= 1 + _RIDGE
    gpu_change, change, gpus_change = np.zeros_like(gpu_price), own, crowd / gpu_price - gpus_left
    # Between types that are nearly equal to a job the smallest difference of prices moves it, so that one solution is
    # not exact: it leaves more or fewer GPUs than it says, and the resulting error is solved for again.
    for _ in range(1 + _REFINEMENTS):
        missing = market.given(jobs, change) + gpus_change - drift
        more = np.linalg.solve(coupling, missing[..., None])[..., 0]
        gpu_change = gpu_change + more
        change = change - (by_price @ more[:, None, :, None])[..., 0]
        gpus_change = (crowd - gpus_left * gpu_change) / gpu_price - gpus_left
    pressed = time_own - (time_by_price @ gpu_change[:, :, None])[..., 0]  # the price of time, for shares that change
    time_change = aim / time_left - time_price + pressed
    left_change = -pressed * time_left / time_price
    nothing_change = (aim[:, :, None] - fraction * nothing_price - nothing_price * change) / fraction
    nothing_change = np.where(market.choice, nothing_change, 0.0)
    # A class without jobs has no influence, and its hypothetical demand must not limit the step of the others.
    here = jobs > 0
    change, nothing_change = np.where(here[:, :, None], change, 0.0), np.where(here[:, :, None], nothing_change, 0.0)
    left_change, time_change = np.where(here, left_change, 0.0), np.where(here, time_change, 0.0)
    return InteriorPoint(change, left_change, gpus_change, nothing_change, time_change, gpu_change)


def _responses(
    market: Market, point: InteriorPoint, aim: Floats, drift: Floats
) -> tuple[Floats, Floats, Floats, Floats]:
    """How shares, and then the price of a job's time, respond to prices of GPUs: constant part, and decrease per unit.

    In units of the shares themselves, and with the changes of a job's slope and of the price of its time as separate
    unknowns: substituted into the others, they would hide what decides between two nearly equal options.
    """
    fraction, time_left, _, nothing_price, time_price, gpu_price = point
    options, shape = fraction.shape[2], fraction.shape[:2]
    slope = market.speed * fraction / market.pace(fraction)[:, :, None]
    share = np.where(market.choice, fraction, 0.0)
    wish = market.weight[:, None] * slope - share * market.cost(gpu_price)
    wish = np.where(market.choice, wish - share * (aim / time_left)[:, :, None] + aim[:, :, None], 0.0)
    system = np.zeros((*shape, options + 2, options + 2))
    diagonal = np.arange(options)
    system[:, :, diagonal, diagonal] = np.where(market.choice, fraction * nothing_price, 1.0)
    system[:, :, :options, options] = system[:, :, options, :options] = market.weight[:, None] * slope
    system[:, :, :options, options + 1] = system[:, :, options + 1, :options] = share
    system[:, :, options, options] = -market.weight
    system[:, :, options + 1, options + 1] = -time_left / time_price
    sides = np.zeros((*shape, options + 2, 1 + market.used.shape[2]))
    sides[:, :, :options, 0] = wish
    sides[:, :, :options, 1:] = share[..., None] * market.used
    sides[:, :, options + 1, 0] = drift
    solved = np.linalg.solve(system, sides)
    shares, time = solved[:, :, :options] * share[..., None], solved[:, :, options + 1]
    return shares[..., 0], shares[..., 1:], time[..., 0], time[..., 1:]


def _residual(market: Market, jobs: Floats, point: InteriorPoint, target: Floats, scale: Floats) -> Floats:
    """By market: the residual of the equations that the step solves.

    `scale`: by choice, the same throughout a step.
    """
    fraction, time_left, gpus_left, nothing_price, time_price, gpu_price = point
    speed = market.pace(fraction)
    slope = (market.weight / speed)[:, :, None] * market.speed - market.cost(gpu_price)
    slope = np.where(market.choice, (slope - time_price[:, :, None] + nothing_price) * scale, 0.0)
    aim, here = target[:, None], jobs > 0
    choice = np.where(market.choice, fraction * nothing_price - aim[:, :, None], 0.0)
    time = time_price * time_left - aim
    gpus = (gpu_price * gpus_left - aim * _crowd(jobs)) / _crowd(jobs)
    of_class = (slope**2).sum(axis=2) + (choice**2).sum(axis=2) + time**2
    residual: Floats = np.sqrt((here * of_class).sum(axis=1) + (gpus**2).sum(axis=1))
    return residual
