"""Interning: numbers for names, shapes and demands. Equal values get the same number, in order of arrival."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from horae.model.arrays import Floats, Ints
from horae.model.cluster import Cluster
from horae.model.job_table import NONE
from horae.model.shapes import Demand, Shape
from horae.model.speeds import SharingTable

_UNKNOWN = -2  # distinct from NONE, which stands for no shape at all


class InternedNames:
    """Tenants, users or models, each with its weight."""

    def __init__(self, weights: Mapping[str, float] | None = None) -> None:
        self._weights = dict(weights or {})
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
        """The number of a name; NONE if it is unknown."""
        return self._number.get(name, NONE)

    def set_weight(self, name: str, weight: float) -> None:
        self._weights[name] = weight
        self.weight = np.array([self._weights.get(each, 1.0) for each in self.all])
        self.weight.flags.writeable = False

    @property
    def weights(self) -> Mapping[str, float]:
        return self._weights


class InternedShapes:
    def __init__(self, cluster: Cluster) -> None:
        self._number: dict[Shape, int] = {}
        self.all: tuple[Shape, ...] = ()
        self.move(cluster)

    def move(self, cluster: Cluster) -> None:
        """Switches to another cluster: shapes keep their numbers, and may or may not exist there."""
        self._largest_cell = cluster.largest_cell
        self._accelerators = {name: index for index, name in enumerate(cluster.accelerators)}
        self._levels = {name: index for index, name in enumerate(cluster.levels)}
        self.accelerator: Ints = np.array([self._chain(shape) for shape in self.all], dtype=np.int64)  # NONE: none
        self.gpus: Ints = np.array([shape.gpus for shape in self.all], dtype=np.int64)
        self.level: Ints = np.array([self._levels.get(shape.level, -1) for shape in self.all], dtype=np.int64)
        self._freeze()

    def number(self, shape: Shape) -> int:
        number = self._number.get(shape)
        if number is None:
            number = self._number[shape] = len(self.all)
            self.all += (shape,)
            self.accelerator = np.append(self.accelerator, self._chain(shape))
            self.gpus = np.append(self.gpus, shape.gpus)
            self.level = np.append(self.level, self._levels.get(shape.level, -1))
            self._freeze()
        return number

    def find(self, shape: Shape) -> int:
        return self._number.get(shape, _UNKNOWN)

    def _chain(self, shape: Shape) -> int:
        level = self._levels.get(shape.level, NONE)
        if level == NONE or self._largest_cell[max(level, 1)].get(shape.accelerator, 0) < shape.gpus:
            return NONE
        return self._accelerators[shape.accelerator]

    def _freeze(self) -> None:
        for column in (self.accelerator, self.gpus, self.level):
            column.flags.writeable = False


class InternedDemands:
    def __init__(self) -> None:
        self._number: dict[Demand, int] = {}
        self.all: list[Demand] = []

    def number(self, demand: Demand) -> int:
        number = self._number.get(demand)
        if number is None:
            number = self._number[demand] = len(self.all)
            self.all.append(demand)
        return number


class KeptSpeeds:
    """The fraction of their speed that jobs keep beside another, as an array over the models and shapes seen so far."""

    def __init__(self, table: SharingTable) -> None:
        self.table = table
        self._by_number: Floats = np.empty((0, 0, 0))

    def columns(self, models: tuple[str, ...], shapes: tuple[Shape, ...]) -> Floats:
        """Kept speeds by model, partner's model and shape."""
        if self.table and self._by_number.shape != (len(models), len(models), len(shapes)):
            kept = self.table.kept
            self._by_number = np.array(
                [[[kept(one, other, shape) for shape in shapes] for other in models] for one in models]
            ).reshape(len(models), len(models), len(shapes))
            self._by_number.flags.writeable = False
        return self._by_number


class Interned:
    """All numberings of one scheduler."""

    def __init__(self, cluster: Cluster, weights: Mapping[str, float]) -> None:
        self.shapes = InternedShapes(cluster)
        self.demands = InternedDemands()
        self.tenants = InternedNames(weights)
        self.users = InternedNames()
        self.models = InternedNames()
