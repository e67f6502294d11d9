"""The estimator: how fast a model is in shapes in which it was not measured, and the uncertainty of that.

A cell of its table is a model with a gang on a GPU type at a level. Some cells were measured, by a profiler or while
jobs ran; the others are completed from them (see `gaussian_model`), from other shapes of the same model first, then
from models of its family (one name with several batch sizes, such as `LM (batch size 20)`), then from all models. Gangs
that were never measured are extrapolated from how other gangs and other models scale. Nothing is known of the absolute
speed of a model before one of its cells was measured; of the ratios between its shapes, a good deal is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import exp, hypot, isfinite, log, sqrt
from typing import NamedTuple, TypeVar

import numpy as np

from horae.model.arrays import Floats
from horae.model.cluster import NODE
from horae.model.errors import InputError
from horae.model.shapes import Shape
from horae.model.speeds import Measurement
from horae.speed.gaussian_model import (
    DesignMatrix,
    Posterior,
    Structure,
    condition,
    fit,
    leaning,
    make_cells,
    predict,
    prior,
)

Name = TypeVar("Name")

BATCH_SIZE = 64  # of models whose name states none
NOISE = 0.05  # relative standard deviation of a speed that was measured for a minute
NOISE_MIN = 0.005  # lower limit for any duration, so that a speed that changes is followed eventually
MEASURED, COMPLETED, BY_FAMILY, BY_OTHERS = "measured", "other shapes", "its family", "other models"


class SpeedEstimate(NamedTuple):
    steps_per_second: float  # median: as likely too low as too high
    uncertainty: float  # standard deviation of its logarithm: about the relative error
    source: str

    def low(self, caution: float = 1.0) -> float:
        """A conservative speed: so many standard deviations below the estimate."""
        return self.steps_per_second * exp(-caution * self.uncertainty)


class ShapeColumn(NamedTuple):
    accelerator: str  # in lower case
    level: str


class Key(NamedTuple):
    model: str
    gpus: int
    column: ShapeColumn


class MeasuredSpeed(NamedTuple):
    """A measured speed: its logarithm, and the variance of that."""

    log_speed: float
    variance: float


class Likeness(NamedTuple):
    model: str
    cosine: float


def key_of(model: str, shape: Shape) -> Key:
    """The key of a cell; one GPU is never spread, whatever level a shape states."""
    level = shape.level if shape.gpus > 1 else NODE
    return Key(model, shape.gpus, ShapeColumn(shape.accelerator.casefold(), level))


def family_of(model: str) -> str:
    """The name without trailing parentheses: batch sizes, precision."""
    return model.partition(" (")[0]


def batch_size_of(model: str) -> int:
    """The batch size stated in the name, or a typical one where it states none."""
    found = re.search(r"batch size ([1-9][0-9]{0,8})\b", model)
    return int(found[1]) if found else BATCH_SIZE


@dataclass(frozen=True)
class Estimator:
    """An immutable estimator: a measurement gives a new one, with the same structure until it is `refitted`."""

    columns: tuple[ShapeColumn, ...] = ()
    cells: Mapping[Key, MeasuredSpeed] = field(default_factory=dict)
    structure: Structure | None = None  # None: the prior

    @staticmethod
    def of(measurements: Iterable[Measurement], noise: float = NOISE_MIN) -> Estimator:
        """An estimator from reference jobs, measured in many shapes or in all; shapes that do not fit are ignored."""
        known = [row for row in measurements if row.steps_per_second > 0]
        estimator = Estimator()
        for row in known:
            estimator = estimator.profiled(row.model, row.shape, row.steps_per_second, noise)
        return estimator.refitted()

    def profiled(self, model: str, shape: Shape, steps_per_second: float, noise: float) -> Estimator:
        """The estimator with one more measurement, of this relative standard deviation."""
        if not (steps_per_second > 0 and isfinite(steps_per_second)) or not noise >= 0:
            raise InputError(
                f"{model} was measured at {steps_per_second} steps per second with noise {noise} in {shape}",
                field="speed",
                remedy="give a positive number of steps, and noise of at least 0",
            )
        key = key_of(model, shape)
        cell = MeasuredSpeed(log(steps_per_second), max(noise, NOISE_MIN) ** 2)
        known = self.cells.get(key)
        return replace(self._covering([key.column]), cells={**self.cells, key: _joined(known, cell) if known else cell})

    def observed(
        self, model: str, shape: Shape, steps_per_second: float, seconds: float, stale_seconds: float = 0.0
    ) -> Estimator:
        """The estimator with a speed observed for so long: the longer, the more it counts against earlier ones.

        The steps may have been counted up to `stale_seconds` before or after the time was taken.
        """
        if not seconds > 0:
            raise InputError(f"was measured for {seconds} s", field="seconds", remedy="give a positive number")
        noise = hypot(NOISE * sqrt(60.0 / seconds), stale_seconds / seconds)
        return self.profiled(model, shape, steps_per_second, noise)

    def knowing(self, shapes: Iterable[Shape]) -> Estimator:
        """The estimator with columns for these shapes, so that they can be estimated."""
        return self._covering([key_of("", shape).column for shape in shapes])

    def refitted(self) -> Estimator:
        """The estimator with the structure relearned from all cells, and from nothing else."""
        structure = fit(prior(self._types), self._measured, self._log_speed, self._variance)
        return replace(self, structure=structure)

    def estimate(self, model: str, shape: Shape) -> SpeedEstimate:
        return self.estimates([(model, shape)])[0]

    def estimates(self, asked: Sequence[tuple[str, Shape]]) -> list[SpeedEstimate]:
        """Many estimates at once, which is much faster than one by one."""
        covering = self.knowing(shape for _, shape in asked)
        return covering._estimates([key_of(model, shape) for model, shape in asked]) if asked else []

    def nearest(self, model: str, references: Iterable[str] = ()) -> Likeness | None:
        """The reference job most like this one: by the cosine between their speeds over columns, regardless of scale.

        Without references, among all models of which every column was measured. None where there is no other, or
        nothing is known of this one.
        """
        names = sorted(set(references) or self._complete)
        own = self._profile(model)
        likenesses = [Likeness(name, _cosine(own, self._profile(name))) for name in names if name != model]
        if not likenesses or not own.any():
            return None
        return max(likenesses, key=lambda likeness: likeness.cosine)

    # The table as arrays

    def _covering(self, columns: Iterable[ShapeColumn]) -> Estimator:
        fresh = set(columns) - set(self.columns)
        if not fresh:
            return self
        wider = replace(self, columns=tuple(sorted({*self.columns, *fresh})), structure=None)
        return wider.refitted() if self.structure is not None else wider

    @cached_property
    def _types(self) -> list[int]:
        types = sorted({column.accelerator for column in self.columns})
        return [types.index(column.accelerator) for column in self.columns]

    @cached_property
    def _keys(self) -> list[Key]:
        return sorted(self.cells)  # so that rounding does not depend on the order of arrival

    @cached_property
    def _row(self) -> Mapping[Key, int]:
        return {key: row for row, key in enumerate(self._keys)}

    @cached_property
    def _log_speed(self) -> Floats:
        return np.array([self.cells[key].log_speed for key in self._keys])

    @cached_property
    def _variance(self) -> Floats:
        return np.array([self.cells[key].variance for key in self._keys])

    @cached_property
    def _measured(self) -> DesignMatrix:
        return self._as_cells(self._keys)

    @cached_property
    def _numbers(self) -> tuple[Mapping[str, int], Mapping[str, int], Mapping[ShapeColumn, int]]:
        """The numbers of families, models and columns."""
        models = sorted({key.model for key in self.cells})
        families = sorted({family_of(model) for model in models})
        return _numbered(families), _numbered(models), _numbered(self.columns)

    @cached_property
    def _posterior(self) -> Posterior:
        structure = prior(self._types) if self.structure is None else self.structure
        return condition(structure, self._measured, self._log_speed, self._variance)

    @cached_property
    def _complete(self) -> set[str]:
        seen: dict[str, set[ShapeColumn]] = {}
        for key in self.cells:
            seen.setdefault(key.model, set()).add(key.column)
        return {model for model, columns in seen.items() if len(columns) == len(self.columns)}

    def _as_cells(self, keys: Sequence[Key]) -> DesignMatrix:
        """The cells as arrays; families and models never measured have the number -1, which matches no other."""
        families, models, columns = self._numbers
        gangs = np.log(np.array([key.gpus for key in keys], dtype=np.float64))
        batches = np.log(np.array([batch_size_of(key.model) for key in keys], dtype=np.float64) / BATCH_SIZE)
        column = np.array([columns[key.column] for key in keys], dtype=np.int64)
        family = np.array([families.get(family_of(key.model), -1) for key in keys], dtype=np.int64)
        model = np.array([models.get(key.model, -1) for key in keys], dtype=np.int64)
        return make_cells(column, len(columns), (gangs, batches), family, model)

    def _estimates(self, keys: Sequence[Key]) -> list[SpeedEstimate]:
        asked = self._as_cells(keys)
        same = np.array([self._row.get(key, -1) for key in keys], dtype=np.int64)
        mean, variance = predict(self._posterior, asked, same)
        speeds, uncertainties = np.exp(mean).tolist(), np.sqrt(variance).tolist()
        sources = [self._source(key) for key in keys]
        return [SpeedEstimate(*found) for found in zip(speeds, uncertainties, sources, strict=True)]

    def _source(self, key: Key) -> str:
        families, models, _ = self._numbers
        if key in self.cells:
            return MEASURED
        if key.model in models:
            return COMPLETED
        return BY_FAMILY if family_of(key.model) in families else BY_OTHERS

    def _profile(self, model: str) -> Floats:
        """The deviations of a model by column and in scaling, without its scale."""
        families, models, columns = self._numbers
        lean = leaning(self._posterior, families.get(family_of(model), -1), models.get(model, -1))
        lean[: len(columns)] -= lean[: len(columns)].mean() if columns else 0.0
        return lean


def _numbered(names: Iterable[Name]) -> Mapping[Name, int]:
    return {name: number for number, name in enumerate(names)}


def _joined(known: MeasuredSpeed, fresh: MeasuredSpeed) -> MeasuredSpeed:
    """Both measurements combined by precision, with an uncertainty that later measurements can still change."""
    precision = 1.0 / known.variance + 1.0 / fresh.variance
    log_speed = (known.log_speed / known.variance + fresh.log_speed / fresh.variance) / precision
    return MeasuredSpeed(log_speed, max(1.0 / precision, NOISE_MIN**2))


def _cosine(left: Floats, right: Floats) -> float:
    norm = float(np.linalg.norm(left) * np.linalg.norm(right))
    return float(left @ right) / norm if norm else 0.0
