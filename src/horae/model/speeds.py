"""How fast a model trains: one measurement, and where the number comes from."""

from __future__ import annotations

from typing import NamedTuple

from horae.model.shapes import Shape


class Measurement(NamedTuple):
    model: str  # with its batch size, where that matters: "ResNet-50 (batch size 64)"
    shape: Shape
    steps_per_second: float  # 0: does not fit
    source: str  # a paper, a table, a file
