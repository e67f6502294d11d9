"""Bids for GPUs of several types: an app's jobs on the types where they are fastest, as far as it wins those.

What so many GPUs of each type are worth is what they would do in a lease. Of its jobs that hold GPUs those come first
that are there already; the others fill up what it wins, the longest on the fastest type. A table has a bundle for some
numbers of jobs on each type (1, 2, 4, ... and all), not for every one.
"""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import numpy as np

from horae.model.arrays import Floats, Ints
from horae.model.view import View
from horae.policies.agents import KEEPS, RENEWS, WAITS, Books, Terms
from horae.policies.solve.auction_types import Bid

BUNDLES_MAX = 400
_TINY = 1e-9


class Ladder(NamedTuple):
    """What an app bids for, and how it would use what it wins."""

    bid: Bid
    jobs: Ints  # by bundle and type: how many of its jobs
    order: Ints  # of types, the fastest first
    renews: tuple[Ints, ...]  # by type: its rows in the books that hold GPUs of it
    waits: Ints  # its rows that wait

    def rows(self, bundle: int) -> list[tuple[int, int]]:
        """Rows in the books with the type that each has under a bundle."""
        served, start = [], 0
        for kind in self.order.tolist():
            held = self.renews[kind]
            jobs = int(self.jobs[bundle, kind])
            served += [(row, kind) for row in held[:jobs].tolist()]
            more = max(jobs - len(held), 0)
            served += [(row, kind) for row in self.waits[start : start + more].tolist()]
            start += more
        return served


def paces(view: View) -> Floats:
    """By row and accelerator: the best speed there, of that in the reference shape; 0: none."""
    jobs = view.jobs
    accelerator = view.shape_accelerator[jobs.shape]
    accepted = (jobs.shape >= 0) & (accelerator >= 0)
    pace = np.zeros((len(jobs), len(view.accelerators)))
    reference = np.where(jobs.reference_speed > 0, jobs.reference_speed, 1.0)
    for number in range(len(view.accelerators)):
        speed = np.where(accepted & (accelerator == number), jobs.speed, 0.0)
        pace[:, number] = speed.max(axis=1, initial=0.0) / reference
    return pace


def ladder(view: View, books: Books, terms: Terms, pace: Floats, app: int) -> Ladder:
    low, high = int(books.first[app]), int(books.first[app + 1])
    inside = np.arange(low, high)
    jobs, row = view.jobs, books.row[low:high]
    standing, gang, left = books.standing[low:high], books.gang[low:high], books.left_seconds[low:high]
    own = pace[row]
    kind = np.where(jobs.running[row], view.shape_accelerator[jobs.shape[row, jobs.option[row]]], -1)
    resumes = (jobs.run_base[row] > 0) & (standing == WAITS) & terms.restarts
    useful = np.maximum(terms.lease_seconds - np.where(resumes, jobs.restart_seconds[row], 0.0), 0.0)
    done = gang[:, None] * np.minimum(useful[:, None] * own, left[:, None])  # GPU-seconds, by row and type
    types = len(view.accelerators)
    renews = tuple(np.flatnonzero((standing == RENEWS) & (kind == number)) for number in range(types))
    waits = np.flatnonzero(standing == WAITS)
    order = np.argsort(-own[waits].mean(axis=0) if len(waits) else -own.mean(axis=0), kind="stable")
    jobs_by_type = _grid([len(each) for each in renews], len(waits), own[waits].max(axis=0, initial=0.0) > 0)
    gpus, work = np.zeros(jobs_by_type.shape, dtype=np.int64), np.zeros(len(jobs_by_type))
    start = np.zeros(len(jobs_by_type), dtype=np.int64)
    gangs_waiting = _sums(gang[waits])
    for number in order.tolist():
        held = renews[number]
        kept = np.minimum(jobs_by_type[:, number], len(held))
        more = jobs_by_type[:, number] - kept
        gpus[:, number] = _sums(gang[held])[kept] + gangs_waiting[start + more] - gangs_waiting[start]
        gained = _sums(done[waits, number])
        work += _sums(done[held, number])[kept] + gained[start + more] - gained[start]
        start += more
    anyway = np.flatnonzero((standing == KEEPS) & (kind >= 0))
    work += done[anyway, kind[anyway]].sum()
    rest = np.maximum(books.work_left[app] - work, 0.0)
    shared = terms.lease_seconds + rest / books.entitled_gpus[app] + books.later_seconds[app]
    value = -np.log(np.maximum((books.age_seconds[app] + shared) / books.ideal_seconds[app], _TINY))
    return Ladder(Bid(gpus, value), jobs_by_type, order, tuple(inside[each] for each in renews), inside[waits])


def _grid(renews: list[int], waits: int, is_wanted: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Ints:
    """Numbers of jobs by type: nothing first, and never more that wait than there are."""
    steps = []
    for held, wanted in zip(renews, is_wanted.tolist(), strict=True):
        ends = {0, held, *(held + each for each in _powers(waits) if wanted), *_powers(held)}
        steps.append(sorted(ends))
    while np.prod([len(each) for each in steps]) > BUNDLES_MAX * 4:
        longest = max(range(len(steps)), key=lambda index: len(steps[index]))
        steps[longest] = sorted({0, steps[longest][-1], *steps[longest][::2]})
    grid = np.array(list(product(*steps)), dtype=np.int64).reshape(-1, len(renews))
    more = np.maximum(grid - np.array(renews), 0).sum(axis=1)
    return grid[more <= waits]


def _powers(count: int) -> list[int]:
    """1, 2, 4, ... and the number itself."""
    return sorted({min(1 << power, count) for power in range(count.bit_length() + 1)}) if count else []


def _sums(values: Floats | Ints) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.concatenate([[0], np.cumsum(values)])
