"""A pool as Gavel describes one: jobs with a gang, a weight and a speed on each GPU type. For tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from horae.model.arrays import Floats, Ints
from horae.model.decisions import Pairs, Shares
from horae.model.job_table import JobNumbers, JobTable
from horae.model.jobs import Job
from horae.model.shapes import Option, Shape
from horae.model.status import Status
from horae.model.view import View

NOW = 1e6  # a view's moment, so late that every age fits
LEVELS = ("node", "cluster")
WAITS = -1


class Instance(NamedTuple):
    speed: Floats  # by job and type: steps a second; 0: does not run there
    gang: Sequence[int]
    weight: Sequence[float]
    gpus: Sequence[int]  # by type
    price: Sequence[float] = ()  # by type
    steps_left: Sequence[float] = ()  # by job
    age_seconds: Sequence[float] = ()  # since it was submitted
    isolated_seconds: Sequence[float] = ()  # what its steps so far would have taken alone
    deadline_seconds: Sequence[float] = ()  # from now
    tenant: Sequence[str] = ()
    kept: Floats | None = None  # by model, partner and type: the part of its speed that a job keeps beside the other
    names: Sequence[str] = ()  # of the types
    spread: Floats | None = None  # by job and type: its speed where the gang is spread; then `speed` is in one node
    runs_on: Sequence[int] = ()  # by job: the type on which it runs now, or WAITS
    model: Sequence[int] = ()  # by job; without: every job is a model of its own

    @property
    def types(self) -> tuple[str, ...]:
        return tuple(self.names) or tuple(f"type-{index}" for index in range(len(self.gpus)))

    @property
    def levels(self) -> tuple[tuple[str, Floats], ...]:
        """Speeds by job and type, at each level at which a gang may be held."""
        return (("cluster", self.speed),) if self.spread is None else (("node", self.speed), ("cluster", self.spread))

    @property
    def models(self) -> Sequence[int]:
        return self.model if len(self.model) else range(len(self.gang))

    def view(self, order: Sequence[int] | None = None) -> View:
        """Jobs wait in a pool of these types; their rows may come in any order."""
        types = self.types
        tenants = tuple(dict.fromkeys(self.tenant)) or ("all",)
        gangs = sorted(set(self.gang))
        shapes = tuple(Shape(name, gang, level) for name in types for level, _ in self.levels for gang in gangs)
        table = JobTable(options=len(types) * len(self.levels))
        for serial in range(len(self.gang)) if order is None else order:
            self._add(table, serial, shapes, tenants)
        return View(
            now=NOW,
            seed=0,
            round_seconds=360.0,
            accelerators=types,
            capacity=np.array(self.gpus, dtype=np.int64),
            cpus=np.inf,
            memory_bytes=np.inf,
            shapes=shapes,
            shape_accelerator=np.array([types.index(shape.accelerator) for shape in shapes], dtype=np.int64),
            shape_gpus=np.array([shape.gpus for shape in shapes], dtype=np.int64),
            shape_level=np.array([LEVELS.index(shape.level) for shape in shapes], dtype=np.int64),
            levels=LEVELS,
            jobs=table.view(NOW),
            tenants=tenants,
            tenant_weight=np.ones(len(tenants)),
            apps=len(self.gang),
            app_seconds=0.0,
            fit=lambda accelerator, gpus: "cluster",
            price_per_hour=np.array(self.price, dtype=np.float64),
            models=tuple(str(model) for model in range(max(self.models, default=-1) + 1)),
            kept=self._kept_by_shape(shapes),
        )

    def _add(self, table: JobTable, serial: int, shapes: tuple[Shape, ...], tenants: tuple[str, ...]) -> None:
        options = [
            Option(Shape(name, self.gang[serial], level), float(speed[serial, number]))
            for number, name in enumerate(self.types)
            for level, speed in self.levels
            if speed[serial, number] > 0
        ]
        submitted_at = NOW - (self.age_seconds[serial] if len(self.age_seconds) else 0.0)
        job = Job(
            str(serial),
            submitted_at,
            tuple(options),
            weight=float(self.weight[serial]),
            steps_total=float(self.steps_left[serial]) if len(self.steps_left) else 1.0,
            deadline_at=NOW + self.deadline_seconds[serial] if len(self.deadline_seconds) else np.inf,
        )
        numbers = tuple(shapes.index(option.shape) for option in options)
        tenant = tenants.index(self.tenant[serial]) if len(self.tenant) else 0
        model = self.models[serial]
        table.add(serial, job, JobNumbers(serial, tenant, tenant, 0, numbers, submitted_at, 0.0, model))
        columns, row = table.columns, table.row[serial]
        if len(self.isolated_seconds):
            columns["isolated_base"][row] = self.isolated_seconds[serial]
        if len(self.runs_on) and self.runs_on[serial] != WAITS:
            held = [option.shape.accelerator for option in options].index(self.types[self.runs_on[serial]])
            columns["status"][row] = int(Status.RUNNING)
            columns["epoch"][row] = serial
            columns["option"][row] = held
            columns["held_gpus"][row] = self.gang[serial]
            columns["since"][row] = columns["productive_at"][row] = NOW  # what it did before is in its steps left

    def _kept_by_shape(self, shapes: Sequence[Shape]) -> Floats:
        if self.kept is None:
            return np.empty((0, 0, 0))
        return self.kept[:, :, [self.types.index(shape.accelerator) for shape in shapes]]

    def by_type(self, view: View, fraction: Floats) -> Floats:
        """Shares by row and option as shares by job and type."""
        shares = np.zeros_like(self.speed)
        for row, serial in enumerate(view.jobs.serial.tolist()):
            for option, shape in enumerate(view.jobs.shape[row].tolist()):
                if shape >= 0:
                    shares[serial, view.shape_accelerator[shape]] += fraction[row, option]
        return shares

    def level(self, shares: Floats, aware: bool = True) -> Floats:
        """By job: what max-min fairness makes the least of as large as can be."""
        speed = self.speed if aware else (self.speed > 0).astype(np.float64)
        gpus = np.array(self.gpus, dtype=np.float64)
        equal = speed @ gpus / gpus.sum()
        return np.array(self.gang) / np.array(self.weight) * (speed * shares).sum(axis=1) / equal

    def check_feasible(self, shares: Floats) -> None:
        assert (shares >= 0).all()
        assert (shares.sum(axis=1) <= 1 + 1e-9).all()
        assert (np.array(self.gang) @ shares <= np.array(self.gpus) * (1 + 1e-9)).all()
        assert (shares[self.speed == 0] == 0).all()


class Cells(NamedTuple):
    """Shares one by one: a job, alone or beside another, in one of its shapes."""

    serial: Ints
    shape: Ints
    fraction: Floats
    kept: Floats  # the part of its speed that it keeps
    paid: Floats  # the part of its GPUs that count for it: two that share count once


def cells_of(view: View, shares: Shares) -> Cells:
    jobs = view.jobs
    row, option = np.nonzero(shares.fraction)
    alone = _cells(view, row, option, shares.fraction[row, option], np.ones(len(row)), 1.0)
    pairs = shares.pairs
    if pairs is None or not len(pairs.first):
        return alone
    first, second = _kept_of(view, pairs)
    parts = (
        alone,
        _cells(view, pairs.first, pairs.first_option, pairs.fraction, first, 0.5),
        _cells(view, pairs.second, pairs.second_option, pairs.fraction, second, 0.5),
    )
    assert (pairs.first != pairs.second).all()
    one, two = jobs.shape[pairs.first, pairs.first_option], jobs.shape[pairs.second, pairs.second_option]
    assert (view.shape_gpus[one] == view.shape_gpus[two]).all()
    assert (view.shape_accelerator[one] == view.shape_accelerator[two]).all()
    return Cells(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def _cells(view: View, row: Ints, option: Ints, fraction: Floats, kept: Floats, paid: float) -> Cells:
    shape = view.jobs.shape[row, option]
    return Cells(view.jobs.serial[row], shape, fraction, kept, np.full(len(row), paid))


def _kept_of(view: View, pairs: Pairs) -> tuple[Floats, Floats]:
    jobs = view.jobs
    one, two = jobs.model[pairs.first], jobs.model[pairs.second]
    first = view.kept[one, two, jobs.shape[pairs.first, pairs.first_option]]
    second = view.kept[two, one, jobs.shape[pairs.second, pairs.second_option]]
    return first, second


def speed_by_shape(view: View) -> Floats:
    """By serial and shape: steps a second alone."""
    jobs = view.jobs
    speed = np.zeros((len(jobs), len(view.shapes)))
    row, option = np.nonzero(jobs.shape >= 0)
    speed[jobs.serial[row], jobs.shape[row, option]] = jobs.speed[row, option]
    return speed


def reached(view: View, shares: Shares, speed: Floats | None = None) -> Floats:
    """By serial: steps a second under these shares, in company too; `speed`: by serial and shape, if not the job's."""
    cells = cells_of(view, shares)
    speed = speed_by_shape(view) if speed is None else speed
    steps = speed[cells.serial, cells.shape] * cells.fraction * cells.kept
    total: Floats = np.bincount(cells.serial, steps, minlength=len(view.jobs)).astype(np.float64)
    return total


def check_shares(view: View, shares: Shares, hair: float = 1e-9) -> None:
    """Nobody has more than all of its time, no type more than its GPUs, and nobody is where it does not run."""
    cells = cells_of(view, shares)
    assert np.isfinite(cells.fraction).all()
    assert (cells.fraction >= 0).all()
    assert (cells.shape >= 0).all()
    assert (speed_by_shape(view)[cells.serial, cells.shape] > 0).all()
    assert (cells.kept > 0).all(), "a pair that does not fit"
    time = np.bincount(cells.serial, cells.fraction, minlength=len(view.jobs))
    assert (time <= 1 + hair).all()
    gpus = cells.fraction * cells.paid * view.shape_gpus[cells.shape]
    used = np.bincount(view.shape_accelerator[cells.shape], gpus, minlength=len(view.capacity))
    assert (used <= view.capacity * (1 + hair)).all()
