"""Example views to test a policy on: every kind of pool a scheduler may present, small enough to compare completely."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf, nan

import numpy as np

from horae.model.cluster import CLUSTER, GPU, NODE
from horae.model.job_table import JobNumbers, JobTable
from horae.model.jobs import Job
from horae.model.shapes import Option, Shape
from horae.model.status import Status
from horae.model.view import AppColumns, View

LEVELS = (GPU, NODE, "rack", CLUSTER)
ACCELERATORS = ("K80", "V100")
TENANTS = ("blue", "green", "red")
MODELS = ("small", "large", "greedy")
SHAPES = tuple(
    Shape(accelerator, gpus, level)
    for accelerator in ACCELERATORS
    for gpus in (1, 2, 4, 8)
    for level in (NODE, CLUSTER)
)


@dataclass(frozen=True)
class ExampleView:
    """A pool at one moment; the same case can be presented with its jobs in any order of rows."""

    name: str
    now: float
    capacity: tuple[int, ...]  # by accelerator
    jobs: tuple[tuple[Job, bool], ...]  # each with whether it runs
    seed: int = 0

    def with_other_lengths(self) -> ExampleView:
        """The same jobs; those of known length are longer, some by more."""
        jobs = [
            (
                job if job.steps_total is None else replace(job, steps_total=job.steps_total * (1 + 7 * (index % 3))),
                runs,
            )
            for index, (job, runs) in enumerate(self.jobs)
        ]
        return replace(self, jobs=tuple(jobs))

    def view(self, order: Sequence[int] | None = None) -> View:
        table = JobTable(options=4)
        for serial in range(len(self.jobs)) if order is None else order:
            self._add(table, serial)
        capacity = np.array(self.capacity, dtype=np.int64)
        accelerator = np.array([ACCELERATORS.index(shape.accelerator) for shape in SHAPES])
        gpus = np.array([shape.gpus for shape in SHAPES])
        level = np.array([LEVELS.index(shape.level) for shape in SHAPES])
        apps = len({job.app_id for job, _ in self.jobs})
        weight = np.array([2.0, 1.0, 1.0])
        price = np.array([0.5, 2.0])
        # Jobs of the second model slow others down; two of the third do not fit together.
        kept = np.array([[0.9, 0.6, 0.9], [0.7, 0.5, 0.7], [0.9, 0.6, 0.0]])[:, :, None] * np.ones(len(SHAPES))
        for column in (capacity, accelerator, gpus, level, weight, price, kept):
            column.flags.writeable = False
        return View(
            now=self.now,
            seed=self.seed,
            round_seconds=360.0,
            accelerators=ACCELERATORS,
            capacity=capacity,
            cpus=inf if self.seed % 2 else 64.0,
            memory_bytes=inf,
            shapes=SHAPES,
            shape_accelerator=accelerator,
            shape_gpus=gpus,
            shape_level=level,
            levels=LEVELS,
            jobs=table.view(self.now),
            tenants=TENANTS,
            tenant_weight=weight,
            apps=apps,
            app_seconds=self.now * apps,
            fit=lambda accelerator, gpus: NODE if gpus <= 4 else CLUSTER,
            price_per_hour=price,
            models=MODELS,
            kept=kept,
            app=self._apps(),
            trial=lambda gone, accelerator, gangs: np.where(gangs <= 4, 1, 3),
        )

    def _apps(self) -> AppColumns:
        """The app columns as a scheduler would have aggregated them; one app in three has more jobs to come."""
        names = sorted({job.app_id for job, _ in self.jobs})
        floats, gpus = np.zeros((5, len(names))), np.zeros(len(names), dtype=np.int64)
        for job, _ in self.jobs:
            number = names.index(job.app_id)
            seconds = nan if job.steps_total is None else job.steps_total / job.options[0].steps_per_second
            gpus[number] += job.gpus
            floats[0, number] += job.gpus * seconds
            floats[4, number] = np.maximum(floats[4, number], seconds)
        floats[2] = np.where(np.arange(len(names)) % 3 == 0, 3600.0, 0.0)
        floats[1] = floats[2] * gpus
        floats[3] = np.where(np.arange(len(names)) % 5 == 4, self.now + 600.0, -inf)
        floats.flags.writeable = gpus.flags.writeable = False
        return AppColumns(floats[0], gpus, floats[1], floats[2], floats[4], floats[3])

    def _add(self, table: JobTable, serial: int) -> None:
        job, runs = self.jobs[serial]
        shapes = tuple(SHAPES.index(option.shape) for option in job.options)
        apps = sorted({job.app_id for job, _ in self.jobs})
        tenant = TENANTS.index(job.tenant)
        entry = JobNumbers(
            apps.index(job.app_id), tenant, tenant, serial % 3, shapes, job.submitted_at, 0.0, serial % 3
        )
        table.add(serial, job, entry)
        if runs:
            columns, row = table.columns, table.row[serial]
            columns["status"][row] = int(Status.RUNNING)
            columns["epoch"][row] = serial
            columns["option"][row] = 0
            columns["held_gpus"][row] = job.gpus
            columns["since"][row] = columns["productive_at"][row] = job.submitted_at + (self.now - job.submitted_at) / 2
            columns["service_base"][row] = 100.0 * serial
            columns["run_base"][row] = 100.0 * serial / job.gpus


def cases(seed: int = 0, crowds: int = 4) -> list[ExampleView]:
    random = np.random.default_rng(seed)
    job = _job(random, 0, 1000.0)
    some = [
        ExampleView("an empty pool", 1000.0, (8, 8), ()),
        ExampleView("one job that waits", 1000.0, (8, 8), ((job, False),)),
        ExampleView("one job that runs", 1000.0, (8, 8), ((job, True),)),
        ExampleView("one job, just arrived", job.submitted_at, (8, 8), ((job, False),)),
        ExampleView("jobs that are all alike", 2000.0, (2, 2), tuple((_alike(index), False) for index in range(6))),
        ExampleView("a pool whose nodes are all down", 1000.0, (0, 0), ((job, False),)),
    ]
    for number in range(crowds):
        now = float(10 ** (4 + number % 3))
        some.append(_crowd(f"a crowd (number {number})", random, now, int(random.integers(5, 40)), number))
    return some


def _alike(index: int) -> Job:
    return Job(f"twin-{index}", 1000.0, (Option(Shape("V100", 2, NODE), 1.0),), tenant="blue", steps_total=500.0)


def _crowd(name: str, random: np.random.Generator, now: float, count: int, seed: int) -> ExampleView:
    """A case with jobs of all kinds, of which the running ones leave some room, or none."""
    capacity = (int(random.integers(4, 33)), int(random.integers(4, 33)))
    left = list(capacity)
    jobs = []
    for index in range(count):
        job = _job(random, index, now)
        shape = job.options[0].shape
        chain = ACCELERATORS.index(shape.accelerator)
        runs = bool(random.random() < 0.6) and left[chain] >= shape.gpus
        left[chain] -= shape.gpus * runs
        jobs.append((job, runs))
    return ExampleView(name, now, capacity, tuple(jobs), seed)


def _job(random: np.random.Generator, index: int, now: float) -> Job:
    gpus = int(random.choice([1, 2, 4, 8]))
    types = random.permutation(ACCELERATORS)[: int(random.integers(1, 3))].tolist()
    levels = (NODE, CLUSTER) if random.random() < 0.5 else (NODE,)
    speed = float(random.uniform(0.5, 4.0))
    options = tuple(
        Option(Shape(name, gpus, level), speed / (1 + types.index(name) + 0.3 * levels.index(level)))
        for name in types
        for level in levels
    )
    steps = float(random.lognormal(7.0, 2.0)) if random.random() < 0.8 else nan
    return Job(
        id=f"job-{index}",
        submitted_at=float(random.uniform(0.0, now)),
        options=options,
        app=f"app-{index % 7}" if random.random() < 0.5 else "",
        tenant=str(random.choice(TENANTS)),
        weight=float(random.choice([1.0, 5.0])),
        priority=int(random.integers(0, 3)),
        steps_total=None if np.isnan(steps) else steps,
        deadline_at=now * float(random.uniform(0.5, 2.0)) if random.random() < 0.3 else inf,
        restart_seconds=float(random.choice([0.0, 45.0])),
        cpus_per_gpu=float(random.choice([0.0, 4.0])),
    )
