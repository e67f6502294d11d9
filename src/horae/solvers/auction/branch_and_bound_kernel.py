"""Welfare and payments of an auction over several GPU types, compiled: branch and bound.

Prices give a bound; the search near them finds allocations and improves the proof. What neither settles is split in
two: an app that is between two bundles gets at most so many GPUs of a type, or more. The part with the largest bound is
explored next.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from horae.model.arrays import Bools, Floats, Ints
from horae.solvers.auction.beam_search_kernel import Room, SearchTarget, limit_of, room_for, search
from horae.solvers.auction.moves_kernel import all_far, ground_of, near_of, welfare_of
from horae.solvers.auction.prices_kernel import (
    PLANES_MAX,
    Lots,
    Planes,
    Priced,
    Subproblem,
    best_of_all,
    find_prices,
    is_within,
)
from horae.solvers.levels.pricing_kernel import kernel, part

_CLOSE = 0.012  # with a larger gap the search only has to find something, and may be narrow
_NARROW = 4
_PLANES_KEPT = 96
_HAIR = 1e-12


class Effort(NamedTuple):
    """Limits on the search effort."""

    nodes_max: int
    beam: int
    moves_max: int


class Settled(NamedTuple):
    pick: Ints  # by app: its bundle in the lots
    welfare: float
    bound: float  # no allocation has a larger welfare
    price: Floats  # by type: of the bound before anything was split
    others: Floats  # by app: a welfare that the others can have without it
    others_bound: Floats  # by app: upper bound on that
    others_price: Floats  # by app and type


class _Best(NamedTuple):
    """The best allocation found, for all apps or for all but one."""

    pick: Ints  # of the absent one: nothing
    welfare: float
    bound: float
    price: Floats


class _Nodes(NamedTuple):
    """A node is its parent with an app at no more than so many GPUs of a type, or with more; 0 is the root."""

    parent: Ints
    app: Ints
    kind: Ints
    split: Ints
    is_above: Bools
    bound: Floats  # of the parent; - infinity: explored
    price: Floats  # of the parent, by type


@part
def _set_open(nodes: _Nodes, case: Subproblem, node: int, is_reset: bool) -> None:
    """Close the bundles that the path to this node excludes, or open all bundles of these apps again."""
    lots = case.lots
    while node > 0:
        app = nodes.app[node]
        case.is_split[app] = not is_reset
        for bundle in range(lots.start[app], lots.start[app + 1]):
            if is_reset:
                case.is_open[bundle] = True
            elif (lots.gpus[bundle, nodes.kind[node]] > nodes.split[node]) != nodes.is_above[node]:
                case.is_open[bundle] = False
        node = nodes.parent[node]


@part
def _inherit(case: Subproblem, nodes: _Nodes, node: int, source: Planes, count: int, planes: Planes) -> int:
    """Copy the planes of the root, with open bundles in place of closed ones; return how many."""
    for number in range(count):
        planes.base[number] = source.base[number]
        planes.slope[number] = source.slope[number]
        planes.pick[number] = source.pick[number]
    lots, price = case.lots, nodes.price[node]
    while node > 0:
        app = nodes.app[node]
        other, _ = best_of_all(lots, case.is_open, price, app)
        if other < 0:
            return 1
        for number in range(1, count):
            pick = planes.pick[number, app]
            if not case.is_open[pick]:
                planes.pick[number, app] = other
                planes.base[number] += lots.value[other] - lots.value[pick]
                for kind in range(len(price)):
                    planes.slope[number, kind] += lots.gpus[pick, kind] - lots.gpus[other, kind]
        node = nodes.parent[node]
    return count


@part
def _keep(source: Planes, total: int, planes: Planes, first: int, last: int) -> int:
    """Keep the plane found at a node, which is valid for all, in place of an old one, for later nodes."""
    for number in range(first, last):
        place = total if total < _PLANES_KEPT else 1 + (total - 1) % (_PLANES_KEPT - 1)
        source.base[place] = planes.base[number]
        source.slope[place] = planes.slope[number]
        source.pick[place] = planes.pick[number]
        total += 1
    return total


@part
def _split(case: Subproblem, planes: Planes, priced: Priced, best: Ints) -> tuple[int, int, int]:
    """The app and the type where the active planes differ by GPUs of the highest price, and the split value.

    Where they agree, the best allocation so far is one of them: it differs elsewhere, or all would be proved.
    """
    lots = case.lots
    chosen, chosen_kind, split, most = -1, 0, 0, 0.0
    for turn in range(2):
        if chosen >= 0:
            break
        for app in range(len(lots.start) - 1):
            if app == case.absent:
                continue
            for kind in range(len(case.offer)):
                low, high = case.offer[kind] + 1, np.int64(-1)  # No bundle has as many, or as few.
                if turn > 0 and case.is_open[best[app]]:
                    low = high = lots.gpus[best[app], kind]
                for member in priced.basis:
                    if member > 0:
                        gpus = lots.gpus[planes.pick[member, app], kind]
                        low, high = min(low, gpus), max(high, gpus)
                apart = (high - low) * max(priced.price[kind], _HAIR)
                if apart > most:
                    chosen, chosen_kind, split = app, kind, (low + high) // 2
                    most = apart
    return chosen, chosen_kind, split


@part
def _grow(nodes: _Nodes, count: int, parent: int, where: tuple[int, int, int], bound: float, price: Floats) -> None:
    for child in range(count, count + 2):
        nodes.parent[child], nodes.bound[child], nodes.price[child] = parent, bound, price
        nodes.app[child], nodes.kind[child], nodes.split[child] = where
        nodes.is_above[child] = child > count


@part
def _planted(size: int, top: float, price: Floats) -> _Nodes:
    nodes = _Nodes(
        np.zeros(size, np.int64),
        np.zeros(size, np.int64),
        np.zeros(size, np.int64),
        np.zeros(size, np.int64),
        np.zeros(size, np.bool_),
        np.empty(size),
        np.zeros((size, len(price))),
    )
    nodes.bound[0], nodes.price[0] = top, price
    return nodes


@part
def _highest(bound: Floats, count: int) -> int:
    best = 0
    for node in range(1, count):
        if bound[node] > bound[best]:
            best = node
    return best


@part
def _search_beside(
    case: Subproblem, room: Room, priced: Priced, goal: SearchTarget, effort: Effort, best: Ints
) -> float:
    """Replace the best allocation by a better one near these prices, if there is one; return the proved loss."""
    welfare = welfare_of(case.lots, best, case.absent)
    limit = priced.bound + limit_of(goal, -welfare)
    ground = ground_of(case, priced.price, limit, effort.moves_max)
    beam = effort.beam if limit <= _CLOSE else max(effort.beam // _NARROW, 1)
    loss = priced.bound - welfare
    found = search(room, ground.moves, ground.left, priced.price, goal, priced.bound, loss, beam)
    if found.loss < loss:
        best[:] = ground.pick
        for index in range(len(found.bundle)):
            best[found.app[index]] = found.bundle[index]
    return min(found.proved, ground.floor)


@part
def _best(
    case: Subproblem,
    room: Room,
    source: Planes,
    planes: Planes,
    total: int,
    first: Floats,
    goal: SearchTarget,
    known: Ints,
    top: float,
    effort: Effort,
) -> _Best:
    """The best allocation up to the slack of the goal, if the effort suffices. `top`: a bound known before."""
    lots, best = case.lots, known.copy()
    welfare, proved = welfare_of(lots, known, case.absent), -np.inf
    nodes, made = _planted(2 * effort.nodes_max + 1, top, first), 1
    price = first
    for _ in range(effort.nodes_max):
        node = _highest(nodes.bound, made)
        enough = -limit_of(goal, -welfare)  # An allocation that is not above this need not be found.
        if nodes.bound[node] <= enough + _HAIR:
            break
        _set_open(nodes, case, node, False)
        start = _inherit(case, nodes, node, source, min(total, _PLANES_KEPT), planes)
        planes.base[0] = welfare - 1.0
        priced = find_prices(case, planes, start, nodes.price[node], enough)
        if node == 0:
            price = priced.price
            if not is_within(case.near, price):
                near = near_of(lots, price, 2 * effort.moves_max)
                case = Subproblem(lots, near, case.offer, case.absent, case.is_open, case.is_split)
        bound, where = min(priced.bound, nodes.bound[node]), (-1, 0, 0)
        if bound > enough + _HAIR:
            proved_here = _search_beside(case, room, priced, goal, effort, best)
            welfare = welfare_of(lots, best, case.absent)
            bound = min(bound, priced.bound - proved_here)
            if bound > -limit_of(goal, -welfare) + _HAIR:
                where = _split(case, planes, priced, best)
        total = _keep(source, total, planes, start, priced.planes)
        _set_open(nodes, case, node, True)
        nodes.bound[node] = -np.inf
        if where[0] < 0:
            proved = max(proved, bound)
        else:
            _grow(nodes, made, node, where, bound, priced.price)
            made += 2
    bound = max(proved, nodes.bound[_highest(nodes.bound, made)], welfare)
    return _Best(best, welfare, bound, price)


@part
def _without(lots: Lots, app: int, source: Planes, count: int, planes: Planes) -> None:
    """Convert planes of all apps to planes of all but one."""
    planes.slope[0] = source.slope[0]
    for number in range(1, count):
        planes.pick[number] = source.pick[number]
        own = source.pick[number, app]
        planes.base[number] = source.base[number] - lots.value[own]
        for kind in range(lots.gpus.shape[1]):
            planes.slope[number, kind] = source.slope[number, kind] + lots.gpus[own, kind]


@part
def _no_planes(apps: int, types: int) -> Planes:
    """Planes without content, except the first, which rises with all prices."""
    planes = Planes(np.zeros(PLANES_MAX), np.zeros((PLANES_MAX, types)), np.zeros((PLANES_MAX, apps), np.int64))
    planes.slope[0] = 1.0
    return planes


@kernel
def settle(lots: Lots, offer: Ints, known: Ints, top: float, width: float, whole: Effort, each: Effort) -> Settled:
    """The best welfare, exact if the effort suffices; and what the others can have without each of the apps.

    The latter to a width of exp(welfare of the others - welfare of the others without it). `known`: an allocation, by
    app a bundle, and `top` a bound on all of them.
    """
    apps, types = len(lots.start) - 1, len(offer)
    is_open, is_split = np.ones(len(lots.value), np.bool_), np.zeros(apps, np.bool_)
    planes, kept, source = _no_planes(apps, types), _no_planes(apps, types), _no_planes(apps, types)
    room = room_for(types, max(whole.beam, each.beam))
    planes.base[0] = welfare_of(lots, known, -1) - 1.0
    case = Subproblem(lots, all_far(apps, types), offer, -1, is_open, is_split)
    priced = find_prices(case, planes, 1, np.zeros(types), np.inf)
    count = min(_keep(kept, 1, planes, 1, priced.planes), _PLANES_KEPT)
    _keep(source, 1, planes, 1, priced.planes)
    near = near_of(lots, priced.price, 2 * each.moves_max)
    case = Subproblem(lots, near, offer, -1, is_open, is_split)
    top = min(top, priced.bound)
    best = _best(case, room, source, planes, count, priced.price, SearchTarget(0.0, 0.0), known, top, whole)
    others, others_bound, others_price = np.zeros(apps), np.zeros(apps), np.zeros((apps, types))
    for app in range(apps):
        others[app] = welfare_of(lots, best.pick, app)
        others_price[app] = best.price
        # The app could have taken part and won nothing.
        others_bound[app] = max(best.bound - lots.value[lots.start[app]], others[app])
        goal = SearchTarget(others[app], width)
        if others_bound[app] <= -limit_of(goal, -others[app]):
            continue
        _without(lots, app, kept, count, source)
        case = Subproblem(lots, near, offer, app, is_open, is_split)
        found = _best(case, room, source, planes, count, best.price, goal, best.pick, others_bound[app], each)
        others[app], others_bound[app] = found.welfare, found.bound
        others_price[app] = found.price
    return Settled(best.pick, best.welfare, best.bound, best.price, others, others_bound, others_price)
