"""The speeds of one job in each shape that it accepts: believed by the scheduler, and measured by its model's jobs."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, select

from horae.model.errors import HoraeError
from horae.model.setup import Setup
from horae.service.job_file import options_of
from horae.service.models import JobSpec
from horae.service.store.schema import speeds

SHOWN_MAX = 60  # shapes


def speed_rows(connection: Connection, job: Any, spec: JobSpec, setup: Setup) -> list[dict[str, Any]]:
    """One row per shape, in the order of the job's preference. A measured speed replaces the one that was declared."""
    table = speeds.c
    measured = {}
    if job.model:
        query = select(speeds).where(table.tenant == job.tenant, table.model == job.model)
        measured = {(row.gpu_type, row.gpus): row for row in connection.execute(query)}
    try:
        options = options_of(spec, setup.cluster, {key: row.steps_per_second for key, row in measured.items()})
    except HoraeError:  # the cluster no longer has its GPU types
        options = ()
    rows = []
    for option in options[:SHOWN_MAX]:
        kind, gpus, level = option.shape
        known = measured.get((kind, gpus))
        rows.append(
            {
                "gpu_type": kind,
                "gpus": gpus,
                "level": level,
                "believed": option.steps_per_second if known is None else known.steps_per_second,
                "measured": None if known is None else known.steps_per_second,
                "measured_at": None if known is None else known.wall,
                "reports": 0 if known is None else known.reports,
                "is_held": (kind, gpus) == (job.gpu_type, job.held_gpus),
            }
        )
    return rows
