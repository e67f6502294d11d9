"""Measured training speeds of models, with the source of each number."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from horae.model.shapes import Shape


class Measurement(NamedTuple):
    model: str  # with its batch size, where that matters: "ResNet-50 (batch size 64)"
    shape: Shape
    steps_per_second: float  # 0: does not fit
    source: str  # a paper, a table, a file


class PairMeasurement(NamedTuple):
    """The speeds of two gangs of one size that share the same GPUs."""

    models: tuple[str, str]
    shape: Shape
    steps_per_second: tuple[float, float]  # of the first and of the second; 0: does not fit
    source: str


class Sharing(NamedTuple):
    """The fraction of its speed alone that each of two jobs on the same GPUs keeps."""

    models: tuple[str, str]
    accelerator: str
    gpus: int
    kept: tuple[float, float]  # of the first and of the second; 0: does not fit


class SharingTable:
    """Looks up the fraction of its speed that a job keeps beside another on the same GPUs;
    0 where the two do not fit."""

    def __init__(self, rows: Iterable[Sharing]) -> None:
        self._kept: dict[tuple[str, str, str, int], float] = {}
        for (first, second), accelerator, gpus, (kept_first, kept_second) in rows:
            fits = kept_first > 0 and kept_second > 0
            self._kept[first, second, accelerator, gpus] = kept_first if fits else 0.0
            self._kept[second, first, accelerator, gpus] = kept_second if fits else 0.0

    def __bool__(self) -> bool:
        return bool(self._kept)

    def kept(self, model: str, partner: str, shape: Shape) -> float:
        return self._kept.get((model, partner, shape.accelerator, shape.gpus), 0.0)
