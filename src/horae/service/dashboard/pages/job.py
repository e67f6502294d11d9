"""Job: why it waits or moved, its leases, progress and loss, speeds, output. All of it outlives the job."""

from __future__ import annotations

from typing import Any

from horae.service.api.routes import job_details, jobs, progress
from horae.service.api.speeds import speed_rows
from horae.service.dashboard.page import View
from horae.service.models import ENDED, JobSpec, JobView

LEASES_SHOWN = 500  # the latest; a job that is preempted every round for a month has thousands


async def data(view: View) -> dict[str, Any]:
    """All about one job, but its events, trials, ETA and output: the page asks for these by themselves."""
    job_id, who, all_ = view.path["job_id"], view.who, view.all_
    job = await jobs.show(job_id, who, all_)
    leases = await job_details.list_leases(job_id, who, all_)
    reported = await progress.show(job_id, who, all_)
    why = None if job.state in ENDED else await job_details.why(job_id, who, all_)
    if job.rho is None and job.state not in ENDED:
        told = (await all_.loop.ask_if_quick({"rho": [job_id]})).get("rho")
        job.rho = told.get(job_id) if isinstance(told, dict) else None
    return {
        "job": job.model_dump(mode="json", exclude={"spec"}),
        "request": _request(job),
        "why": None if why is None else why.model_dump(mode="json"),
        "leases": [lease.model_dump(mode="json") for lease in leases[-LEASES_SHOWN:]],
        "leases_before": max(0, len(leases) - LEASES_SHOWN),
        "progress": reported.model_dump(mode="json"),
        "speeds": await _speeds(view, job),
        "has_app": job.app != job.id,  # shared with other jobs
        "may_change": who.has_role("user") and who.may_change_job(job.tenant, job.user),
    }


def _request(job: JobView) -> dict[str, Any]:
    """What the job file asked for. Its environment is left out: people keep secrets there."""
    spec = job.spec or JobSpec(run="?")
    named = ("run", "workdir", "priority", "grace", "retries", "after", "deadline", "max_duration", "pty")
    asked = spec.model_dump(mode="json", include=set(named))
    return {name: asked[name] for name in named}


async def _speeds(view: View, job: JobView) -> list[dict[str, Any]]:
    spec, all_ = job.spec, view.all_
    if spec is None:
        return []
    known = await all_.read(all_.setups.read)
    return await all_.read(lambda connection: speed_rows(connection, job, spec, known.setup))
