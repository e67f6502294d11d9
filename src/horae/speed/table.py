"""The speed book: the known training speeds of models in shapes, and their sources.

A measured row is returned as it is. A row for a node holds for every cell inside a node, and a gang of one GPU is never
spread. A shape that was not measured comes from the model's curve on that GPU type and is marked `fitted`; it is never
guessed where the curve says nothing: with one gang size only, for a gang spread over nodes where no such gang was
measured, below the smallest gang measured in that locality, or beyond four times the largest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from horae.model.cluster import CLUSTER, NODE
from horae.model.errors import InputError
from horae.model.shapes import Shape
from horae.model.speeds import Measurement
from horae.speed.scaling import ScalingCurve, ScalingPoint, fit_curve

GANG_FACTOR_MAX = 4  # how far beyond the measured gangs a curve is used
_SPREAD_LEVELS = ("rack", CLUSTER)  # all others are within a node


class TableSpeed(NamedTuple):
    steps_per_second: float  # 0: does not fit
    source: str
    fitted: bool  # not measured in this shape


class _Key(NamedTuple):
    model: str
    accelerator: str  # in lower case: tables write v100, clusters V100


Rows = Mapping[tuple[int, str], Measurement]  # by gang and level


@dataclass(frozen=True)
class SpeedBook:
    """Speeds by model and shape; of several measurements of one shape the first holds: put the most trusted first."""

    measurements: tuple[Measurement, ...]

    def __post_init__(self) -> None:
        for row in self.measurements:
            if row.shape.gpus < 1 or not 0.0 <= row.steps_per_second < float("inf"):
                raise InputError(
                    f"{row.model} has {row.steps_per_second} steps per second with {row.shape.gpus} GPUs",
                    field="speed",
                    remedy="give 1 or more GPUs and a finite number of steps of at least 0",
                )

    @staticmethod
    def of(*tables: Iterable[Measurement]) -> SpeedBook:
        """A book of several tables, the most trusted first."""
        return SpeedBook(tuple(row for table in tables for row in table))

    @property
    def models(self) -> tuple[str, ...]:
        return tuple(sorted({key.model for key in self._tables}))

    def steps_per_second(self, model: str, shape: Shape) -> float | None:
        """The speed of a model in a shape; None: nothing is known. 0: known not to fit."""
        estimate = self.lookup(model, shape)
        return None if estimate is None else estimate.steps_per_second

    def lookup(self, model: str, shape: Shape) -> TableSpeed | None:
        if (model, shape) not in self._estimates:
            self._estimates[model, shape] = self._look_up(model, shape)
        return self._estimates[model, shape]

    def curve(self, model: str, accelerator: str) -> ScalingCurve | None:
        """The scaling curve of a model on a GPU type, with its error; None where there is too little data for one."""
        key = _Key(model, accelerator.casefold())
        if key not in self._curves:
            rows = self._tables.get(key, {}).values()
            self._curves[key] = fit_curve([_point(row) for row in rows if row.steps_per_second > 0])
        return self._curves[key]

    def rows(self) -> tuple[tuple[str, Shape, TableSpeed], ...]:
        """All measurements, by model, GPU type, gang and level."""
        found = [row for rows in self._tables.values() for row in rows.values()]
        found.sort(key=lambda row: (row.model, row.shape))
        return tuple((row.model, row.shape, _as_measured(row)) for row in found)

    @cached_property
    def _tables(self) -> Mapping[_Key, Rows]:
        tables: dict[_Key, dict[tuple[int, str], Measurement]] = {}
        for row in self.measurements:
            key = _Key(row.model, row.shape.accelerator.casefold())
            tables.setdefault(key, {}).setdefault(_place(row.shape), row)
        return tables

    @cached_property
    def _curves(self) -> dict[_Key, ScalingCurve | None]:
        return {}  # filled on demand, because a book has hundreds of curves and a run needs a few

    @cached_property
    def _estimates(self) -> dict[tuple[str, Shape], TableSpeed | None]:
        return {}  # a trace looks up a few shapes a hundred thousand times

    def _look_up(self, model: str, shape: Shape) -> TableSpeed | None:
        key = _Key(model, shape.accelerator.casefold())
        rows = self._tables.get(key)
        if rows is None:
            return None
        return _measured(rows, shape) or _does_not_fit(rows, shape.gpus) or self._fitted(key, rows, shape)

    def _fitted(self, key: _Key, rows: Rows, shape: Shape) -> TableSpeed | None:
        curve = self.curve(*key)
        if curve is None:
            return None
        if not _is_spread(shape):
            return _from_curve(curve, rows, shape.gpus, is_spread=False) or _lower_bound(curve, rows, shape.gpus)
        estimate = _from_curve(curve, rows, shape.gpus, is_spread=True)
        inside = self.lookup(key.model, shape._replace(level=NODE))
        if estimate is None or inside is None or inside.steps_per_second >= estimate.steps_per_second:
            return estimate
        # Two measured rows may contradict this, but a fitted speed is never higher when spread.
        return estimate._replace(steps_per_second=inside.steps_per_second)


def _place(shape: Shape) -> tuple[int, str]:
    """Gang and level; one GPU is within a node, whatever level a table states."""
    return shape.gpus, shape.level if shape.gpus > 1 else NODE


def _is_spread(shape: Shape) -> bool:
    return shape.gpus > 1 and shape.level in _SPREAD_LEVELS


def _point(row: Measurement) -> ScalingPoint:
    return ScalingPoint(row.shape.gpus, _is_spread(row.shape), 1.0 / row.steps_per_second)


def _as_measured(row: Measurement) -> TableSpeed:
    return TableSpeed(row.steps_per_second, row.source, fitted=False)


def _measured(rows: Rows, shape: Shape) -> TableSpeed | None:
    """The row for this shape, or one that also holds for it."""
    exact = rows.get(_place(shape))
    if exact is not None:
        return _as_measured(exact)
    if not _is_spread(shape):
        node = rows.get((shape.gpus, NODE))
        return None if node is None else _as_measured(node)
    cluster = rows.get((shape.gpus, CLUSTER))
    if cluster is None:
        return None
    return TableSpeed(cluster.steps_per_second, f"as in one cluster: {cluster.source}", fitted=True)


def _does_not_fit(rows: Rows, gpus: int) -> TableSpeed | None:
    """Memory does not depend on where the GPUs are: a gang does not fit if its measured neighbours in size do not."""
    sizes = {size for size, _ in rows}
    nearest = [size for size in (_below(sizes, gpus), _above(sizes, gpus)) if size is not None]
    misfits = {size: row for (size, _), row in rows.items() if row.steps_per_second == 0.0}
    if not nearest or not all(size in misfits for size in nearest):
        return None
    named = " and ".join(str(size) for size in dict.fromkeys(nearest))
    return TableSpeed(0.0, f"{named} GPUs do not fit: {misfits[nearest[0]].source}", fitted=True)


def _below(sizes: set[int], gpus: int) -> int | None:
    return max((size for size in sizes if size <= gpus), default=None)


def _above(sizes: set[int], gpus: int) -> int | None:
    return min((size for size in sizes if size >= gpus), default=None)


def _from_curve(curve: ScalingCurve, rows: Rows, gpus: int, *, is_spread: bool) -> TableSpeed | None:
    """The curve's estimate for this gang, if a gang close enough in size was measured in this locality."""
    multiple = [point.gpus for point in curve.points if point.gpus > 1 and point.is_spread == is_spread]
    if not multiple or _one_side_misfits(rows, gpus):
        return None
    smallest = min(point.gpus for point in curve.points if point.gpus == 1 or point.is_spread == is_spread)
    if not smallest <= gpus <= GANG_FACTOR_MAX * max(multiple):
        return None
    return TableSpeed(1.0 / curve.bent_seconds(gpus, is_spread=is_spread), _fit_source(curve, rows), fitted=True)


def _one_side_misfits(rows: Rows, gpus: int) -> bool:
    """Whether a gang next to this one is known not to fit; then it is unknown on which side this one is."""
    sizes = {size for size, _ in rows}
    misfits = {size for (size, _), row in rows.items() if row.steps_per_second == 0.0}
    return _below(sizes, gpus) in misfits or _above(sizes, gpus) in misfits


def _lower_bound(curve: ScalingCurve, rows: Rows, gpus: int) -> TableSpeed | None:
    """A lower bound: a gang that was only measured spread is at least as fast in one node."""
    spread = _from_curve(curve, rows, gpus, is_spread=True)
    return None if spread is None else spread._replace(source=f"at least as when spread: {spread.source}")


def _fit_source(curve: ScalingCurve, rows: Rows) -> str:
    sizes = [point.gpus for point in curve.points]
    sources = "; ".join(dict.fromkeys(row.source for row in rows.values()))
    return f"fitted to {len(sizes)} rows of {min(sizes)} to {max(sizes)} GPUs ({sources})"
