"""Shapes of gangs: a GPU type, a number of GPUs, and the level of the smallest cell that must hold the gang.

Shapes and demands are keys of many tables, so they are tuples, which hash fast.
"""

from __future__ import annotations

from math import lcm
from typing import NamedTuple


class Shape(NamedTuple):
    accelerator: str
    gpus: int
    level: str

    def __str__(self) -> str:
        return f"{self.gpus} x {self.accelerator} in one {self.level}"


class Option(NamedTuple):
    """A shape that a job accepts, with its estimated speed there."""

    shape: Shape
    steps_per_second: float


NO_NODE = ("",)  # as the nodes of a demand: it fits nowhere, because every node has a name


class Demand(NamedTuple):
    """Everything that placement must know about a job; jobs of equal demand have equal placements."""

    shapes: tuple[Shape, ...]  # in order of preference; the first is the reference shape
    member_gpus: int  # the gang is cut into members of this many GPUs (the last may be smaller); none spans nodes
    cpus_per_gpu: float
    memory_bytes_per_gpu: float
    members: tuple[int, ...] = ()  # GPUs of each, largest first, where `member_gpus` cannot say it (then the largest)
    nodes: tuple[str, ...] = ()  # the names of the nodes on which it may run, sorted; empty: all
    pinned: str = ""  # the pinned cell of its tenant in which it must run; "": none

    def beside(self, other: Demand) -> Demand:
        """The demand of two jobs sharing GPUs: the GPUs once, CPUs and memory of both, on nodes that both accept.

        The GPUs on one node must be whole members of either job. So the two count as members of a common multiple, or
        as the members of one job where the other has the same or is split into parts of which each of them is a
        multiple; otherwise as a single member. Jobs of different pinned cells never share.
        """
        member_gpus, members = self._common_members(other)
        return Demand(
            self.shapes,
            member_gpus,
            self.cpus_per_gpu + other.cpus_per_gpu,
            self.memory_bytes_per_gpu + other.memory_bytes_per_gpu,
            members,
            self._common_nodes(other),
            self.pinned,
        )

    def _common_members(self, other: Demand) -> tuple[int, tuple[int, ...]]:
        whole = max(shape.gpus for shape in self.shapes)
        if not self.members and not other.members:
            return min(lcm(self.member_gpus, other.member_gpus), whole), ()
        finer, coarser = (self, other) if other.members else (other, self)
        is_cut = not finer.members and all(gpus % finer.member_gpus == 0 for gpus in coarser.members)
        if is_cut or finer.members == coarser.members:
            return coarser.members[0], coarser.members
        return whole, ()

    def _common_nodes(self, other: Demand) -> tuple[str, ...]:
        if self.pinned != other.pinned:
            return NO_NODE
        if not self.nodes or not other.nodes:
            return self.nodes or other.nodes
        return tuple(sorted({*self.nodes} & {*other.nodes})) or NO_NODE


def cut(members: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
    """`member_gpus` and `members` of a demand with these members, in canonical form."""
    largest, *others = sorted(members, reverse=True)
    if not others or others[:-1] == [largest] * (len(others) - 1):
        return largest, ()  # all equal but for a smaller last one, which is what `member_gpus` means
    return largest, (largest, *others)
