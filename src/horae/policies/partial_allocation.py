"""Partial allocation (Cole, Gkatzelis and Goel, EC'13): strategy-proof; part of the GPUs idles.

The shares with the largest Nash welfare come first. Then each job keeps only the fraction of its own that compensates
for what it takes from the others:

    kept(i) = product over j other than i of (speed(j) / speed(j) if i were not there) ^ (weight(j) / weight(i))

which is exp((W(others, with i) - W(others, without i)) / weight(i)) of their welfare W = sum of weight x log(speed).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from horae.model.arrays import Bools, Floats
from horae.model.decisions import Shares
from horae.model.view import View
from horae.solvers.classes import Classes, collapse
from horae.solvers.nash_welfare import InteriorPoint, Market, Optimum, half_way, largest_welfare
from horae.solvers.solution import Answer, evidence_of

_OBJECTIVE = "the geometric mean speed of all jobs, of their equal shares, before each gives back its part"
_CELLS_MAX = 4_000_000  # numbers in a batch of markets; more would only fill the memory
_HALF_WAY = 1e-4  # of the mean weight: from there it is five steps to the optimum without one of the jobs
_UNWANTED = 1e-7  # of a job's largest share: an interior point represents zero by less than this
_SLACK = 1e-6  # relative: below this a type is not fully allocated, and a further GPU is worth nothing


@dataclass(frozen=True)
class PartialAllocation:
    name: ClassVar[str] = "partial-allocation"

    def decide(self, view: View) -> Shares:
        classes = collapse(view, view.jobs.speed)
        served = classes.served
        fraction = np.zeros(classes.choice.shape)
        if not served.any():
            nothing = Answer(fraction, 0.0, 0.0, np.zeros(len(classes.capacity)))
            return Shares(classes.by_job(fraction), evidence=evidence_of(_OBJECTIVE, nothing, classes))
        market, jobs = _market(classes, served), classes.jobs[served]
        start = half_way(market, jobs[None, :], _HALF_WAY * float(market.weight.mean()))
        best = largest_welfare(market, jobs[None, :], start, market.weight.min(keepdims=True))
        shares = best.point.fraction[0]
        shares = np.where(market.choice & (shares > _UNWANTED * shares.max(axis=1, keepdims=True)), shares, 0.0)
        fraction[served] = shares
        answer = _answer(classes, market, fraction, best)
        fraction[served] = shares * kept_parts(market, jobs, best, start)[:, None]
        evidence = evidence_of(_OBJECTIVE, answer, classes, time=fraction.sum(axis=1))
        return Shares(classes.by_job(fraction), evidence=evidence)


def kept_parts(market: Market, jobs: Floats, best: Optimum, start: InteriorPoint) -> Floats:
    """By class: the fraction of its shares that a job keeps; leaving out any one job of a class is the same."""
    own = market.weight * np.log(market.pace(best.point.fraction)[0])
    without = np.empty(len(jobs))
    options, types = market.used.shape[1:]
    batch = max(1, _CELLS_MAX // (len(jobs) * options * (options + types + 1)))
    for first in range(0, len(jobs), batch):
        left_out = np.arange(first, min(first + batch, len(jobs)))
        others = np.repeat(jobs[None, :], len(left_out), axis=0)
        others[np.arange(len(left_out)), left_out] -= 1
        points = InteriorPoint(*(np.repeat(part, len(left_out), axis=0) for part in start))
        points = points._replace(gpus_left=market.capacity - market.given(others, points.fraction))
        without[left_out] = largest_welfare(market, others, points, market.weight[left_out]).value
    # Other jobs never gain from a job's presence; a positive difference is rounding.
    kept: Floats = np.exp(np.minimum((best.value[0] - own - without) / market.weight, 0.0))
    return kept


def _market(classes: Classes, served: Bools) -> Market:
    """The market in units of the largest speed and weight: that changes no share, and keeps numbers near 1."""
    choice, speed, weight = classes.choice[served], classes.speed[served], classes.weight[served]
    used = np.zeros((*choice.shape, len(classes.capacity)))
    row, option = np.nonzero(choice)
    used[row, option, classes.accelerator[served][row, option]] = classes.gpus[served][row, option]
    wanted = used.any(axis=(0, 1))
    capacity = np.where(wanted, classes.capacity, 1.0)  # a type that no job can use gets some, so that logarithms exist
    return Market(speed / speed.max(axis=1, keepdims=True), choice, used, weight / weight.max(), capacity)


def _answer(classes: Classes, market: Market, fraction: Floats, best: Optimum) -> Answer:
    """The answer, with welfare as a mean of speeds and the prices of GPUs in that unit."""
    served = classes.served
    jobs, weight = classes.jobs[served], market.weight
    total = float(jobs @ weight)
    unit = float(jobs @ (weight * np.log(classes.speed[served].max(axis=1) / classes.equal_speed[served])))
    value, bound = (float(np.exp((welfare + unit) / total)) for welfare in (best.value[0], best.bound[0]))
    given = market.given(jobs[None, :], best.point.fraction)[0]
    prices = np.where(given >= market.capacity * (1 - _SLACK), best.point.gpu_price[0] * value / total, 0.0)
    return Answer(fraction, value, bound, prices)
