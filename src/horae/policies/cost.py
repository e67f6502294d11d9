"""Policies that weigh speed against the price of GPUs: throughput per dollar, and minimum cost with deadlines."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import ClassVar

import numpy as np

from horae.model.arrays import Bools, Floats, Ints
from horae.model.decisions import Limit, Shares
from horae.model.errors import PolicyError
from horae.model.view import View
from horae.solvers.classes import Classes, collapse
from horae.solvers.deadlines import SLACK, keep_most
from horae.solvers.solution import Answer, Unsolved, evidence_of
from horae.solvers.space_sharing.objectives import share_throughput
from horae.solvers.total_value import largest_total

OBJECTIVE = "steps per second of all jobs, each over the dollars per hour of the GPU type"


@dataclass(frozen=True)
class ThroughputPerDollar:
    """Throughput per dollar (Gavel, OSDI'20, section 4.2): a step on a cheap GPU counts for more than on a costly one.

    A job's speed on a type is divided by the price of one GPU of that type. Where no type of the pool has a price, all
    have the same. Prices for only some of the types are an error, because a free type would outweigh any priced one.
    """

    name: ClassVar[str] = "throughput-per-dollar"
    sharing: bool = False  # let two jobs share GPUs where that increases the value

    def decide(self, view: View) -> Shares:
        classes = collapse(view, view.jobs.speed)
        if self.sharing:
            return share_throughput(view, speed_per_dollar(view, classes)[classes.member], OBJECTIVE)
        answer = largest_total("throughput per dollar", classes, speed_per_dollar(view, classes))
        if answer is None:
            raise Unsolved("throughput per dollar", "no shares at all are feasible")
        return Shares(classes.by_job(answer.fraction), evidence=evidence_of(OBJECTIVE, answer, classes))


def speed_per_dollar(view: View, classes: Classes) -> Floats:
    """By class and option: steps per second over the price of one GPU of the type."""
    return classes.speed / prices_of(view)[classes.accelerator]


def prices_of(view: View) -> Floats:
    """By accelerator: dollars per hour of one GPU; 1 where no type has a price, or there are no GPUs."""
    here = view.capacity > 0
    price = view.price_per_hour if len(view.price_per_hour) else np.zeros(len(here))
    priced = here & (price > 0)
    if not priced.any():
        return np.ones(len(here))
    if not priced[here].all():
        missing = ", ".join(view.accelerators[number] for number in np.flatnonzero(here & ~priced))
        known = ", ".join(view.accelerators[number] for number in np.flatnonzero(priced))
        raise PolicyError(
            f"{missing}: no price, while {known} has one, and steps per dollar cannot be compared",
            field="price",
            remedy="give every GPU type of the pool a positive price per hour, or none",
        )
    return np.where(priced, price, 1.0)


_PROBLEM = "throughput per dollar with deadlines"
_HAIR = 1e-9  # relative: a deadline that can just be met at full speed is not dropped because of rounding


@dataclass(frozen=True)
class MinCost:
    """Maximum steps per dollar while meeting deadlines (Gavel, OSDI'20, section 4.2: minimise cost with SLOs).

    A job that has a deadline and steps left must run at least so fast that it is done in time. Where not all deadlines
    can be met, as many as possible are, then those with the best total; among equal jobs the first to arrive. Jobs
    whose deadline is dropped are reported and take part as if they had none, as do jobs of unknown length.
    """

    name: ClassVar[str] = "min-cost"
    uses_lengths: ClassVar[bool] = True
    sharing: bool = False  # let two jobs share GPUs where that adds value; deadlines are dropped without regard to it

    def decide(self, view: View) -> Shares:
        need = needed_speed(view)
        classes = collapse(view, view.jobs.speed, state=need[:, None])
        wanted, fastest = need[classes.first], classes.speed.max(axis=1, initial=0.0)
        floor = np.where(wanted <= fastest * (1 + _HAIR), np.minimum(wanted, fastest), 0.0)
        classes, kept, answer = _with_deadlines(view, classes, floor)
        evidence = evidence_of(OBJECTIVE, answer, classes)
        shares = Shares(classes.by_job(answer.fraction), evidence=evidence)
        if self.sharing:
            value = speed_per_dollar(view, classes)[classes.member]
            shares = share_throughput(view, value, OBJECTIVE, floor=np.where(kept, need, 0.0))
            evidence = shares.evidence or evidence
        dropped = (need > 0) & ~kept & (evidence.limit != int(Limit.NOWHERE))
        return shares._replace(
            # The speed needed changes every second, and with it the set of deadlines that can be met.
            stands_until=view.now if (floor > 0).any() else inf,
            evidence=evidence._replace(limit=np.where(dropped, int(Limit.DROPPED), evidence.limit)),
        )


def needed_speed(view: View) -> Floats:
    """By row: steps per second needed from now on to meet the deadline; 0 without one, infinite where it has passed."""
    jobs = view.jobs
    left = np.where(np.isfinite(jobs.deadline_at), np.nan_to_num(jobs.steps_left, nan=0.0), 0.0)
    seconds = np.where(np.isfinite(jobs.deadline_at), jobs.deadline_at - view.now, 1.0)
    in_time = seconds > 0
    return np.where(in_time, left / np.where(in_time, seconds, 1.0), np.where(left > 0, inf, 0.0))


def _with_deadlines(view: View, classes: Classes, floor: Floats) -> tuple[Classes, Bools, Answer]:
    """The classes, split into jobs kept and dropped; by row, whether its deadline is met; and the optimal shares."""
    answer = largest_total(_PROBLEM, classes, speed_per_dollar(view, classes), floor)
    if answer is not None:
        return classes, (floor > 0)[classes.member], answer
    chosen = keep_most(classes, speed_per_dollar(view, classes), floor)
    kept = _place_in_class(classes.member, view.jobs.serial) < chosen.jobs[classes.member]
    parts = collapse(view, view.jobs.speed, state=np.column_stack([classes.member, kept]).astype(np.float64))
    floors = np.where(kept[parts.first], floor[classes.member[parts.first]], 0.0)
    value = speed_per_dollar(view, parts)
    answer = largest_total(_PROBLEM, parts, value, floors) or largest_total(_PROBLEM, parts, value, floors, SLACK)
    if answer is None:
        raise Unsolved(_PROBLEM, "deadlines that were found to go together do not")
    return parts, kept, answer._replace(bound=max(chosen.bound, answer.value))


def _place_in_class(member: Ints, serial: Ints) -> Ints:
    """By row: how many jobs of its class were submitted before it."""
    order = np.lexsort((serial, member))
    first = np.searchsorted(member[order], member[order], side="left")
    place = np.empty(len(member), dtype=np.int64)
    place[order] = np.arange(len(member)) - first
    return place
