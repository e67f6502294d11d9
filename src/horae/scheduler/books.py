"""Numbers for things that recur: names, shapes and demands. Equal things get the same number."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from horae.model.arrays import Floats, Ints
from horae.model.cells import Cluster
from horae.model.shapes import Demand, Shape
from horae.model.speeds import Sharing
from horae.model.table import NOBODY

_NEVER_MET = -2  # unlike NOBODY, which stands for no shape at all


class NameBook:
    """Tenants or users, each with its weight."""

    def __init__(self, weights: Mapping[str, float]) -> None:
        self._weights = weights
        self._number: dict[str, int] = {}
        self.all: tuple[str, ...] = ()
        self.weight: Floats = np.empty(0)

    def number(self, name: str) -> int:
        number = self._number.get(name)
        if number is None:
            number = self._number[name] = len(self.all)
            self.all += (name,)
            self.weight = np.append(self.weight, self._weights.get(name, 1.0))
            self.weight.flags.writeable = False
        return number

    def find(self, name: str) -> int:
        """NOBODY for a name that was never met."""
        return self._number.get(name, NOBODY)


class ShapeBook:
    def __init__(self, cluster: Cluster) -> None:
        self._largest_cell = cluster.largest_cell
        self._accelerators = {name: index for index, name in enumerate(cluster.accelerators)}
        self._levels = {name: index for index, name in enumerate(cluster.levels)}
        self._number: dict[Shape, int] = {}
        self.all: tuple[Shape, ...] = ()
        self.accelerator: Ints = np.empty(0, dtype=np.int64)  # NOBODY: no such type or cell
        self.gpus: Ints = np.empty(0, dtype=np.int64)
        self.level: Ints = np.empty(0, dtype=np.int64)  # likewise

    def number(self, shape: Shape) -> int:
        number = self._number.get(shape)
        if number is None:
            number = self._number[shape] = len(self.all)
            self.all += (shape,)
            self.accelerator = np.append(self.accelerator, self._chain(shape))
            self.gpus = np.append(self.gpus, shape.gpus)
            self.level = np.append(self.level, self._levels.get(shape.level, -1))
            for column in (self.accelerator, self.gpus, self.level):
                column.flags.writeable = False
        return number

    def find(self, shape: Shape) -> int:
        return self._number.get(shape, _NEVER_MET)

    def _chain(self, shape: Shape) -> int:
        level = self._levels.get(shape.level, NOBODY)
        if level == NOBODY or self._largest_cell[max(level, 1)].get(shape.accelerator, 0) < shape.gpus:
            return NOBODY
        return self._accelerators[shape.accelerator]


class DemandBook:
    def __init__(self) -> None:
        self._number: dict[Demand, int] = {}
        self.all: tuple[Demand, ...] = ()

    def number(self, demand: Demand) -> int:
        number = self._number.get(demand)
        if number is None:
            number = self._number[demand] = len(self.all)
            self.all += (demand,)
        return number


class SharingBook:
    """What jobs keep of their speed beside another, for the models and shapes that were seen so far."""

    def __init__(self, rows: tuple[Sharing, ...]) -> None:
        self._kept: dict[tuple[str, str, str, int], float] = {}
        for (first, second), accelerator, gpus, (kept_first, kept_second) in rows:
            fits = kept_first > 0 and kept_second > 0
            self._kept[first, second, accelerator, gpus] = kept_first if fits else 0.0
            self._kept[second, first, accelerator, gpus] = kept_second if fits else 0.0
        self._kept_by_number: Floats = np.empty((0, 0, 0))

    def kept(self, models: tuple[str, ...], shapes: tuple[Shape, ...]) -> Floats:
        """By model, partner's model and shape."""
        if self._kept and self._kept_by_number.shape != (len(models), len(models), len(shapes)):
            self._kept_by_number = np.array(
                [[[self.of(one, other, shape) for shape in shapes] for other in models] for one in models]
            ).reshape(len(models), len(models), len(shapes))
            self._kept_by_number.flags.writeable = False
        return self._kept_by_number

    def of(self, model: str, partner: str, shape: Shape) -> float:
        return self._kept.get((model, partner, shape.accelerator, shape.gpus), 0.0)
