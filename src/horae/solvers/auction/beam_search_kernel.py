"""Beam search for the best allocation near given prices, compiled.

At prices every app has a best bundle, and any other bundle a regret: how much less it is worth. The welfare of an
allocation is the bound at these prices less its loss: the regrets of all its bundles and the price of what it leaves of
the offer. So the best allocation has the least loss: few apps move, to other bundles of little regret, until all fit.

A label stands for the moves of some apps: what they leave of the offer, and their regret so far. Of labels that leave
the same, the one with the least regret is kept. Apps are processed one after the other, those with the cheapest moves
first; a lower bound on the loss of the others follows from the bound at a few other prices, higher for what is missing
and lower for what is left. Labels that cannot come below the limit are dropped. Where there are too many, the most
promising are kept, and the lower bound on the loss of the dropped ones is what is proved.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from horae.model.arrays import Floats, Ints
from horae.solvers.auction.prices_kernel import inner
from horae.solvers.levels.pricing_kernel import part

_MIX = np.uint64(0x9E3779B97F4A7C15)  # 2^64 over the golden ratio: an odd number with no pattern in its bits
_STEPS = np.array([0.003, 0.01, 0.03, 0.1])  # relative changes of a type's price
_PRICE_MIN = 1e-3  # base of the relative changes where GPUs cost nothing
_NARROW = 4  # factor by which the beam is narrowed
_LABELS_PER_PLACE = 64  # labels that may be made, per place of the beam


class Moves(NamedTuple):
    """Bundles that apps may take instead of their best, app after app: the stages of the search."""

    start: Ints  # by stage, and the end of the last
    app: Ints
    bundle: Ints  # in the lots
    regret: Floats  # ascending in each stage
    gpus: Ints  # by move and type: how many more than in the best bundle


class SearchTarget(NamedTuple):
    """The accuracy asked for: nothing better by more than the slack of the loss, which is 0 for a width of 0."""

    others: float  # welfare to compare with
    width: float  # maximum distance between the two bounds of exp(others - welfare)


class Searched(NamedTuple):
    loss: float  # the least found, or the known one
    proved: float  # no allocation has a smaller loss
    app: Ints  # apps that move, if a smaller loss than the known one was found
    bundle: Ints  # the bundles they move to


class Room(NamedTuple):
    """Labels and their hash table; allocated once, because allocating memory takes longer than using it."""

    left: Ints  # by label and type: what is left of the offer; negative where GPUs are missing
    regret: Floats
    promise: Floats  # no allocation with these moves and those of later apps has a smaller loss
    parent: Ints
    move: Ints  # -1: no app has moved
    place: Ints  # in the table
    table: Ints  # of labels by what they leave; -1: none
    live: Ints  # labels
    scratch: Floats


class _State(NamedTuple):
    """The progress of a search."""

    made: int  # labels
    living: int
    best: int  # label; -1: the known allocation is better
    least: float  # loss
    limit: float  # losses that are not below this need not be found
    lost: float  # no label dropped because the beam was full has a smaller loss
    bound: float  # on the welfare, at the prices


class _Ahead(NamedTuple):
    """Bounds on what the apps of later stages can do, by stage: GPUs, and worth at other prices."""

    give: Ints  # by stage and type
    take: Ints  # by stage and type
    shift: Floats  # by other prices, and type: how much lower they are
    worth: Floats  # by stage and other prices: the least sum of regret - shift x GPUs


@part
def limit_of(goal: SearchTarget, loss: float) -> float:
    """The loss below which an improvement counts, given this known loss; losses are counted from a welfare of 0."""
    part = goal.width * np.exp(-loss - goal.others)
    if part >= 1.0:
        return -np.inf
    return loss + np.log1p(-part)


@part
def _shifts(price: Floats) -> Floats:
    """Price changes: every type's price higher, the same or lower, in all combinations, each by a number of steps."""
    types, steps = len(price), len(_STEPS)
    patterns, mean = 3**types, price.mean()
    shift = np.zeros((patterns * steps, types))
    for pattern in range(patterns):
        rest = pattern
        for kind in range(types):
            higher = max(price[kind], mean, _PRICE_MIN)
            for step in range(steps):
                lower = price[kind] if rest % 3 == 2 else (-higher if rest % 3 == 0 else 0.0)
                shift[pattern * steps + step, kind] = _STEPS[step] * lower
            rest //= 3
    return shift


@part
def _ahead(moves: Moves, price: Floats) -> _Ahead:
    types, stages = len(price), len(moves.start) - 1
    shift = _shifts(price)
    give, take = np.zeros((stages + 1, types), np.int64), np.zeros((stages + 1, types), np.int64)
    worth = np.zeros((stages + 1, len(shift)))
    for stage in range(stages - 1, -1, -1):
        first, last = moves.start[stage], moves.start[stage + 1]
        for kind in range(types):
            most = least = 0
            for move in range(first, last):
                most, least = max(most, moves.gpus[move, kind]), min(least, moves.gpus[move, kind])
            give[stage, kind] = give[stage + 1, kind] - least
            take[stage, kind] = take[stage + 1, kind] + most
        for number in range(len(shift)):
            lowest = 0.0
            for move in range(first, last):
                value = moves.regret[move]
                for kind in range(types):
                    value -= shift[number, kind] * moves.gpus[move, kind]
                lowest = min(lowest, value)
            worth[stage, number] = worth[stage + 1, number] + lowest
    return _Ahead(give, take, shift, worth)


@inner
def _loss_to_come(ahead: _Ahead, left: Ints, price: Floats, stage: int) -> float:
    """A lower bound on the loss from this stage on; infinity where missing GPUs cannot be given back."""
    least = 0.0
    pattern, power = 0, 1
    for kind in range(len(price)):
        if left[kind] + ahead.give[stage, kind] < 0:
            return np.inf
        least += price[kind] * max(left[kind] - ahead.take[stage, kind], 0)
        pattern += power * (1 + (left[kind] > 0) - (left[kind] < 0))
        power *= 3
    steps = len(_STEPS)
    for number in range(pattern * steps, (pattern + 1) * steps):
        loss = ahead.worth[stage, number]
        for kind in range(len(price)):
            loss += ahead.shift[number, kind] * left[kind]
        least = max(least, loss)
    return least


@inner
def _loss_now(left: Ints, price: Floats, regret: float) -> float:
    """The loss if no other app moves."""
    loss = regret
    for kind in range(len(price)):
        if left[kind] < 0:
            return np.inf
        loss += price[kind] * left[kind]
    return loss


@inner
def _are_equal(left: Ints, one: int, other: int) -> bool:
    for kind in range(left.shape[1]):  # noqa: SIM110  compiled, `all` of a generator is not
        if left[one, kind] != left[other, kind]:
            return False
    return True


@inner
def _place_of(labels: Room, label: int) -> np.int64:
    """The place in the table of what this label leaves, or the place where it would be."""
    code = np.uint64(0)
    for kind in range(labels.left.shape[1]):
        code = (code ^ np.uint64(labels.left[label, kind])) * _MIX
        code ^= code >> np.uint64(29)
    table = labels.table
    mask = len(table) - 1
    place = np.int64(code & np.uint64(mask))
    while table[place] >= 0 and not _are_equal(labels.left, table[place], label):
        place = (place + 1) & mask
    return place


@part
def room_for(types: int, beam: int) -> Room:
    size = _LABELS_PER_PLACE * beam + 2
    places = 1
    while places < 2 * size:
        places *= 2
    return Room(
        np.empty((size, types), np.int64),
        np.empty(size),
        np.empty(size),
        np.empty(size, np.int64),
        np.empty(size, np.int64),
        np.empty(size, np.int64),
        np.full(places, -1),
        np.empty(size, np.int64),
        np.empty(size),
    )


@part
def _ranked(values: Floats, rank: int) -> float:
    """The value of that rank, counted from 0, by Hoare's selection, in place."""
    low, high = 0, len(values) - 1
    while low < high:
        pivot = values[(low + high) // 2]
        left, right = low, high
        while left <= right:
            while values[left] < pivot:
                left += 1
            while values[right] > pivot:
                right -= 1
            if left <= right:
                values[left], values[right] = values[right], values[left]
                left += 1
                right -= 1
        if rank <= right:
            high = right
        elif rank >= left:
            low = left
        else:
            break
    return values[rank]


@part
def _kept(labels: Room, living: int, limit: float, beam: int) -> tuple[int, float]:
    """Keep undominated labels that may come below the limit, up to the beam width; return the loss of the others."""
    live, table = labels.live, labels.table
    kept = 0
    for index in range(living):
        label = live[index]
        if table[labels.place[label]] == label and labels.promise[label] < limit:
            live[kept] = label
            kept += 1
    if kept <= beam + beam // 4:  # Selection takes time; a few extra labels do not.
        return kept, np.inf
    promise = labels.scratch[:kept]
    for index in range(kept):
        promise[index] = labels.promise[live[index]]
    least = _ranked(promise, beam)
    living, kept = kept, 0
    for index in range(living):
        if labels.promise[live[index]] < least:
            live[kept] = live[index]
            kept += 1
    return kept, least


@part
def _answer(labels: Room, moves: Moves, state: _State) -> Searched:
    app, bundle = np.empty(len(moves.start), np.int64), np.empty(len(moves.start), np.int64)
    length, label = 0, state.best
    while label >= 0 and labels.move[label] >= 0:
        app[length], bundle[length] = moves.app[labels.move[label]], moves.bundle[labels.move[label]]
        length += 1
        label = labels.parent[label]
    return Searched(state.least, min(state.lost, state.limit), app[:length], bundle[:length])


@part
def _extend(
    labels: Room, moves: Moves, ahead: _Ahead, price: Floats, goal: SearchTarget, stage: int, state: _State
) -> _State:
    """Extend every living label by every move of this stage."""
    count, best, least, limit, lost = state.made, state.best, state.least, state.limit, state.lost
    for index in range(state.living):
        label = labels.live[index]
        for move in range(moves.start[stage], moves.start[stage + 1]):
            regret = labels.regret[label] + moves.regret[move]
            if regret >= limit:
                break
            for kind in range(len(price)):
                labels.left[count, kind] = labels.left[label, kind] - moves.gpus[move, kind]
            promise = regret + _loss_to_come(ahead, labels.left[count], price, stage + 1)
            if promise >= limit:
                continue
            place = _place_of(labels, count)
            number = labels.table[place]
            if number >= 0 and labels.regret[number] <= regret:
                continue
            if number < state.made:  # Labels of earlier stages stay, because they may be parents.
                if count == len(labels.regret) - 1:
                    lost = min(lost, promise)
                    continue
                number = count
                count += 1
            labels.regret[number], labels.promise[number] = regret, promise
            labels.parent[number], labels.move[number] = label, move
            labels.place[number], labels.table[place] = place, number
            loss = _loss_now(labels.left[number], price, regret)
            if loss < least:
                best, least = number, loss
                limit = state.bound + limit_of(goal, least - state.bound)
    return _State(count, state.living, best, least, limit, lost, state.bound)


@part
def _relive(labels: Room, ahead: _Ahead, price: Floats, stage: int, living: int, fresh: int, count: int) -> int:
    """Update the promises of labels that did not move, and add the new labels to the living ones."""
    for index in range(living):
        label = labels.live[index]
        labels.promise[label] = labels.regret[label] + _loss_to_come(ahead, labels.left[label], price, stage + 1)
    for label in range(fresh, count):
        labels.live[living] = label
        living += 1
    return living


@part
def search(
    labels: Room, moves: Moves, left: Ints, price: Floats, goal: SearchTarget, bound: float, known: float, beam: int
) -> Searched:
    """The least loss with these moves, if it is below the known loss by more than the slack of the goal."""
    ahead, narrow = _ahead(moves, price), max(beam // _NARROW, 1)
    labels.left[0], labels.regret[0], labels.move[0], labels.live[0] = left, 0.0, -1, 0
    labels.place[0] = _place_of(labels, 0)
    labels.table[labels.place[0]] = 0
    best, least = -1, known
    if _loss_now(left, price, 0.0) < least:
        best, least = 0, _loss_now(left, price, 0.0)
    state = _State(1, 1, best, least, bound + limit_of(goal, least - bound), np.inf, bound)
    for stage in range(len(moves.start) - 1):
        fresh = state.made
        state = _extend(labels, moves, ahead, price, goal, stage, state)
        living = _relive(labels, ahead, price, stage, state.living, fresh, state.made)
        living, dropped = _kept(labels, living, state.limit, beam)
        lost = min(state.lost, dropped)
        if lost < state.limit:
            beam = narrow  # Nothing further is proved; something may still be found.
        state = _State(state.made, living, state.best, state.least, state.limit, lost, bound)
    for label in range(state.made):
        labels.table[labels.place[label]] = -1
    return _answer(labels, moves, state)
