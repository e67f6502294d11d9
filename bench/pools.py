"""Pools to solve for, of any size: jobs of so many classes, or all different, on a few GPU types."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from horae.model.arrays import Floats, Ints
from horae.model.job_table import NONE, JobTable
from horae.model.shapes import Shape
from horae.model.status import Status
from horae.model.view import View

NOW = 1e6
TYPES = ("v100", "p100", "k80", "t4")
PART_OF_SPEED = (1.0, 0.5, 0.2, 0.4)  # of the fastest type's, about
LEVELS = ("node", "cluster")


class Pool(NamedTuple):
    """By job, and by job and column; a column is a GPU type in one node, or (the later ones) spread over nodes."""

    speed: Floats
    kind: Ints  # by column: its type
    gang: Ints
    model: Ints
    gpus: Ints  # by type
    steps_left: Floats
    age_seconds: Floats
    isolated_seconds: Floats  # what its steps so far would have taken on a share of its own
    kept: Floats  # by model, partner and column

    def view(self) -> View:
        jobs, columns = self.speed.shape
        types = len(self.gpus)
        names = TYPES[:types]
        gangs = np.unique(self.gang)
        shapes = tuple(
            Shape(names[kind], int(gang), LEVELS[1 if column >= types else 0])
            for column, kind in enumerate(self.kind.tolist())
            for gang in gangs
        )
        return View(
            now=NOW,
            seed=0,
            round_seconds=360.0,
            accelerators=names,
            capacity=self.gpus,
            cpus=np.inf,
            memory_bytes=np.inf,
            shapes=shapes,
            shape_accelerator=np.repeat(self.kind, len(gangs)),
            shape_gpus=np.tile(gangs, columns),
            shape_level=np.array([LEVELS.index(shape.level) for shape in shapes]),
            levels=LEVELS,
            jobs=self._table(np.searchsorted(gangs, self.gang), len(gangs)).view(NOW),
            tenants=("all",),
            tenant_weight=np.ones(1),
            apps=jobs,
            app_seconds=0.0,
            fit=lambda accelerator, gpus: "cluster",
            price_per_hour=np.array((0.74, 0.43, 0.135, 0.35))[:types],
            models=tuple(str(model) for model in range(len(self.kept))),
            kept=np.repeat(self.kept, len(gangs), axis=2),
        )

    def _table(self, gang_number: Ints, gangs: int) -> JobTable:
        """Column by column, for a hundred thousand jobs one by one take seconds."""
        jobs, columns = self.speed.shape
        table = JobTable(options=columns, capacity=jobs)
        values = {
            "serial": np.arange(jobs),
            "app": np.arange(jobs),
            "gpus": self.gang,
            "model": self.model,
            "status": int(Status.PENDING),
            "epoch": NONE,
            "option": NONE,
            "submitted_at": NOW - self.age_seconds,
            "queued_at": NOW - self.age_seconds,
            "app_submitted_at": NOW - self.age_seconds,
            "weight": 1.0,
            "pace": 1.0,
            "steps_total": self.steps_left,
            "deadline_at": np.inf,
            "preemptions_left": np.inf,
            "isolated_base": self.isolated_seconds,
            "shape": np.arange(columns) * gangs + gang_number[:, None],
            "speed": self.speed,
        }
        for name, value in values.items():
            table.columns[name][:jobs] = value
        table.count = jobs
        return table


def pool(jobs: int, classes: int = 0, types: int = 3, spread: bool = False, gangs: bool = False) -> Pool:
    """So many classes of jobs, or (0) all of them different; a GPU of each type for every eight jobs."""
    random = np.random.default_rng(0)
    models = classes or jobs
    fastest = random.lognormal(1.0, 1.0, models)
    speed = fastest[:, None] * np.array(PART_OF_SPEED[:types]) * random.uniform(0.6, 1.4, (models, types))
    if spread:
        speed = np.concatenate([speed, speed * random.uniform(0.5, 1.0, (models, types))], axis=1)
    gang = random.choice([1, 2, 4, 8], models, p=[0.7, 0.1, 0.15, 0.05]) if gangs else np.ones(models, dtype=np.int64)
    model = random.permutation(np.arange(jobs) % models)
    columns = speed.shape[1]
    age_seconds = random.exponential(20_000.0, jobs)
    some = models if classes else 0  # who would pair, where no two jobs are alike, is nobody's question here
    kept = random.uniform(0.3, 1.0, (some, some, columns))
    return Pool(
        speed=speed[model],
        kind=np.arange(columns) % types,
        gang=gang[model],
        model=model if classes else np.zeros(jobs, dtype=np.int64),
        gpus=np.full(types, max(jobs // 8, 8)),
        steps_left=speed[model, 0] * random.lognormal(9.0, 1.0, jobs),
        age_seconds=age_seconds,
        isolated_seconds=age_seconds * random.uniform(0.5, 1.5, jobs),
        kept=kept,
    )
