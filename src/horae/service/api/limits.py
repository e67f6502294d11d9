"""Limits per user: jobs that have not ended (429), GPUs and run time of one job (422). Operators are exempt."""

from __future__ import annotations

import time

from sqlalchemy import Connection, func, select

from horae.service.api.context import Limits
from horae.service.api.identity import Identity
from horae.service.api.problems import Refused
from horae.service.job_file import gpu_counts
from horae.service.models import JobSpec
from horae.service.store.schema import jobs

LIVE = ("submitted", "waiting", "pending", "holding", "starting", "running", "stopping", "cancelling", "suspended")
COUNT_SECONDS = 1.0  # a user's jobs are counted at most this often
USERS_MAX = 10_000  # whose counts are remembered


def check_limits(spec: JobSpec, who: Identity, limits: Limits) -> JobSpec:
    """The job file within the limits of one job; a missing run time is filled in with the limit."""
    if who.role == "operator":
        return spec
    gpus_max, seconds_max = limits.gpus_per_user, limits.max_duration
    if spec.priority == "interactive":
        gpus_max = min(limits.interactive_gpus, gpus_max or limits.interactive_gpus)
        seconds_max = min(limits.interactive_duration, seconds_max or limits.interactive_duration)
    least = gpu_counts(spec.gpus)[-1]
    if gpus_max is not None and least > gpus_max:
        raise Refused(422, f"{least} GPUs are more than you may use", field="gpus", remedy=f"ask for up to {gpus_max}")
    if seconds_max is None:
        return spec
    if spec.max_duration is None:
        return spec.model_copy(update={"max_duration": seconds_max})
    if spec.max_duration > seconds_max:
        detail = f"{spec.max_duration:g} s are more than a job may run"
        raise Refused(422, detail, field="max_duration", remedy=f"ask for up to {seconds_max:g}")
    return spec


class QueuedJobs:
    """Counts the jobs of users that have not ended, for the writer's thread.

    Counting all of them for each submission would be slow, so a count is kept for a second, and raised by each
    submission meanwhile: it is never too low for what this process has accepted.
    """

    def __init__(self, limits: Limits) -> None:
        self._limit = limits.jobs_per_user
        self._known: dict[tuple[str, str], tuple[float, int]] = {}  # when, jobs

    def admit(self, connection: Connection, who: Identity, new_jobs: int) -> None:
        if who.role == "operator" or self._limit is None:
            return
        key = who.tenant, who.user
        counted_at, count = self._known.get(key, (0.0, 0))
        if time.monotonic() - counted_at >= COUNT_SECONDS:
            counted_at, count = time.monotonic(), _count(connection, who)
        if count + new_jobs > self._limit:
            raise Refused(
                429,
                f"{count:,} of your jobs have not ended, and {self._limit:,} may be there at a time",
                remedy="wait until some have ended, or cancel some",
                headers={"Retry-After": "30"},
            )
        if len(self._known) >= USERS_MAX:
            self._known.clear()
        self._known[key] = counted_at, count + new_jobs


def _count(connection: Connection, who: Identity) -> int:
    mine = (jobs.c.tenant == who.tenant) & (jobs.c.user == who.user)
    return int(connection.scalar(select(func.count()).where(jobs.c.state.in_(LIVE), mine)) or 0)
