"""The columns of a list of jobs."""

from __future__ import annotations

from collections.abc import Sequence

from horae.cli.live.tables import Column
from horae.cli.live.times import NONE, duration, local
from horae.service.models import ENDED, JobView

LIVE = ("submitted", "waiting", "pending", "holding", "starting", "running", "stopping", "cancelling", "suspended")


def where(job: JobView) -> str:
    """The nodes on which a job runs, or in parentheses why it does not."""
    if job.places and job.state not in ENDED:
        return " ".join(nodes_of(job.places))
    return f"({job.reason})" if job.reason else ""


def nodes_of(places: Sequence[str]) -> list[str]:
    """The nodes of GPUs that are named NODE/GPU, each once."""
    return list(dict.fromkeys(place.rpartition("/")[0] or place for place in places))


def rho(job: JobView) -> str:
    return NONE if job.rho is None else f"{job.rho:,.2f}"


def progress(job: JobView) -> str:
    if not job.steps_total:
        return f"{job.steps:,.0f}" if job.steps else NONE
    return f"{job.steps / job.steps_total:.0%}"


JOB_COLUMNS: tuple[Column[JobView], ...] = (
    Column("ID", lambda job: job.id),
    Column("NAME", lambda job: job.name, is_cut=True),
    Column("USER", lambda job: job.user, is_cut=True),
    Column("TENANT", lambda job: job.tenant, is_cut=True),
    Column("APP", lambda job: job.app, is_wide=True),
    Column("STATE", lambda job: job.state),
    Column("GPUS", lambda job: f"{job.held_gpus}/{job.gpus}", is_number=True),
    Column("TYPE", lambda job: job.gpu_type or "any", is_cut=True),
    Column("RHO", rho, is_number=True),
    Column("WAIT", lambda job: duration(job.wait_seconds), is_number=True),
    Column("RUN", lambda job: duration(job.run_seconds), is_number=True),
    Column("DONE", progress, is_number=True, is_wide=True),
    Column("PREEMPTED", lambda job: str(job.preemptions), is_number=True, is_wide=True),
    Column("GUARANTEED", lambda job: "yes" if job.guaranteed else "no", is_wide=True),
    Column("SUBMITTED", lambda job: local(job.submitted_at), is_wide=True),
    Column("STARTED", lambda job: local(job.first_started_at), is_wide=True),
    Column("ENDED", lambda job: local(job.ended_at), is_wide=True),
    Column("WHERE(REASON)", where, is_cut=True),
)
