"""Limits per user: queued jobs and GPUs (429), run time of one job (422). Operators are exempt."""

from __future__ import annotations

import time
from math import isinf

from sqlalchemy import Connection, func, select

from horae.service.api.context import Limits
from horae.service.api.identity import Identity
from horae.service.api.problems import Refused
from horae.service.job_file import gpu_counts
from horae.service.models import ENDED, JobSpec
from horae.service.store.schema import jobs

LIVE = ("submitted", "waiting", "pending", "holding", "starting", "running", "stopping", "cancelling", "suspended")
COUNT_SECONDS = 1.0  # a user's jobs are counted at most this often
assert not ENDED & set(LIVE)


def check_limits(spec: JobSpec, who: Identity, limits: Limits) -> JobSpec:
    """The job file within the limits of one job; a missing run time is filled in with the limit."""
    if who.role == "operator":
        return spec
    least = gpu_counts(spec.gpus)[-1]
    if least > limits.gpus:
        raise Refused(
            422, f"{least} GPUs are more than the limit per user", field="gpus", remedy=f"ask for up to {limits.gpus:g}"
        )
    if isinf(limits.duration_seconds):
        return spec
    if spec.max_duration is None:
        return spec.model_copy(update={"max_duration": limits.duration_seconds})
    if spec.max_duration > limits.duration_seconds:
        raise Refused(
            422,
            f"{spec.max_duration:g} s are more than the limit",
            field="max_duration",
            remedy=f"ask for up to {limits.duration_seconds:g}",
        )
    return spec


class QueuedJobs:
    """Counts the jobs of users that have not ended, for the writer's thread.

    Counting all of them for each submission would be slow, so a count is kept for a second, and raised by each
    submission meanwhile: it is never too low for what this process has accepted.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._known: dict[tuple[str, str], tuple[float, int, int]] = {}  # when, jobs, GPUs

    def admit(self, connection: Connection, who: Identity, new_jobs: int, new_gpus: int) -> None:
        limits = self._limits
        if who.role == "operator" or (isinf(limits.queued_jobs) and isinf(limits.gpus)):
            return
        counted_at, count, gpus = self._counted(connection, who)
        if count + new_jobs > limits.queued_jobs:
            raise _full(f"{count:,} of your jobs have not ended; the limit is {limits.queued_jobs:,.0f}")
        if gpus + new_gpus > limits.gpus:
            raise _full(f"your jobs ask for {gpus:,} GPUs already; the limit is {limits.gpus:,.0f}")
        self._known[who.tenant, who.user] = counted_at, count + new_jobs, gpus + new_gpus

    def _counted(self, connection: Connection, who: Identity) -> tuple[float, int, int]:
        key, now = (who.tenant, who.user), time.monotonic()
        known = self._known.get(key)
        if known is not None and now - known[0] < COUNT_SECONDS:
            return known
        query = select(func.count(), func.coalesce(func.sum(jobs.c.gpus), 0)).where(
            jobs.c.state.in_(LIVE), jobs.c.tenant == who.tenant, jobs.c.user == who.user
        )
        count, gpus = connection.execute(query).one()
        if len(self._known) > 10_000:
            self._known.clear()
        return now, int(count), int(gpus)


def _full(detail: str) -> Refused:
    return Refused(429, detail, remedy="wait until some have ended, or cancel some", headers={"Retry-After": "30"})
