"""Jobs and leases as the API shows them, from their rows."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Select, select

from horae.service.api.database import LogClock
from horae.service.models import ENDED, JobSpec, JobView, LeaseView
from horae.service.store.schema import jobs, progress

WAITING = frozenset({"submitted", "waiting", "pending", "holding"})
ON_GPUS = ("starting", "running", "stopping", "cancelling")


def job_rows() -> Select[Any]:
    """The columns of the views, without the job file, which is large."""
    columns = [column for column in jobs.c if column.name not in ("spec", "idempotency_key", "changed_seq")]
    reported = [
        progress.c.epoch.label("reported_epoch"),
        progress.c.steps.label("reported_steps"),
        progress.c.steps_per_second.label("steps_per_second"),
        progress.c.loss.label("loss"),
        progress.c.resumable.label("reported_resumable"),
    ]
    return select(*columns, *reported).select_from(jobs.outerjoin(progress, jobs.c.id == progress.c.job_id))


def job_view(row: Any, clock: LogClock, reason: str = "", spec: str | None = None) -> JobView:
    now = clock.now
    running = max(0.0, now - row.started_at) if row.started_at is not None and row.state not in ENDED else 0.0
    waited_until = next((at for at in (row.first_started_at, row.ended_at) if at is not None), now)
    is_current = row.reported_epoch is not None and row.reported_epoch == row.epoch
    return JobView.model_construct(
        id=row.id,
        name=row.name,
        app=row.app,
        tenant=row.tenant,
        user=row.user,
        model=row.model,
        state=row.state,
        reason=reason or row.reason,
        gpus=row.gpus,
        held_gpus=row.held_gpus,
        gpu_type=row.held_type or row.gpu_type,
        places=row.places.split(),
        guaranteed=row.guaranteed,
        resumable=bool(row.resumable or row.reported_resumable),
        epoch=row.epoch,
        submitted_at=clock.unix(row.submitted_at),
        started_at=clock.unix_or_none(row.started_at),
        first_started_at=clock.unix_or_none(row.first_started_at),
        ended_at=clock.unix_or_none(row.ended_at),
        wait_seconds=max(0.0, waited_until - row.submitted_at),
        run_seconds=row.run_seconds + running,
        gpu_seconds=row.gpu_seconds + running * row.held_gpus,
        preemptions=row.preemptions,
        failures=row.failures,
        steps=max(row.steps, row.reported_steps) if is_current else row.steps,
        steps_total=row.steps_total,
        steps_per_second=row.steps_per_second if is_current else None,
        loss=row.loss,
        rho=row.rho,
        spec=None if spec is None else JobSpec.model_validate_json(spec),
    )


def lease_view(row: Any, clock: LogClock, reason: str) -> LeaseView:
    return LeaseView(
        job_id=row.job_id,
        epoch=row.epoch,
        granted_at=clock.unix(row.granted_at),
        started_at=clock.unix_or_none(row.started_at),
        until=clock.unix(row.until),
        ended_at=clock.unix_or_none(row.ended_at),
        gpu_type=row.gpu_type,
        level=row.level,
        gpus=row.gpus,
        places=row.places.split(),
        guaranteed=row.guaranteed,
        ending=row.ending,
        reason=reason,
        steps=row.steps,
    )
