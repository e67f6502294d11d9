"""Organisations with weights, and fairness or first come, first served within each (Gavel, OSDI'20, section 4.3).

The level of a job, its speed over that on an equal share, rises at a pace of its part of the weights over its GPUs. Who
can rise no more passes its weight on: a job to its organisation, an organisation to its siblings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import ClassVar

import numpy as np

from horae.model.arrays import Bools, Floats
from horae.model.decisions import Shares
from horae.model.errors import PolicyError
from horae.model.view import View
from horae.policies.solve.classes import collapse
from horae.policies.solve.evidence import evidence_of
from horae.policies.solve.organisations import Members, Organisations, organisations_of
from horae.policies.solve.rising import rise


@dataclass(frozen=True)
class Hierarchical:
    name: ClassVar[str] = "hierarchical"
    # By path of an organisation, like "lab/vision"; for those not named, what the tenant of that name has, or else 1.
    weights: Mapping[str, float] = field(default_factory=dict)
    fifo: str = ""  # paths with commas between them; their members are served as they come; "*": all

    def __post_init__(self) -> None:
        for path, weight in self.weights.items():
            if not (weight > 0 and isfinite(weight)):
                raise PolicyError(
                    f"organisation {path!r} has weight {weight}", field="weights", remedy="give a positive number"
                )

    def decide(self, view: View) -> Shares:
        jobs = view.jobs
        tree = self._organisations(view)
        organisation = tree.of_tenant[jobs.tenant]
        order = np.lexsort((jobs.serial, jobs.submitted_at))
        place = np.empty(len(jobs), dtype=np.int64)
        place[order] = np.arange(len(jobs))
        # Where turns are taken every job is a class of its own; elsewhere equal jobs of one organisation rise together.
        label = np.where(tree.in_turn[organisation], len(tree.parent) + place, organisation)
        classes = collapse(view, jobs.speed, state=label[:, None].astype(np.float64))
        members = Members(organisation[classes.first], classes.jobs, classes.weight, place[classes.first])

        def pace(full: Bools) -> Floats:
            return tree.paces(members, full) / classes.gang

        equal_speed = np.maximum(classes.equal_speed, np.finfo(float).tiny)
        answer = rise(classes, classes.speed / equal_speed[:, None], pace)
        evidence = evidence_of("the level at which the first job is full, over its weight", answer, classes)
        return Shares(classes.by_job(answer.fraction), evidence=evidence)

    def _organisations(self, view: View) -> Organisations:
        present = np.zeros(len(view.tenants), dtype=np.bool_)
        present[view.jobs.tenant] = True
        fifo = tuple(path.strip() for path in self.fifo.split(",") if path.strip())
        return organisations_of(view.tenants, view.tenant_weight, present, self.weights, fifo)
