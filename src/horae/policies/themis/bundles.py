"""Bids for GPUs of several types: an app's jobs on the types where they are fastest, as far as it wins those.

The value of so many GPUs of each type is what they would do in a lease, estimated as for one type (`valuation.py`). Of
its jobs that hold GPUs those come first that are there already; then the waiting ones, the longest first, each on the
fastest type for it of which some are left. A table has a bundle for some numbers of jobs on each type (1, 2, 4, ... and
all), not for every one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from horae.model.arrays import Bools, Floats, Ints
from horae.model.errors import bounded
from horae.model.view import View
from horae.policies.themis.valuation import KEEPS, RENEWS, WAITS, AuctionLedger, AuctionTerms
from horae.solvers.auction.multi_type import BundleBid

BUNDLES_MAX = 400
_TINY = 1e-9


class Outlook(NamedTuple):
    """By sorted row and type: the effect of a lease there."""

    gpus: Ints  # of the shape that it would have
    pace: Floats  # relative to its reference speed; 0: none
    done: Floats  # GPU-seconds, as in its reference shape
    takes_seconds: Floats  # until it has finished, if it continued
    home: Ints  # by sorted row: the type where it is or will be in any case; -1: none


def outlook(view: View, books: AuctionLedger, terms: AuctionTerms, option: Ints) -> Outlook:
    """The effect of a lease with the option that each row would have, by sorted row and type; -1: none."""
    jobs, row = view.jobs, books.row
    reference = np.where(jobs.reference_speed[row] > 0, jobs.reference_speed[row], 1.0)
    pace = np.where(option >= 0, np.take_along_axis(jobs.speed[row], option, axis=1), 0.0) / reference[:, None]
    gpus = view.shape_gpus[np.take_along_axis(jobs.shape[row], option, axis=1)]
    resumes = (jobs.run_base[row] > 0) & (books.standing == WAITS) & terms.restarts
    restart = np.where(resumes, jobs.restart_seconds[row], 0.0)[:, None]
    left = books.left_seconds[:, None]
    useful: Floats = np.maximum(terms.lease_seconds - restart, 0.0) * pace
    done: Floats = np.minimum(useful, left) * books.gang[:, None]
    takes = restart + left / np.where(pace > 0, pace, _TINY)
    there = view.shape_accelerator[jobs.shape[row, np.where(jobs.running[row], jobs.option[row], 0)]]
    # A job that is served in any case but does not run yet waits for another to leave; its type is not in the table.
    kept = np.where(pace.max(axis=1, initial=0.0) > 0, pace.argmax(axis=1), -1)
    home = np.where(jobs.running[row], there, np.where(books.standing == KEEPS, kept, -1))
    return Outlook(np.where(option >= 0, gpus, 0), pace, done, takes, home)


class Ladder(NamedTuple):
    """The bundles that an app bids for, and how it would use those it wins."""

    bid: BundleBid
    jobs: Ints  # by bundle and type: number of its jobs
    first: int  # its first row in the books
    standing: Ints  # by row of the app, as are those below
    home: Ints
    turn: Ints  # the types that it accepts, the fastest first; -1: end of list

    def rows(self, bundle: int) -> list[tuple[int, int]]:
        """Rows in the books with the type of each under a bundle, except for those that have theirs in any case."""
        from horae.policies.themis.bundles_kernel import serve  # noqa: PLC0415  numba is slow to import

        served = serve(self.jobs[bundle], self.standing, self.home, self.turn)
        won = np.flatnonzero((served >= 0) & (self.standing != KEEPS))
        return list(zip((self.first + won).tolist(), served[won].tolist(), strict=True))


def ladder(books: AuctionLedger, terms: AuctionTerms, seen: Outlook, app: int) -> Ladder:
    from horae.policies.themis.bundles_kernel import sums  # noqa: PLC0415  numba is slow to import

    low, high = int(books.first[app]), int(books.first[app + 1])
    standing, home, pace = books.standing[low:high], seen.home[low:high], seen.pace[low:high]
    turn = np.argsort(-pace, axis=1, kind="stable")
    turn = np.where(np.take_along_axis(pace, turn, axis=1) > 0, turn, -1)
    waits = standing == WAITS
    renews = np.bincount(home[(standing == RENEWS) & (home >= 0)], minlength=pace.shape[1])
    jobs = _grid(renews.tolist(), int(waits.sum()), pace[waits].max(axis=0, initial=0.0) > 0)
    worth = np.stack([seen.done[low:high], seen.takes_seconds[low:high], books.gang[low:high, None] * pace])
    gpus, work, longest, strength = sums(jobs, standing, home, turn, seen.gpus[low:high], worth)
    value = _value(books, terms, np.full(len(jobs), app), (work, longest, strength))
    return Ladder(BundleBid(gpus, value), jobs, low, standing, home, turn)


def values(books: AuctionLedger, terms: AuctionTerms, seen: Outlook, kind: Ints) -> Floats:
    """By app: log 1 / rho if its rows were served on these types, by sorted row; -1: not served."""
    row = np.arange(len(kind))

    def served(columns: Floats) -> Floats:
        return np.where(kind >= 0, columns[row, kind], 0.0)

    first = books.first[:-1]
    work, strength = (np.add.reduceat(served(each), first) for each in (seen.done, books.gang[:, None] * seen.pace))
    longest = np.maximum.reduceat(served(seen.takes_seconds), first)
    return _value(books, terms, np.arange(len(first)), (work, longest, strength))


def _value(books: AuctionLedger, terms: AuctionTerms, app: Ints, served: tuple[Floats, Floats, Floats]) -> Floats:
    """The value as for one type: one lease, the rest at the entitled share, future jobs; or its own end, if near.

    `served` is the work that is done, the seconds of the longest job, and the worth of the GPUs.
    """
    work, longest, strength = served
    left, later = books.work_left[app], books.later_seconds[app]
    rest = np.maximum(left - work, 0.0)
    shared = terms.lease_seconds + rest / books.entitled_gpus[app] + later
    if terms.to_the_end:
        to_the_end = np.maximum(longest, left / np.maximum(strength, _TINY)) + later
        shared = np.where(strength > 0, np.minimum(shared, to_the_end), shared)
    shared = np.where(rest <= _TINY, np.minimum(shared, longest + later), shared)
    return -np.log(np.maximum((books.age_seconds[app] + shared) / books.ideal_seconds[app], _TINY))


def _grid(renews: list[int], waits: int, is_wanted: Bools) -> Ints:
    """Numbers of jobs by type: nothing first, and never more waiting jobs than there are."""
    steps = []
    for held, wanted in zip(renews, is_wanted.tolist(), strict=True):
        ends = {0, held, *(held + each for each in _powers(waits) if wanted), *_powers(held)}
        steps.append(sorted(ends))
    for _ in bounded(64 * len(steps) + 1, "thinning out a grid of bundles"):
        if np.prod([len(each) for each in steps]) <= BUNDLES_MAX * 4:
            break
        longest = max(range(len(steps)), key=lambda index: len(steps[index]))
        steps[longest] = sorted({0, steps[longest][-1], *steps[longest][::2]})
    grid = np.stack(np.meshgrid(*steps, indexing="ij"), axis=-1).reshape(-1, len(renews)).astype(np.int64)
    more = np.maximum(grid - np.array(renews), 0).sum(axis=1)
    return grid[more <= waits]


def _powers(count: int) -> list[int]:
    """The powers of two below a count, and the count itself."""
    return sorted({min(1 << power, count) for power in range(count.bit_length() + 1)}) if count else []
