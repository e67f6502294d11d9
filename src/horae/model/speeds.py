"""How fast a model trains: one measurement, and where the number comes from."""

from __future__ import annotations

from typing import NamedTuple

from horae.model.shapes import Shape


class Measurement(NamedTuple):
    model: str  # with its batch size, where that matters: "ResNet-50 (batch size 64)"
    shape: Shape
    steps_per_second: float  # 0: does not fit
    source: str  # a paper, a table, a file


class PairMeasurement(NamedTuple):
    """Two gangs of one size that share the same GPUs, and how fast each of them is there."""

    models: tuple[str, str]
    shape: Shape
    steps_per_second: tuple[float, float]  # of the first and of the second; 0: does not fit
    source: str


class Sharing(NamedTuple):
    """Two jobs on the same GPUs: the part of its speed alone that each of them keeps."""

    models: tuple[str, str]
    accelerator: str
    gpus: int
    kept: tuple[float, float]  # of the first and of the second; 0: does not fit
