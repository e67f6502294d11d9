"""Throughput per dollar (Gavel, OSDI'20, section 4.2): steps on a cheap GPU count for more than steps on a dear one.

A job's speed on a type is divided by the price of one GPU of that type. Where no type of the pool has a price, all have
the same; where only some have, the others were forgotten, for nothing is worth more than any number of free steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from horae.model.arrays import Floats
from horae.model.decisions import Shares
from horae.model.errors import PolicyError
from horae.model.view import View
from horae.policies.solve.answers import Unsolved
from horae.policies.solve.classes import Classes, collapse
from horae.policies.solve.company import share_throughput
from horae.policies.solve.evidence import evidence_of
from horae.policies.solve.total import largest_total

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
