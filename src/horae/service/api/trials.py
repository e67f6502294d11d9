"""The jobs of one app as trials beside each other."""

from __future__ import annotations

from sqlalchemy import Connection

from horae.service.api.database import LogClock
from horae.service.api.identity import Identity
from horae.service.api.job_queries import JobFilter, filtered
from horae.service.api.job_views import job_rows, job_view
from horae.service.api.masking import ReasonMask
from horae.service.models import ARRAY_MAX, JobSpec, TrialView
from horae.service.store.schema import jobs, trials
from horae.service.sweeps import parameters


def trial_views(connection: Connection, who: Identity, app: str, clock: LogClock) -> list[TrialView]:
    """The trials of an app, as far as the requester may see its jobs, in the order of their submission."""
    query = filtered(job_rows(), JobFilter(app=app), who, clock)
    query = query.add_columns(jobs.c.spec, trials.c.rung, trials.c.bracket, trials.c.position)
    query = query.outerjoin(trials, trials.c.job_id == jobs.c.id)
    rows = connection.execute(query.order_by(jobs.c.number, trials.c.position, jobs.c.id).limit(ARRAY_MAX)).all()
    mask = ReasonMask(connection, who, [row.reason for row in rows])
    found = []
    for row in rows:
        job = job_view(row, clock, mask(row.reason))
        found.append(
            TrialView(
                job_id=job.id,
                name=job.name,
                tenant=job.tenant,
                app=job.app,
                state=job.state,
                reason=job.reason,
                parameters=parameters(JobSpec.model_validate_json(row.spec)),
                steps=job.steps,
                steps_total=job.steps_total,
                loss=job.loss,
                rung=row.rung,
                bracket=row.bracket,
                gpu_hours=job.gpu_seconds / 3600,
            )
        )
    return found
