"""The levels that gangs are assumed to get when apps bid, and those that they would get.

A bid depends on the speed of a gang before its placement is known. So the best level is assumed, the auction held, and
the waiting winners are placed on trial, the largest gang first. Apps that would get another level than assumed bid
again.
"""

from __future__ import annotations

import numpy as np

from horae.model.arrays import Bools, Floats, Ints
from horae.model.view import View
from horae.policies.themis.bundles import Outlook, outlook, values
from horae.policies.themis.valuation import KEEPS, RENEWS, WAITS, AuctionLedger, AuctionTerms

# By how much log 1 / rho of what an app has won must change for it to bid again. An auction over several types proves
# its welfare only to this tolerance, so it could not tell the difference, and it takes too long to be repeated in vain.
MATERIAL = 0.01


def fastest(view: View, books: AuctionLedger) -> Ints:
    """By sorted row and type: the present option, or the fastest for which an empty pool has room; -1: none."""
    jobs, row = view.jobs, books.row
    shape, speed = jobs.shape[row], jobs.speed[row]
    accelerator = np.where(shape >= 0, view.shape_accelerator[shape], -1)
    possible = (accelerator >= 0) & (view.shape_level[shape] >= _best_level(view)[shape])
    option = np.full((len(row), len(view.accelerators)), -1, dtype=np.int64)
    for number in range(len(view.accelerators)):
        there = np.where(possible & (accelerator == number), speed, 0.0)
        option[:, number] = np.where(there.max(axis=1, initial=0.0) > 0, there.argmax(axis=1), -1)
    runs = np.flatnonzero(jobs.running[row])
    held = jobs.option[row[runs]]
    kind = accelerator[runs, held]
    option[runs[kind >= 0], kind[kind >= 0]] = held[kind >= 0]
    return option


def _best_level(view: View) -> Ints:
    """By shape: the finest level that such a gang would get in an empty pool; beyond all levels: none."""
    none = len(view.levels)
    best = np.full(len(view.shapes), none)
    everybody = np.ones(len(view.jobs), dtype=bool)
    usable = view.shape_accelerator >= 0
    pairs = np.stack([view.shape_accelerator[usable], view.shape_gpus[usable]], axis=1)
    for number, gpus in np.unique(pairs, axis=0).tolist():
        level = int(view.trial(everybody, view.accelerators[number], np.array([gpus]))[0])
        best[(view.shape_accelerator == number) & (view.shape_gpus == gpus)] = level if level >= 0 else none
    return best


def placed(view: View, books: AuctionLedger, wins: Bools, starts: Ints, option: Ints) -> Ints:
    """By start, one after the other: the option of the level it would get if all jobs that have not won were gone.

    Where there seems to be no room, other jobs may make some by moving: placement finds out.
    """
    jobs, rows = view.jobs, books.row[starts]
    loses = np.zeros(len(jobs), dtype=bool)
    loses[books.row[~wins & (books.standing == RENEWS)]] = True
    shape = jobs.shape[rows, option]
    kind, gpus = view.shape_accelerator[shape], view.shape_gpus[shape]
    found = option.copy()
    for number in np.unique(kind[kind >= 0]).tolist():
        these = np.flatnonzero(kind == number)
        level = view.trial(loses, view.accelerators[number], gpus[these])
        there = _option_at(view, rows[these], shape[these], level)
        found[these] = np.where(there >= 0, there, option[these])
    return found


def revalued(
    view: View,
    books: AuctionLedger,
    terms: AuctionTerms,
    seen: Outlook,
    won: tuple[Bools, Ints],
    option: Ints,
    turn: Ints,
) -> Ints:
    """Options by sorted row and type, updated to those that winners would get, where that changes what they have won.

    `won` is by sorted row: whether it has GPUs then, and of which type; `turn` is by sorted row: the order of placement
    among gangs of one size.
    """
    wins, kind = won
    starts = np.flatnonzero(wins & (books.standing == WAITS) & (kind >= 0))
    starts = starts[seen.gpus[starts, kind[starts]] > 1]
    starts = starts[np.lexsort((starts, turn[starts], -seen.gpus[starts, kind[starts]]))]
    if not len(starts):
        return option
    obtained = option.copy()
    obtained[starts, kind[starts]] = placed(view, books, wins, starts, option[starts, kind[starts]])
    if (obtained == option).all():
        return option
    served = np.where(books.standing == KEEPS, seen.home, np.where(wins, kind, -1))
    change: Floats = values(books, terms, outlook(view, books, terms, obtained), served)
    change = np.abs(change - values(books, terms, seen, served))
    return np.where(np.repeat(change > MATERIAL, np.diff(books.first))[:, None], obtained, option)


def _option_at(view: View, rows: Ints, shape: Ints, level: Ints) -> Ints:
    """By row: the fastest option of the type and size of this shape that such a placement satisfies; -1: none."""
    jobs = view.jobs
    shapes = jobs.shape[rows]
    fits = (shapes >= 0) & (view.shape_accelerator[shapes] == view.shape_accelerator[shape][:, None])
    fits &= (view.shape_gpus[shapes] == view.shape_gpus[shape][:, None]) & (level >= 0)[:, None]
    fits &= view.shape_level[shapes] >= level[:, None]
    speed = np.where(fits, jobs.speed[rows], 0.0)
    return np.where(speed.max(axis=1, initial=0.0) > 0, speed.argmax(axis=1), -1)
