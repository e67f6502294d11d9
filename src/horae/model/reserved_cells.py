"""Resolves the places of pinned cells: a node, a named cell above nodes, or a cell inside a node.

`n07` is a node; `r2` or `rack/r2` the cell of that name above nodes, with its level where several cells share the name;
`n07/socket/1` a cell inside a node, by its level and its index there, from 0, and `n07/gpu/3` one GPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from horae.model.arrays import Ints
from horae.model.chains import CellKind, Chain, Pin
from horae.model.cluster import NODE, Cluster, Node
from horae.model.errors import ClusterError

FIELD = "pinned"
_NOTATION = "name a node (n07), a cell above nodes (r2 or rack/r2), or one inside a node (n07/socket/1)"


class Pinning:
    def __init__(self, cluster: Cluster, chains: Sequence[Chain], gpus: Sequence[Ints]) -> None:
        self._cluster = cluster
        self._chains = chains
        self._place = np.empty((cluster.gpu_count, 2), dtype=np.int64)  # by GPU: chain, and number in the chain
        for chain, numbers in enumerate(gpus):
            self._place[numbers, 0] = chain
            self._place[numbers, 1] = np.arange(len(numbers))

    def pins(self, pinned: Mapping[str, Mapping[str, str]]) -> tuple[Pin, ...]:
        """All pinned cells, each named by tenant and name: nlp/gold. Raises an error if two of them overlap."""
        found: list[Pin] = []
        places: list[str] = []
        for tenant, mine in pinned.items():
            for name, place in mine.items():
                pin = Pin(f"{tenant}/{name}", *self._find(place, f"tenant {tenant!r} pins {place!r} as {name!r}"))
                for other, taken in zip(found, places, strict=True):
                    if self._overlap(pin, other):
                        problem = f"tenant {tenant!r} pins {place!r} as {name!r}, which overlaps {other.name} ({taken})"
                        raise _error(problem, "pin cells that are apart")
                found.append(pin)
                places.append(place)
        return tuple(found)

    def _overlap(self, one: Pin, other: Pin) -> bool:
        if one.kind.chain != other.kind.chain:
            return False
        fine, coarse = sorted((one, other), key=lambda pin: pin.kind.level)
        chain = self._chains[one.kind.chain]
        return chain.cell_in(fine.kind.level, fine.cell, coarse.kind.level) == coarse.cell

    def _find(self, place: str, subject: str) -> tuple[CellKind, int]:
        if place in self._cluster.node_index:
            return self._in_node(place, NODE, 0, subject)
        groups = [(level, name) for level, name in self._groups if place in (name, f"{level}/{name}")]
        if len(groups) > 1:
            several = " or ".join(f"{level}/{name}" for level, name in groups)
            raise _error(f"{subject}, of which there are several", f"use {several}")
        if groups:
            return self._group(*groups[0], subject)
        rest, _, number = place.rpartition("/")
        node, _, level = rest.rpartition("/")
        if number.isdecimal() and node in self._cluster.node_index:
            return self._in_node(node, level, int(number), subject)
        raise _error(f"{subject}, which does not exist", _NOTATION)

    @cached_property
    def _groups(self) -> Mapping[tuple[str, str], list[Node]]:
        found: dict[tuple[str, str], list[Node]] = {}
        for node in self._cluster.nodes:
            for group in node.groups:
                found.setdefault(group, []).append(node)
        return found

    def _group(self, level: str, name: str, subject: str) -> tuple[CellKind, int]:
        nodes = self._groups[level, name]
        gpus = np.concatenate([np.arange(self._cluster.gpu_count)[self._cluster.gpus_of_node(n.name)] for n in nodes])
        index, first = (int(number) for number in self._place[gpus[0]])
        chain = self._chains[index]
        if level in chain.types:
            kind = CellKind(index, chain.types.index(level))
            cell = first // chain.gpus[kind.level]
            here = self._place[gpus]
            if (here[:, 0] == index).all() and (here[:, 1] // chain.gpus[kind.level] == cell).all():
                return kind, cell
        raise _error(f"{subject}, whose nodes are not all alike, so that it is no cell", "pin cells or nodes inside it")

    def _in_node(self, node: str, level: str, number: int, subject: str) -> tuple[CellKind, int]:
        start = self._cluster.gpus_of_node(node).start
        index, first = (int(value) for value in self._place[start])
        chain = self._chains[index]
        inside = chain.types[: chain.node_level + 1]
        if level not in inside:
            raise _error(f"{subject}, but that node has no level {level!r}", f"use {', '.join(inside[:-1])}")
        kind = CellKind(index, inside.index(level))
        count = chain.node_gpus // chain.gpus[kind.level]
        if not 0 <= number < count:
            raise _error(f"{subject}, but that node has {count} of {level}", f"give a number from 0 to {count - 1}")
        return kind, first // chain.gpus[kind.level] + number


def _error(problem: str, remedy: str) -> ClusterError:
    return ClusterError(problem, field=FIELD, remedy=remedy)


# Cells by name: the chains in which a tenant's cells are reserved

NamedCells = Mapping[str, Mapping[CellKind, int]]  # by name as given


class _Request(NamedTuple):
    tenant: str
    name: str
    wanted: int
    kinds: tuple[CellKind, ...]  # one for each chain in which it may be reserved


def cells_named(
    chains: Sequence[Chain], reserved: Mapping[str, Mapping[str, int]], pins: Sequence[Pin] = ()
) -> dict[str, NamedCells]:
    """By tenant and name: the number of cells of each kind.

    Cells of explicitly named chains are not checked for capacity.
    """
    requests = [
        _Request(tenant, name, count, _matching(chains, tenant, name, count))
        for tenant, wanted in reserved.items()
        for name, count in wanted.items()
    ]
    room = _Room(chains, pins)
    for request in requests:
        if len(request.kinds) == 1:
            room.take(request.kinds[0], request.wanted)
    shared = [request for request in requests if len(request.kinds) > 1 and request.wanted]
    shared.sort(key=lambda request: -max(chains[chain].gpus[level] for chain, level in request.kinds))
    found: dict[str, dict[str, dict[CellKind, int]]] = {tenant: {} for tenant in reserved}
    splits = dict(zip(((each.tenant, each.name) for each in shared), _split(shared, room), strict=True))
    for request in requests:
        split = splits.get((request.tenant, request.name), (request.wanted,))
        by_kind = {kind: count for kind, count in zip(request.kinds, split, strict=bool(request.wanted)) if count}
        found[request.tenant][request.name] = by_kind
    return {tenant: dict(by_name) for tenant, by_name in found.items()}


def _matching(chains: Sequence[Chain], tenant: str, name: str, count: int) -> tuple[CellKind, ...]:
    chain_name, _, level = name.rpartition(".")
    if count < 0:
        raise ClusterError(f"tenant {tenant!r} reserves {count} of {name!r}", remedy="give 0 or more")
    with_level = [(index, chain) for index, chain in enumerate(chains) if level in chain.types]
    by_chain = [index for index, chain in with_level if chain.name.lower() == chain_name.lower()]
    by_type = [index for index, chain in with_level if chain.accelerator.lower() == chain_name.lower()]
    if by_chain or by_type:
        return tuple(CellKind(index, chains[index].types.index(level)) for index in by_chain or by_type)
    if not count:  # of a kind that has since left the cluster
        return ()
    known = ", ".join(f"{chain.name}.{{{', '.join(chain.types)}}}" for chain in chains)
    raise ClusterError(f"tenant {tenant!r} reserves {name!r}, which does not exist", remedy=f"use {known}")


class _Room:
    """By chain and level: cells still available for reservations."""

    def __init__(self, chains: Sequence[Chain], pins: Sequence[Pin]) -> None:
        self.chains = chains
        self.left = [[chain.cells(level) for level in range(len(chain.types))] for chain in chains]
        for index, chain in enumerate(chains):
            for level, size in enumerate(chain.gpus):
                touched: set[int] = set()
                for (where, _), first, gpus in _ranges(chains, pins):
                    if where == index:
                        touched.update(range(first // size, (first + gpus - 1) // size + 1))
                self.left[index][level] -= len(touched)

    def take(self, kind: CellKind, count: int) -> None:
        gpus = self.chains[kind.chain].gpus
        for below in range(kind.level + 1):
            self.left[kind.chain][below] -= count * (gpus[kind.level] // gpus[below])

    def cells(self, kind: CellKind) -> int:
        """How many more cells of this kind could be reserved."""
        gpus, left = self.chains[kind.chain].gpus, self.left[kind.chain]
        return max(0, min(left[below] // (gpus[kind.level] // gpus[below]) for below in range(kind.level + 1)))


def _ranges(chains: Sequence[Chain], pins: Sequence[Pin]) -> Iterator[tuple[CellKind, int, int]]:
    """For each pinned cell: its kind, its first GPU in the chain, and its number of GPUs."""
    for pin in pins:
        gpus = chains[pin.kind.chain].gpus[pin.kind.level]
        yield pin.kind, pin.cell * gpus, gpus


def _split(requests: Sequence[_Request], room: _Room) -> list[tuple[int, ...]]:
    before = [list(left) for left in room.left]
    found = []
    for request in requests:
        each = [room.cells(kind) for kind in request.kinds]
        if sum(each) < request.wanted:
            room.left = before
            return _nearest(requests, room, request, each)
        found.append(proportional(request.wanted, each))
        for kind, count in zip(request.kinds, found[-1], strict=True):
            room.take(kind, count)
    return found


def proportional(count: int, weights: Sequence[int]) -> tuple[int, ...]:
    """Integers proportional to the weights with this sum, by largest remainders; ties go to the first."""
    total = sum(weights)
    parts = [count * weight // total for weight in weights]
    remainder = [count * weight % total for weight in weights]
    for index in sorted(range(len(weights)), key=lambda index: (-remainder[index], index))[: count - sum(parts)]:
        parts[index] += 1
    return tuple(parts)


def _nearest(requests: Sequence[_Request], room: _Room, short: _Request, left: Sequence[int]) -> list[tuple[int, ...]]:
    """The division in which all requests fit, with each number in turn as close to its proportion as the rest
    allows."""
    fixed: dict[tuple[int, int], int] = {}
    if _least(requests, room, fixed) is None:
        there = ", ".join(
            f"{count} in {room.chains[kind.chain].name}" for kind, count in zip(short.kinds, left, strict=True)
        )
        raise ClusterError(
            f"tenant {short.tenant!r} reserves {short.wanted} of {short.name!r}, of which {there} are left",
            field="cells",
            remedy="promise fewer cells, or add hardware",
        )
    found = []
    for number, request in enumerate(requests):
        whole = [room.cells(kind) for kind in request.kinds]
        goal = proportional(request.wanted, whole)
        for place in range(len(request.kinds)):
            fixed[number, place] = _near(requests, room, fixed, (number, place), goal[place])
        found.append(tuple(fixed[number, place] for place in range(len(request.kinds))))
    return found


def _near(
    requests: Sequence[_Request], room: _Room, fixed: Mapping[tuple[int, int], int], place: tuple[int, int], goal: int
) -> int:
    """The number of cells nearest to the goal with which the rest still fits; the smaller one on a tie."""
    low, high = (sign * (_least(requests, room, fixed, place, sign) or 0) for sign in (1, -1))
    tries = sorted(range(low, high + 1), key=lambda count: (abs(count - goal), count))
    return next(count for count in tries if _least(requests, room, {**fixed, place: count}) is not None)


def _least(
    requests: Sequence[_Request],
    room: _Room,
    fixed: Mapping[tuple[int, int], int],
    place: tuple[int, int] | None = None,
    sign: int = 1,
) -> int | None:
    """The least of sign times the number of cells at a place (request and chain) with which all requests are met,
    with these numbers given; 0 without a place, and None if they cannot be met."""
    from scipy.optimize import Bounds, LinearConstraint, milp  # noqa: PLC0415  (slow to import, and rarely needed)

    places = [(number, where) for number, each in enumerate(requests) for where in range(len(each.kinds))]
    kinds = [requests[number].kinds[where] for number, where in places]
    rows = [[float(of == number) for of, _ in places] for number in range(len(requests))]
    counts = [float(request.wanted) for request in requests]
    least, most = list(counts), list(counts)
    for chain, left in enumerate(room.left):
        gpus = room.chains[chain].gpus
        for level, cells in enumerate(left):
            uses = [gpus[k.level] // gpus[level] if k.chain == chain and k.level >= level else 0 for k in kinds]
            rows.append([float(use) for use in uses])
            least.append(-np.inf)
            most.append(float(max(cells, 0)))
    given = [fixed.get(each) for each in places]
    answer = milp(
        np.array([float(sign * (each == place)) for each in places]),
        integrality=np.ones(len(places), dtype=np.int64),
        bounds=Bounds(
            [float(count or 0) for count in given],
            [
                float(requests[number].wanted if count is None else count)
                for (number, _), count in zip(places, given, strict=True)
            ],
        ),
        constraints=LinearConstraint(np.array(rows), least, most),
    )
    return round(answer.fun) if answer.success else None
