"""Organisations within organisations: how a weight is passed down to those who can still use it.

A tenant's name is a path ("lab/vision/alice"), and each prefix of it an organisation. A weight is shared among the
members that are not full yet, jobs and organisations, in proportion to their own weights; so that of a full job passes
to its organisation, and that of a full organisation to its siblings. First come, first served: all of it goes to the
first job that is not full, however deep below that organisation it may be.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from horae.model.arrays import Bools, Floats, Ints

ALL = "*"
_NO_PARENT = -1
_Path = tuple[str, ...]


class Organisations(NamedTuple):
    """A tree; parents come before their children, and the first is the pool as a whole."""

    parent: Ints
    weight: Floats
    in_turn: Bools  # first come, first served
    of_tenant: Ints  # by tenant: the organisation that its jobs are members of; -1: has no jobs

    def paces(self, members: Members, full: Bools) -> Floats:
        """By class: the part of the pool's weight that each of its jobs has now."""
        active = ~full
        turn = members.first_in_turn(self, active)
        own = np.where(self.in_turn[members.organisation], turn, members.jobs * members.weight * active)
        direct = np.bincount(members.organisation, weights=own, minlength=len(self.parent))
        below = np.zeros(len(self.parent))  # weights of the organisations in it that have somebody who can rise
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
    """By class: where it belongs, and its claim there."""

    organisation: Ints
    jobs: Floats
    weight: Floats
    place: Ints  # in the order of arrival, over all

    def first_in_turn(self, organisations: Organisations, active: Bools) -> Floats:
        """1 for the first of each organisation that serves in turn, 0 for all others."""
        turn = np.zeros(len(active))
        waiting = np.flatnonzero(active & organisations.in_turn[self.organisation])
        waiting = waiting[np.argsort(self.place[waiting])]
        _, first = np.unique(self.organisation[waiting], return_index=True)
        turn[waiting[first]] = 1.0
        return turn


def organisations_of(
    tenants: tuple[str, ...], tenant_weight: Floats, present: Bools, weights: Mapping[str, float], fifo: tuple[str, ...]
) -> Organisations:
    """The tree of those tenants that are present; organisations below one that serves in turn are not told apart."""
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
    """The highest organisation on the way that serves in turn; if there is none, the tenant itself."""
    if all_in_turn:
        return path[:1]
    return next((path[:depth] for depth in range(1, len(path)) if path[:depth] in in_turn), path)
