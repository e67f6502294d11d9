"""What a gang may be given: a GPU type, a number of GPUs, and the level of the smallest cell that must hold it.

Shapes and demands are keys of many tables, so they are tuples: those hash fast.
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
    """A shape that a job accepts, with the speed it is believed to reach there."""

    shape: Shape
    steps_per_second: float


class Demand(NamedTuple):
    """All that placement must know of a job; jobs of equal demand fit or fail alike."""

    shapes: tuple[Shape, ...]  # in order of preference; the first is the reference shape
    member_gpus: int  # the gang is cut into members of this many GPUs (the last may be smaller); none spans nodes
    cpus_per_gpu: float
    memory_bytes_per_gpu: float

    def beside(self, other: Demand) -> Demand:
        """Of two that share the same GPUs: those once, and what rides along for both.

        A node may end only where members of both end, so they count as members of a common multiple, or as one.
        """
        return Demand(
            self.shapes,
            min(lcm(self.member_gpus, other.member_gpus), max(shape.gpus for shape in self.shapes)),
            self.cpus_per_gpu + other.cpus_per_gpu,
            self.memory_bytes_per_gpu + other.memory_bytes_per_gpu,
        )
