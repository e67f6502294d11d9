"""Views of a pool for policies that are tested without a scheduler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import nan
from typing import Any

import numpy as np

from horae.model.cluster import NODE, Cluster
from horae.model.job_table import JobNumbers, JobTable
from horae.model.jobs import Job
from horae.model.shapes import Option, Shape
from horae.model.status import Status
from horae.model.view import AppColumns, View
from horae.placement.fit import levels_of


def view_of(
    machines: Cluster,
    jobs: Sequence[Job],
    running: Mapping[str, int] | None = None,
    now: float = 0.0,
    columns: Mapping[str, Mapping[str, float]] | None = None,
    weights: Mapping[str, float] | None = None,
) -> View:
    """A view in which running jobs have the option of that number since now, from the first GPU on.

    `columns`: values of the job table by column and job.
    """
    running = running or {}
    shapes = list(dict.fromkeys(option.shape for job in jobs for option in job.options))
    apps = list(dict.fromkeys(job.app_id for job in jobs))
    tenants = list(dict.fromkeys(job.tenant for job in jobs))
    table = JobTable(options=max(len(job.options) for job in jobs))
    holder = np.full(machines.gpu_count, -1)
    for serial, job in enumerate(jobs):
        numbers = tuple(shapes.index(option.shape) for option in job.options)
        app, tenant = apps.index(job.app_id), tenants.index(job.tenant)
        table.add(serial, job, JobNumbers(app, tenant, tenant, serial, numbers, job.submitted_at, 0.0))
        if job.id in running:
            option = running[job.id]
            gpus = job.options[option].shape.gpus
            holder[np.flatnonzero(holder < 0)[:gpus]] = serial
            for name, value in (("status", Status.RUNNING), ("epoch", serial), ("option", option)):
                table.columns[name][serial] = int(value)
            table.columns["held_gpus"][serial] = gpus
            table.columns["since"][serial] = table.columns["productive_at"][serial] = now
        for name, values in (columns or {}).items():
            table.columns[name][serial] = values.get(job.id, table.columns[name][serial])
    seconds = [nan if job.steps_total is None else job.steps_total / job.options[0].steps_per_second for job in jobs]
    whole = np.zeros(len(apps))
    for job, each in zip(jobs, seconds, strict=True):
        whole[apps.index(job.app_id)] += job.gpus * each
    nothing = np.zeros(len(apps))
    names = list(machines.accelerators)

    def trial(gone: Any, accelerator: str, gangs: Any) -> Any:
        free = (holder < 0) | np.isin(holder, np.flatnonzero(gone))
        return levels_of(machines, free, accelerator, gangs)

    return View(
        now=now,
        seed=0,
        round_seconds=60.0,
        accelerators=machines.accelerators,
        capacity=np.array([stop - start for start, stop in machines.chain_gpus.values()]),
        cpus=np.inf,
        memory_bytes=np.inf,
        shapes=tuple(shapes),
        shape_accelerator=np.array([names.index(shape.accelerator) for shape in shapes]),
        shape_gpus=np.array([shape.gpus for shape in shapes]),
        shape_level=np.array([machines.levels.index(shape.level) for shape in shapes]),
        levels=machines.levels,
        jobs=table.view(now),
        tenants=tuple(tenants),
        tenant_weight=np.array([(weights or {}).get(name, 1.0) for name in tenants]),
        apps=len(apps),
        app_seconds=0.0,
        fit=lambda accelerator, gpus: None,
        app=AppColumns(whole, nothing.astype(np.int64), nothing, nothing, nothing, nothing - np.inf),
        trial=trial,
    )


def gang(id: str, app: str, gpus: int, seconds: float | None, *levels: str, **fields: Any) -> Job:
    """A job of one step per second with these seconds of work, in shapes of these levels."""
    options = tuple(Option(Shape("v100", gpus, level), 1.0) for level in levels or (NODE,))
    return Job(id, 0.0, options, app=app, steps_total=seconds, **fields)
