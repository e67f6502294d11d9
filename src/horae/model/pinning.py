"""Where pinned cells are: a node, a named cell above nodes, or a cell inside a node.

`n07` is a node; `r2` or `rack/r2` the cell of that name above nodes, with its level where several cells are called so;
`n07/socket/1` a cell inside a node, by its level and its number there, from 0, and `n07/gpu/3` one GPU.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np

from horae.model.arrays import Ints
from horae.model.cells import NODE, Cluster, Node
from horae.model.chains import CellKind, Chain, Pin
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
        """All pinned cells, each called by its tenant and its name: nlp/gold. Two that overlap are an error."""
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
