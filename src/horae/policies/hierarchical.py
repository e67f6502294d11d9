"""Organisations with weights, and fairness or first come, first served within each (Gavel, OSDI'20, section 4.3).

The level of a job, its speed over that on an equal share, rises at a pace of its part of the weights over its GPUs. A
job that can no longer rise passes its weight on to its organisation, an organisation to its siblings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import ClassVar, NamedTuple

import numpy as np

from horae.model.arrays import Bools, Floats, Ints
from horae.model.decisions import Shares
from horae.model.errors import PolicyError
from horae.model.view import View
from horae.solvers.classes import collapse
from horae.solvers.solution import evidence_of
from horae.solvers.weighted_water_filling import rise


@dataclass(frozen=True)
class Hierarchical:
    name: ClassVar[str] = "hierarchical"
    # By path of an organisation, such as "lab/vision"; for those not named, the weight of the tenant of that name, or
    # 1.
    weights: Mapping[str, float] = field(default_factory=dict)
    fifo: str = ""  # comma-separated paths; their members are served first come, first served; "*": all

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
        # Where jobs are served in turn every job is a class of its own; elsewhere equal jobs of one organisation rise
        # together.
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


# Nested organisations: how a weight is passed down to the members that can still use it.

ALL = "*"
_NO_PARENT = -1
_Path = tuple[str, ...]


class Organisations(NamedTuple):
    """A tree of organisations; parents come before their children, and the first is the pool as a whole."""

    parent: Ints
    weight: Floats
    in_turn: Bools  # first come, first served
    of_tenant: Ints  # by tenant: the organisation that its jobs are members of; -1: has no jobs

    def paces(self, members: Members, full: Bools) -> Floats:
        """By class: the fraction of the pool's weight that each of its jobs has now."""
        active = ~full
        turn = members.first_in_turn(self, active)
        own = np.where(self.in_turn[members.organisation], turn, members.jobs * members.weight * active)
        direct = np.bincount(members.organisation, weights=own, minlength=len(self.parent))
        below = np.zeros(len(self.parent))  # weights of the child organisations that have a job that can rise
        for node in range(len(self.parent) - 1, 0, -1):
            if direct[node] + below[node] > 0:
                below[self.parent[node]] += self.weight[node]
        share = np.zeros(len(self.parent))
        share[0] = 1.0
        total = np.maximum(direct + below, np.finfo(float).tiny)
        for node in range(1, len(self.parent)):
            if direct[node] + below[node] > 0:
                share[node] = share[self.parent[node]] * self.weight[node] / total[self.parent[node]]
        unit = np.where(self.in_turn[members.organisation], turn, members.weight * active)
        pace: Floats = (share / total)[members.organisation] * unit
        return pace


class Members(NamedTuple):
    """By class: its organisation, its number of jobs, its weight and its place in the order of arrival."""

    organisation: Ints
    jobs: Floats
    weight: Floats
    place: Ints  # in the order of arrival, over all organisations

    def first_in_turn(self, organisations: Organisations, active: Bools) -> Floats:
        """By class: 1 for the first of each organisation that serves in turn, 0 for all others."""
        turn = np.zeros(len(active))
        waiting = np.flatnonzero(active & organisations.in_turn[self.organisation])
        waiting = waiting[np.argsort(self.place[waiting])]
        _, first = np.unique(self.organisation[waiting], return_index=True)
        turn[waiting[first]] = 1.0
        return turn


def organisations_of(
    tenants: tuple[str, ...], tenant_weight: Floats, present: Bools, weights: Mapping[str, float], fifo: tuple[str, ...]
) -> Organisations:
    """The tree of the tenants that are present; organisations below one that serves in turn are not distinguished."""
    in_turn = {_parts(path) for path in fifo if path != ALL}
    owners = {
        number: _owner(_parts(name), in_turn, ALL in fifo) for number, name in enumerate(tenants) if present[number]
    }
    paths = sorted({owner[:depth] for owner in owners.values() for depth in range(len(owner) + 1)} | {()})
    number_of = {path: number for number, path in enumerate(paths)}
    own_weight = {_parts(name): float(weight) for name, weight in zip(tenants, tenant_weight, strict=True)}
    own_weight |= {_parts(name): weight for name, weight in weights.items()}
    of_tenant = np.full(len(tenants), _NO_PARENT, dtype=np.int64)
    for number, owner in owners.items():
        of_tenant[number] = number_of[owner]
    return Organisations(
        parent=np.array([number_of[path[:-1]] if path else _NO_PARENT for path in paths], dtype=np.int64),
        weight=np.array([own_weight.get(path, 1.0) for path in paths]),
        in_turn=np.array([bool(path) and (ALL in fifo or path in in_turn) for path in paths]),
        of_tenant=of_tenant,
    )


def _parts(path: str) -> _Path:
    return tuple(part for part in path.split("/") if part)


def _owner(path: _Path, in_turn: set[_Path], all_in_turn: bool) -> _Path:
    """The highest organisation on the path that serves in turn; if there is none, the tenant itself."""
    if all_in_turn:
        return path[:1]
    return next((path[:depth] for depth in range(1, len(path)) if path[:depth] in in_turn), path)
