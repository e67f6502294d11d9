"""Prices of GPU types in an auction, compiled: at prices every app chooses independently, which gives a bound.

For any prices at or above 0 no allocation has a larger welfare than

    bound(prices) = prices x offer + sum over apps of the largest (value - prices x GPUs) of its bundles.

It is convex; the choices of all apps at some prices are a plane below it. The lowest point of all planes found so far
is evaluated next (Kelley's method), half way from the best prices, which stabilises the first steps.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from horae.model.arrays import Bools, Floats, Ints
from horae.solvers.levels.pricing_kernel import Function, part

PLANES_MAX = 160
_PIVOTS_MAX = 200
_HAIR = 1e-11
_GAP = 1e-7  # distance of the bound from the lowest
_GAP_PART = 0.01  # of the gap still to be proved: more exact prices do not pay off
_HALF_WAY_ABOVE = 1e-4  # of a gap; below this the lowest point itself is evaluated


class Lots(NamedTuple):
    """The bundles of all apps, one app after the other; each has at least one, and the first of each is nothing."""

    start: Ints  # by app, and the end of the last
    gpus: Ints  # by bundle and type
    value: Floats


class Near(NamedTuple):
    """The bundles that matter at prices within limits: at all such prices any other has at least that regret."""

    start: Ints  # by app, and the end of the last
    bundle: Ints  # in the lots
    value: Floats
    gpus: Floats  # by type and bundle
    worth: Floats  # by bundle: buffer for its worth at prices
    low: Floats  # by type: price
    high: Floats
    regret: float  # below 0: unknown


class Subproblem(NamedTuple):
    """The problem: all apps, or all but one, some of them with only some of their bundles."""

    lots: Lots
    near: Near
    offer: Ints
    absent: int  # app; -1: none
    is_open: Bools  # by bundle
    is_split: Bools  # by app: not all of its bundles are open


class Planes(NamedTuple):
    """The choices of the apps at the prices tried: each is a plane below the bound, base + slope x prices."""

    base: Floats
    slope: Floats  # by plane and type
    pick: Ints  # by plane and app: its bundle in the lots


class Priced(NamedTuple):
    price: Floats  # by type
    bound: float
    planes: int
    basis: Ints  # the planes that meet at the lowest point; below 0: limits of prices


_INNER: dict[str, Any] = {
    "error_model": "numpy",
    "forceinline": True,
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
}


def inner(function: Function) -> Function:
    """Inline a function that is called so often, with so many arrays, that passing them would dominate its run time."""
    compiled: Any = njit(**_INNER)(function)
    return compiled


@inner
def worth_of(lots: Lots, price: Floats, bundle: int) -> float:
    worth = lots.value[bundle]
    for kind in range(len(price)):
        worth -= price[kind] * lots.gpus[bundle, kind]
    return worth


@part
def best_of_all(lots: Lots, is_open: Bools, price: Floats, app: int) -> tuple[int, float]:
    """The first of the best open bundles of an app; -1 if none is open."""
    best, most = -1, -np.inf
    for bundle in range(lots.start[app], lots.start[app + 1]):
        worth = worth_of(lots, price, bundle)
        if worth > most and is_open[bundle]:
            best, most = bundle, worth
    return best, most


@part
def is_within(near: Near, price: Floats) -> bool:
    """Whether only the bundles that are near matter at these prices."""
    found = near.regret >= 0
    for kind in range(len(price)):
        found = found and near.low[kind] <= price[kind] <= near.high[kind]
    return found


@part
def weigh(near: Near, price: Floats) -> bool:
    """Compute the worth of all bundles that are near, if only they matter at these prices; else return False.

    Summed as in `worth_of`, type by type: equal to the last bit.
    """
    if not is_within(near, price):
        return False
    for index in range(len(near.worth)):
        near.worth[index] = near.value[index]
    for kind in range(len(price)):
        for index in range(len(near.worth)):
            near.worth[index] -= price[kind] * near.gpus[kind, index]
    return True


@inner
def pick_of(case: Subproblem, price: Floats, app: int, weighed: bool) -> tuple[int, float]:
    """The best open bundle of an app, and its worth; `weighed`: only those that are near matter."""
    if not weighed or case.is_split[app]:
        return best_of_all(case.lots, case.is_open, price, app)
    # Two loops, because tracking the position of the best in the first would add a branch to every step.
    first = case.near.start[app]
    worths = case.near.worth[first : case.near.start[app + 1]]
    most = -np.inf
    for worth in worths:
        most = worth if worth > most else most
    place = 0
    while worths[place] != most:
        place += 1
    return case.near.bundle[first + place], most


@part
def add_plane(case: Subproblem, price: Floats, planes: Planes, number: int) -> float:
    """The bound at these prices; the choices of the apps become the plane of that number."""
    lots, offer, types = case.lots, case.offer, len(price)
    bound = base = 0.0
    for kind in range(types):
        bound += price[kind] * offer[kind]
        planes.slope[number, kind] = offer[kind]
    weighed = weigh(case.near, price)
    for app in range(len(lots.start) - 1):
        pick, worth = pick_of(case, price, app, weighed)
        planes.pick[number, app] = pick
        if app == case.absent:
            continue
        if pick < 0:
            return -np.inf
        bound += worth
        base += lots.value[pick]
        for kind in range(types):
            planes.slope[number, kind] -= lots.gpus[pick, kind]
    planes.base[number] = base
    return bound


@part
def _solved(matrix: Floats, side: Floats) -> bool:
    """Solve a small system in place by Gaussian elimination; return whether there is a solution."""
    size = len(side)
    for row in range(size):
        pivot = row
        for other in range(row + 1, size):
            if abs(matrix[other, row]) > abs(matrix[pivot, row]):
                pivot = other
        if abs(matrix[pivot, row]) < 1e-13:
            return False
        if pivot != row:
            for column in range(size):
                matrix[row, column], matrix[pivot, column] = matrix[pivot, column], matrix[row, column]
            side[row], side[pivot] = side[pivot], side[row]
        for other in range(size):
            if other != row and matrix[other, row] != 0.0:
                factor = matrix[other, row] / matrix[row, row]
                for column in range(row, size):
                    matrix[other, column] -= factor * matrix[row, column]
                side[other] -= factor * side[row]
    for row in range(size):
        side[row] /= matrix[row, row]
    return True


@part
def _fill_column(planes: Planes, member: int, column: Floats) -> None:
    """Fill the column of a plane: 1 and its slope; of the limit of a price, -1 - kind: only -1 in its row."""
    column[:] = 0.0
    if member < 0:
        column[-member] = -1.0
        return
    column[0] = 1.0
    for kind in range(len(column) - 1):
        column[kind + 1] = planes.slope[member, kind]


@part
def lowest_point(planes: Planes, count: int, basis: Ints, point: Floats) -> bool:
    """Find the lowest point above all planes at prices from 0: (height, prices), by the simplex method.

    The basis holds the planes and the limits of prices that meet there; it begins with plane 0, which falls nowhere,
    and is kept for the next call. False on numerical failure or too many steps.
    """
    size = len(point)
    matrix, column, side = np.empty((size, size)), np.empty(size), np.empty(size)
    for _ in range(_PIVOTS_MAX):
        for row in range(size):
            member = basis[row]
            for kind in range(1, size):
                matrix[row, kind] = 0.0 if member < 0 else -planes.slope[member, kind - 1]
            matrix[row, 0] = 1.0 if member >= 0 else 0.0
            if member < 0:
                matrix[row, -member] = 1.0
            point[row] = planes.base[member] if member >= 0 else 0.0
        if not _solved(matrix, point):
            return False
        entering, most = 0, _HAIR * (1.0 + abs(point[0]))
        is_found = False
        for kind in range(1, size):
            if -point[kind] > most:
                entering, most, is_found = -kind, -point[kind], True
        for number in range(count):
            height = planes.base[number] - point[0]
            for kind in range(1, size):
                height += planes.slope[number, kind - 1] * point[kind]
            if height > most:
                entering, most, is_found = number, height, True
        if not is_found:
            return True
        if not _enters(planes, basis, entering, matrix, column, side):
            return False
    return False


@part
def _enters(planes: Planes, basis: Ints, entering: int, matrix: Floats, column: Floats, side: Floats) -> bool:
    """Exchange a member of the basis for another plane or limit, so that weights remain at or above 0."""
    size = len(basis)
    for place in range(size):
        _fill_column(planes, basis[place], column)
        matrix[:, place] = column
    again = matrix.copy()
    side[:] = 0.0
    side[0] = 1.0
    if not _solved(matrix, side):
        return False
    _fill_column(planes, entering, column)
    if not _solved(again, column):
        return False
    leaving, least = -1, np.inf
    for place in range(size):
        if column[place] > 1e-11:
            ratio = max(side[place], 0.0) / column[place]
            if ratio < least:
                leaving, least = place, ratio
    if leaving < 0:
        return False
    basis[leaving] = entering
    return True


@part
def _share_within(near: Near, price: Floats, point: Floats) -> float:
    """How far to go from prices within limits towards others and stay within; all the way if that is impossible."""
    if not is_within(near, price):
        return 1.0
    share = 1.0
    for kind in range(len(price)):
        ahead = point[kind + 1] - price[kind]
        if ahead > near.high[kind] - price[kind]:
            share = min(share, 0.999 * (near.high[kind] - price[kind]) / ahead)
        elif -ahead > price[kind] - near.low[kind]:
            share = min(share, 0.999 * (price[kind] - near.low[kind]) / -ahead)
    return share if share > 0.01 else 1.0


@part
def find_prices(case: Subproblem, planes: Planes, count: int, first: Floats, enough: float) -> Priced:
    """Prices at which the bound is lowest, or low enough; `enough` at infinity: only the lowest will do.

    Planes before `count` exist already. The first of them rises with all prices; it lies below the bound wherever that
    matters, and only serves as the start.
    """
    types = len(case.offer)
    basis = np.zeros(types + 1, np.int64)
    for kind in range(1, types + 1):
        basis[kind] = -kind
    point, price = np.zeros(types + 1), first.copy()
    best = first.copy()
    bound = add_plane(case, price, planes, count)
    count += 1
    while count < PLANES_MAX and (bound > enough or enough == np.inf):
        if not lowest_point(planes, count, basis, point) or bound - point[0] <= max(
            _GAP, _GAP_PART * (point[0] - enough)
        ):
            break
        share = 0.5 if bound - point[0] > _HALF_WAY_ABOVE else 1.0
        share = min(share, _share_within(case.near, best, point))
        for kind in range(types):
            price[kind] = max(best[kind] + share * (point[kind + 1] - best[kind]), 0.0)
        value = add_plane(case, price, planes, count)
        count += 1
        if value < bound:
            bound = value
            best[:] = price
    return Priced(best, bound, count, basis)
