"""Throughput per dollar (Gavel, OSDI'20, section 4.2): steps on a cheap GPU count for more than steps on a dear one.

A job's speed on a type is divided by the price of one GPU of that type. Where no type of the pool has a price, all have
the same; where only some have, the others were forgotten, for nothing is worth more than any number of free steps.
"""

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

OBJECTIVE = "steps a second of all jobs, each over the dollars an hour of the GPU type"


@dataclass(frozen=True)
class ThroughputPerDollar:
    name: ClassVar[str] = "throughput-per-dollar"
    sharing: bool = False  # let two jobs share GPUs where that is worth more

    def decide(self, view: View) -> Shares:
        classes = collapse(view, view.jobs.speed)
        if self.sharing:
            return share_throughput(view, speed_per_dollar(view, classes)[classes.member], OBJECTIVE)
        answer = largest_total("throughput per dollar", classes, speed_per_dollar(view, classes))
        if answer is None:
            raise Unsolved("throughput per dollar", "no shares at all are feasible")
        return Shares(classes.by_job(answer.fraction), evidence=evidence_of(OBJECTIVE, answer, classes))


def speed_per_dollar(view: View, classes: Classes) -> Floats:
    """By class and option: steps a second over the price of one GPU of the type."""
    return classes.speed / prices_of(view)[classes.accelerator]


def prices_of(view: View) -> Floats:
    """By accelerator: dollars an hour of one GPU; 1 where nobody asks for any, or there are no GPUs."""
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
            remedy="give every GPU type of the pool a positive price an hour, or none",
        )
    return np.where(priced, price, 1.0)


# Most steps a dollar, with deadlines kept (Gavel, OSDI'20, section 4.2: minimise cost with SLOs).

_PROBLEM = "throughput per dollar with deadlines"
_HAIR = 1e-9  # relative: a deadline that can just be kept at full speed is not given up for rounding


@dataclass(frozen=True)
class MinCost:
    name: ClassVar[str] = "min-cost"
    sharing: bool = False  # let two jobs share GPUs where that is worth more; whom to drop is settled without

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
            # What is needed changes with every second, and with it who can be helped.
            stands_until=view.now if (floor > 0).any() else inf,
            evidence=evidence._replace(limit=np.where(dropped, int(Limit.DROPPED), evidence.limit)),
        )


def needed_speed(view: View) -> Floats:
    """By row: steps a second from now on, to be done in time; 0 without a deadline, endless where it has passed."""
    jobs = view.jobs
    left = np.where(np.isfinite(jobs.deadline_at), np.nan_to_num(jobs.steps_left, nan=0.0), 0.0)
    seconds = np.where(np.isfinite(jobs.deadline_at), jobs.deadline_at - view.now, 1.0)
    in_time = seconds > 0
    return np.where(in_time, left / np.where(in_time, seconds, 1.0), np.where(left > 0, inf, 0.0))


def _with_deadlines(view: View, classes: Classes, floor: Floats) -> tuple[Classes, Bools, Answer]:
    """The classes, now cut into those kept and those dropped; by row, whose deadline is kept; and the best shares."""
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
    """By row: how many jobs of its class came before it."""
    order = np.lexsort((serial, member))
    first = np.searchsorted(member[order], member[order], side="left")
    place = np.empty(len(member), dtype=np.int64)
    place[order] = np.arange(len(member)) - first
    return place
