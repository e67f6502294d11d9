"""The bundles near the best at given prices, and the moves that a search near these prices may make, compiled."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from horae.model.arrays import Floats, Ints
from horae.solvers.auction.beam_search_kernel import Moves
from horae.solvers.auction.prices_kernel import Lots, Near, Subproblem, pick_of, weigh, worth_of
from horae.solvers.levels.pricing_kernel import part

_REACH = 0.2  # relative distance from a price within which bundles are kept
_REGRET_MIN, _REGRET_MAX = 1e-3, 10.0


class SearchStart(NamedTuple):
    """The choice of all apps at given prices, and their alternatives."""

    pick: Ints  # by app: its bundle; of the absent one: nothing
    left: Ints  # by type: left of the offer
    moves: Moves
    floor: float  # all moves of a regret below this are included


@part
def welfare_of(lots: Lots, pick: Ints, absent: int) -> float:
    total = 0.0
    for app in range(len(pick)):
        if app != absent:
            total += lots.value[pick[app]]
    return total


@part
def _regret_of_some(lots: Lots, price: Floats, wanted: int) -> float:
    """The regret below which about that many bundles lie, beside the best of each app."""
    regret = np.empty(len(lots.value))
    apps = len(lots.start) - 1
    for app in range(apps):
        most = -np.inf
        for bundle in range(lots.start[app], lots.start[app + 1]):
            regret[bundle] = -worth_of(lots, price, bundle)
            most = max(most, -regret[bundle])
        for bundle in range(lots.start[app], lots.start[app + 1]):
            regret[bundle] += most
    depth, count = _REGRET_MIN, 0
    while count < wanted + apps and depth < _REGRET_MAX:
        depth *= 1.25
        count = 0
        for value in regret:
            if value < depth:
                count += 1
    return depth


@part
def near_of(lots: Lots, price: Floats, wanted: int) -> Near:
    """The bundles that matter at prices near these, with about so many that are not the best of their app."""
    apps, types = len(lots.start) - 1, len(price)
    regret = _regret_of_some(lots, price, wanted)
    reach = _REACH * price.mean() + np.zeros(types)
    for kind in range(types):
        reach[kind] = max(reach[kind], _REACH * price[kind])
    low, high = np.maximum(price - reach, 0.0), price + reach
    start, bundle = np.zeros(apps + 1, np.int64), np.empty(len(lots.value), np.int64)
    count = 0
    for app in range(apps):
        least = -np.inf
        for number in range(lots.start[app], lots.start[app + 1]):
            least = max(least, worth_of(lots, high, number))
        for number in range(lots.start[app], lots.start[app + 1]):
            if worth_of(lots, low, number) > least - regret:
                bundle[count] = number
                count += 1
        start[app + 1] = count
    value, gpus = np.empty(count), np.empty((types, count))
    for index in range(count):
        value[index] = lots.value[bundle[index]]
        for kind in range(types):
            gpus[kind, index] = lots.gpus[bundle[index], kind]
    return Near(start, bundle[:count].copy(), value, gpus, np.empty(count), low, high, regret)


@part
def all_far(apps: int, types: int) -> Near:
    """A `Near` without information: all bundles matter."""
    nothing, none = np.zeros(0), np.zeros(0, np.int64)
    free = np.zeros(types)
    return Near(np.zeros(apps + 1, np.int64), none, nothing, np.zeros((types, 0)), nothing, free, free, -1.0)


@part
def _longer(values: Any) -> Any:
    longer = np.empty(2 * len(values), values.dtype)
    longer[: len(values)] = values
    return longer


@part
def _listed(case: Subproblem, price: Floats, depth: float) -> tuple[Ints, Ints, Ints, Floats]:
    """The picks of all apps; and owner, bundle and regret of all other bundles with a regret below the depth."""
    lots, near = case.lots, case.near
    apps = len(lots.start) - 1
    pick = np.empty(apps, np.int64)
    size, count = 1024, 0
    owner, bundle, regret = np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size)
    weighed = weigh(near, price)
    for app in range(apps):
        pick[app], worth = pick_of(case, price, app, weighed)
        if app == case.absent:
            pick[app] = lots.start[app]
            continue
        is_near = weighed and depth <= near.regret
        start = near.start if is_near else lots.start
        for index in range(start[app], start[app + 1]):
            number = near.bundle[index] if is_near else index
            loss = worth - (near.worth[index] if is_near else worth_of(lots, price, number))
            if loss >= depth or number == pick[app] or not case.is_open[number]:
                continue
            if count == size:
                size *= 2
                owner, bundle, regret = _longer(owner), _longer(bundle), _longer(regret)
            owner[count], bundle[count], regret[count] = app, number, loss
            count += 1
    return pick, owner[:count], bundle[:count], regret[:count]


@part
def _staged(lots: Lots, pick: Ints, owner: Ints, bundle: Ints, regret: Floats) -> Moves:
    """Moves by app, the app with the cheapest first; they come in the order of their regret."""
    count, types = len(owner), lots.gpus.shape[1]
    stage_of = np.full(len(pick), -1)
    stages = 0
    for index in range(count):
        if stage_of[owner[index]] < 0:
            stage_of[owner[index]] = stages
            stages += 1
    start = np.zeros(stages + 1, np.int64)
    for index in range(count):
        start[stage_of[owner[index]] + 1] += 1
    for stage in range(stages):
        start[stage + 1] += start[stage]
    place = start.copy()
    moves = Moves(
        start, np.empty(count, np.int64), np.empty(count, np.int64), np.empty(count), np.empty((count, types), np.int64)
    )
    for index in range(count):
        stage = stage_of[owner[index]]
        here = place[stage]
        place[stage] += 1
        moves.app[here], moves.bundle[here], moves.regret[here] = owner[index], bundle[index], regret[index]
        for kind in range(types):
            moves.gpus[here, kind] = lots.gpus[bundle[index], kind] - lots.gpus[pick[owner[index]], kind]
    return moves


@part
def ground_of(case: Subproblem, price: Floats, limit: float, moves_max: int) -> SearchStart:
    """The moves of a regret below the limit, at most so many."""
    depth = min(limit, case.near.regret if case.near.regret > 0 else _REGRET_MAX)
    pick, owner, bundle, regret = _listed(case, price, depth)
    order = np.argsort(regret)
    floor = depth
    if len(order) > moves_max:
        floor = regret[order[moves_max]]
        order = order[:moves_max]
    left = case.offer.copy()
    for app in range(len(pick)):
        if app == case.absent:
            continue
        for kind in range(len(left)):
            left[kind] -= case.lots.gpus[pick[app], kind]
    return SearchStart(pick, left, _staged(case.lots, pick, owner[order], bundle[order], regret[order]), floor)
