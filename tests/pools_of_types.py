"""A pool as Gavel describes one: jobs with a gang, a weight and a speed on each GPU type. For tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from horae.model.arrays import Floats
from horae.model.jobs import Job
from horae.model.shapes import Option, Shape
from horae.model.table import Entry, JobTable
from horae.model.view import View

NOW = 1e6  # a view's moment, so late that every age fits


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
    kept: Floats | None = None  # by job, partner and type: the part of its speed that a job keeps beside the other

    @property
    def types(self) -> tuple[str, ...]:
        return tuple(f"type-{index}" for index in range(len(self.gpus)))

    def view(self, order: Sequence[int] | None = None) -> View:
        """Jobs wait in a pool of these types; their rows may come in any order."""
        types = self.types
        tenants = tuple(dict.fromkeys(self.tenant)) or ("all",)
        gangs = sorted(set(self.gang))
        shapes = tuple(Shape(name, gang, "cluster") for name in types for gang in gangs)
        table = JobTable(options=len(types))
        for serial in range(len(self.gang)) if order is None else order:
            options = [
                Option(Shape(name, self.gang[serial], "cluster"), float(speed))
                for name, speed in zip(types, self.speed[serial], strict=True)
                if speed > 0
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
            table.add(serial, job, Entry(serial, tenant, tenant, 0, numbers, submitted_at, 0.0, serial))
            if len(self.isolated_seconds):
                table.columns["isolated_base"][table.row[serial]] = self.isolated_seconds[serial]
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
            shape_level=np.zeros(len(shapes), dtype=np.int64),
            levels=("cluster",),
            jobs=table.view(NOW),
            tenants=tenants,
            tenant_weight=np.ones(len(tenants)),
            apps=len(self.gang),
            app_seconds=0.0,
            fit=lambda accelerator, gpus: "cluster",
            price_per_hour=np.array(self.price, dtype=np.float64),
            models=tuple(str(serial) for serial in range(len(self.gang))),
            kept=self._kept_by_shape(shapes),
        )

    def _kept_by_shape(self, shapes: Sequence[Shape]) -> Floats:
        """Every job is a model of its own; the number of the job is the number of the model."""
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
