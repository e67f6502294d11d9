"""Greedy allocation by app: the form in which the evaluation of Themis (NSDI'20, section 8) ran its baselines.

At each decision every app reports one scalar and GPUs go greedily to the best, gang by gang. A winner has its gang for
the length of a lease; a job under a lease that has not ended keeps its GPUs, which count as GPUs of its app, and a job
whose lease has ended contends like the others. All remaining jobs follow the winners in order, also with a lease, so
that no GPU idles that a job could use.

Since every running job has a lease, and every lease that has ended is renewed or lost at a decision, nothing can change
between two ends of leases unless an event happens. A lease that begins with a decision or later, when others have left,
ends a full length after the decision at the earliest: the answer stands until then.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heapreplace
from math import inf
from typing import NamedTuple, TypeAlias

import numpy as np

from horae.model.arrays import Bools, Floats, Ints
from horae.model.decisions import Grants, Ranking
from horae.model.errors import bounded
from horae.model.view import View
from horae.policies.elastic.sizes import gpus_left

# The scalar of an app (by position) with so many GPUs, for a gang of so many more (of that row): larger is better.
Scalar: TypeAlias = Callable[[int, float, int, int], float]


class Contention(NamedTuple):
    """The jobs that contend at a decision, and the GPUs they contend for."""

    apps: Ints  # the numbers of the apps
    app: Ints  # by row: the position of its app
    contends: Bools  # by row
    offers: Bools  # by row and option: the options on offer; a running job may only keep its own
    gpus_left: list[int]  # by accelerator: GPUs that are free or held by contending jobs
    app_gpus: list[float]  # by app: GPUs of its jobs that keep theirs


class Win(NamedTuple):
    row: int
    option: int  # the first of its shapes that has room


def field_of(view: View) -> Contention:
    jobs = view.jobs
    apps, app = np.unique(jobs.app, return_inverse=True)
    accelerator = view.shape_accelerator[jobs.shape]
    offers = (jobs.shape >= 0) & (accelerator >= 0)
    held = np.flatnonzero(jobs.running)
    offers[held] = False
    # A running job may only keep its present option, and a type without usable GPUs is in no auction.
    offers[held, jobs.option[held]] = accelerator[held, jobs.option[held]] >= 0
    keeps = jobs.on_gpus & ~jobs.contestable
    app_gpus = np.bincount(app[keeps], jobs.held_gpus[keeps], minlength=len(apps))
    left = gpus_left(view, jobs.contestable)
    return Contention(apps, app, jobs.pending | jobs.contestable, offers, left.tolist(), app_gpus.tolist())


def by_app(view: View, field: Contention, amount: Floats | Ints) -> Floats:
    """By app: the sum of an amount over its jobs, added in an order that does not depend on the order of rows."""
    order = np.argsort(view.jobs.serial)
    return np.bincount(field.app[order], amount[order], minlength=len(field.apps)).astype(np.float64)


def longest_first(view: View) -> Ints:
    """All rows in the order in which their apps would start them: running jobs first, then by most work left."""
    jobs = view.jobs
    return np.lexsort((jobs.serial, -jobs.seconds_left, ~jobs.running))


def greedy(view: View, field: Contention, scalar: Scalar, order: Ints, lease_seconds: float) -> Grants:
    """Allocate gang by gang to the app with the largest scalar.

    `order` has all rows; within an app they are served in this order.
    """
    contenders = order[field.contends[order]]
    contenders = contenders[np.argsort(field.app[contenders], kind="stable")]
    first = np.searchsorted(field.app[contenders], np.arange(len(field.apps) + 1))
    run = _Run(view, field, contenders, first)
    # Ties go to the app submitted first: numbers are assigned in that order.
    heap = [
        (-scalar(app, run.app_gpus[app], run.gang[at], run.row[at]), app) for app, at in enumerate(run.at) if at >= 0
    ]
    heapify(heap)
    for _ in bounded(len(contenders) + len(heap) + 1, "serving apps gang by gang"):
        if not heap:
            break
        app = heap[0][1]
        if run.serve(app):
            at = run.at[app]
            heapreplace(heap, (-scalar(app, run.app_gpus[app], run.gang[at], run.row[at]), app))
        else:
            heappop(heap)
    return grants(view, field, run.wins, _rest(field, scalar, order, run), lease_seconds)


class _Run:
    """The GPUs and contenders left during allocation; plain numbers are fastest for a few hundred small steps."""

    def __init__(self, view: View, field: Contention, contenders: Ints, first: Ints) -> None:
        jobs, shape = view.jobs, view.jobs.shape[contenders]
        self.offers = field.offers[contenders]
        self.kind, self.size = view.shape_accelerator[shape], view.shape_gpus[shape]
        self.row: list[int] = contenders.tolist()
        self.accelerator = np.where(self.offers, self.kind, -1).tolist()
        self.gpus = self.size.tolist()
        self.fits: list[bool] = [True] * len(contenders)  # as of the last check
        self.gang: list[int] = np.where(jobs.running, jobs.held_gpus, jobs.gpus)[contenders].tolist()
        self.gpus_left = list(field.gpus_left)
        self.app_gpus = list(field.app_gpus)
        self.start: list[int] = first[:-1].tolist()
        self.stop: list[int] = first[1:].tolist()
        self.at = [at if at < stop else -1 for at, stop in zip(self.start, self.stop, strict=True)]
        self.wins: list[Win] = []

    def serve(self, app: int) -> bool:
        """Allocate the next gang of the app that fits; return whether the app has another after that."""
        at, stop = self.at[app], self.stop[app]
        for _ in bounded(stop - at + 2, "looking for the next gang of an app"):
            if True not in self.fits[at:stop]:
                break
            at = self.fits.index(True, at, stop)
            option = self._option(at)
            if option < 0:
                self._look_again()
                continue
            gpus = self.gpus[at][option]
            self.gpus_left[self.accelerator[at][option]] -= gpus
            self.app_gpus[app] += gpus
            self.wins.append(Win(self.row[at], option))
            self.at[app] = at + 1
            return at + 1 < stop and any(self.gpus_left)
        return False

    def _look_again(self) -> None:
        """Drop the contenders that do not fit: they never will, because what is left only shrinks."""
        enough = self.offers & (self.kind >= 0) & (self.size <= np.array(self.gpus_left)[self.kind])
        self.fits = np.logical_or.reduce(enough, axis=1).tolist()

    def _option(self, at: int) -> int:
        for option, (accelerator, gpus) in enumerate(zip(self.accelerator[at], self.gpus[at], strict=True)):
            if accelerator >= 0 and self.gpus_left[accelerator] >= gpus:
                return option
        return -1


def _rest(field: Contention, scalar: Scalar, order: Ints, run: _Run) -> Ints:
    """All rows by the final scalars of their apps, each for its next gang that has not won."""
    won = np.zeros(len(order), dtype=bool)
    won[[win.row for win in run.wins]] = True
    waiting = [(app, at) for app, at in enumerate(_next_gangs(run, won)) if at >= 0]
    score = np.full(len(field.apps), -inf)
    for app, at in waiting:
        score[app] = scalar(app, run.app_gpus[app], run.gang[at], run.row[at])
    place = np.empty(len(field.apps), dtype=np.int64)
    place[np.argsort(-score, kind="stable")] = np.arange(len(field.apps))
    return order[np.argsort(place[field.app[order]], kind="stable")]


def _next_gangs(run: _Run, won: Bools) -> list[int]:
    """By app: the position of its first contender that has won nothing; -1: none."""
    is_won = won[run.row].tolist()
    return [
        next((at for at in range(start, stop) if not is_won[at]), -1)
        for start, stop in zip(run.start, run.stop, strict=True)
    ]


def grants(view: View, field: Contention, wins: list[Win], rest: Ints, lease_seconds: float) -> Grants:
    """Grants for the winners in turn, then for all rows.

    A winner is listed with the shape that had room and then with its less preferred ones.
    """
    rows = np.array([win.row for win in wins], dtype=np.int64)
    first = np.array([win.option for win in wins], dtype=np.int64)
    named = field.offers[rows] & (np.arange(view.jobs.shape.shape[1]) >= first[:, None])
    place, option = np.nonzero(named)
    ranking = Ranking(rest, preemptive=True, stands_until=view.now + lease_seconds)
    return Grants(rows[place], option, np.full(len(place), lease_seconds), ranking, rest_lease_seconds=lease_seconds)
