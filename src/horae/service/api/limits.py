"""Limits per user: jobs that have not ended (429), GPUs, grace and run time of one job (422). Operators are exempt.

Interactive jobs hold GPUs while their users think, so that they have limits of their own, and always end.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping

from sqlalchemy import ColumnElement, Connection, and_, func, select

from horae.model.safe_text import shown
from horae.service.api.context import Context, Limits
from horae.service.api.identity import Identity
from horae.service.api.problems import Refused
from horae.service.job_file import gpu_counts
from horae.service.models import LIVE, JobSpec
from horae.service.store.schema import jobs

Owner = tuple[str, str]  # tenant and user
INTERACTIVE = "interactive"
COUNT_SECONDS = 1.0  # a user's jobs are counted at most this often
USERS_MAX = 10_000  # whose counts are remembered


def check_limits(spec: JobSpec, who: Identity, limits: Limits) -> JobSpec:
    """The job file within the limits of one job; a missing run time is filled in with the limit."""
    is_interactive = spec.priority == INTERACTIVE
    if spec.pty and not is_interactive:
        raise Refused(422, "only interactive jobs have a terminal", field="pty", remedy="set priority: interactive")
    if spec.pty and (spec.processes > 1 or spec.array or spec.sweep):
        raise Refused(422, "one process has a terminal", field="pty", remedy="leave out processes, array and sweep")
    if who.role == "operator":
        return _bounded(spec, limits.interactive_duration) if is_interactive else spec
    gpus_max, seconds_max = limits.gpus_per_user, limits.max_duration
    if is_interactive:
        gpus_max = min(limits.interactive_gpus, gpus_max or limits.interactive_gpus)
        seconds_max = min(limits.interactive_duration, seconds_max or limits.interactive_duration)
    least = gpu_counts(spec.gpus)[-1]
    if gpus_max is not None and least > gpus_max:
        raise Refused(422, f"{least} GPUs are more than you may use", field="gpus", remedy=f"ask for up to {gpus_max}")
    if spec.grace > limits.grace:
        detail = f"{spec.grace:g} s are more than a job may take to leave"
        raise Refused(422, detail, field="grace", remedy=f"ask for up to {limits.grace:g}")
    if seconds_max is None:
        return spec
    if spec.max_duration is not None and spec.max_duration > seconds_max:
        detail = f"{spec.max_duration:g} s are more than a job may run"
        raise Refused(422, detail, field="max_duration", remedy=f"ask for up to {seconds_max:g}")
    return _bounded(spec, seconds_max)


def _bounded(spec: JobSpec, seconds: float) -> JobSpec:
    return spec if spec.max_duration is not None else spec.model_copy(update={"max_duration": seconds})


class QueuedJobs:
    """Counts the jobs of users that have not ended, for the writer's thread.

    Counting all of them for each submission would be slow, so a count is kept for a second, and raised by each
    submission meanwhile: it is never too low for what this process has accepted.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._known: dict[tuple[str, str], tuple[float, int]] = {}  # when, jobs

    @property
    def limits(self) -> Limits:
        return self._context.limits

    def admit(self, connection: Connection, who: Identity, new_jobs: Mapping[Owner, int]) -> None:
        """Counts new jobs, by the tenant and user to which they belong; raises if one would have too many."""
        limit = self.limits.jobs_per_user
        if who.role == "operator" or limit is None:
            return
        admitted: dict[Owner, tuple[float, int]] = {}
        for owner, number in new_jobs.items():
            counted_at, count = self._known.get(owner, (0.0, 0))
            if time.monotonic() - counted_at >= COUNT_SECONDS:
                counted_at, count = time.monotonic(), _count(connection, owner)
            if count + number > limit:
                whose = "your jobs" if owner[1] == who.user else f"the jobs of {shown(owner[1])}"
                raise _too_many(count, limit, whose)
            admitted[owner] = counted_at, count + number
        if len(self._known) >= USERS_MAX:
            self._known.clear()
        self._known |= admitted


def admit_interactive(
    connection: Connection, who: Identity, new_jobs: Mapping[Owner, int], before: Mapping[Owner, int], limits: Limits
) -> None:
    """Raises unless users may have so many more interactive jobs; `before` are accepted and not in the store yet."""
    if who.role == "operator":
        return
    for owner, number in new_jobs.items():
        live = select(jobs.c.spec).where(_live_jobs_of(owner), jobs.c.spec.like(f'%"{INTERACTIVE}"%'))
        found = sum(json.loads(spec).get("priority") == INTERACTIVE for spec in connection.scalars(live))
        found += before.get(owner, 0)
        if found + number > limits.interactive_jobs:
            whose = "your" if owner[1] == who.user else f"{shown(owner[1])}'s"
            raise Refused(
                429,
                f"{found} of {whose} interactive jobs have not ended, and {limits.interactive_jobs} may be there",
                field="priority",
                remedy="end one of them, or submit a job that is not interactive",
                headers={"Retry-After": "30"},
            )


def _too_many(count: int, limit: int, whose: str) -> Refused:
    return Refused(
        429,
        f"{count:,} of {whose} have not ended, and {limit:,} may be there at a time",
        remedy="wait until some have ended, or cancel some",
        headers={"Retry-After": "30"},
    )


def _count(connection: Connection, owner: Owner) -> int:
    return int(connection.scalar(select(func.count()).where(_live_jobs_of(owner))) or 0)


def _live_jobs_of(owner: Owner) -> ColumnElement[bool]:
    return and_(jobs.c.state.in_(LIVE), jobs.c.tenant == owner[0], jobs.c.user == owner[1])
