"""Handles requests of users: jobs are submitted, cancelled, held and released."""

from __future__ import annotations

from dataclasses import replace
from math import inf

from horae.model.events import JobCancelled, JobHeld, JobReleased, JobResumable, JobSubmitted
from horae.model.jobs import Job
from horae.model.reasons import Cancelled, Never, NoPool, Suspended
from horae.model.status import CANCELLING, STOPPING, Signal, Status
from horae.scheduler.administration import Administration
from horae.scheduler.holds import Holds
from horae.scheduler.intake import Intake
from horae.scheduler.jobs import JobRegistry
from horae.scheduler.leases import Leases
from horae.scheduler.loans import Loans
from horae.scheduler.pool import Pool
from horae.scheduler.pool_set import PoolSet


class UserRequests:
    """Handlers that return whether the event took effect; otherwise it was late, duplicated or about an unknown job."""

    def __init__(
        self,
        pools: PoolSet,
        jobs: JobRegistry,
        leases: Leases,
        holds: Holds,
        loans: Loans,
        intake: Intake,
        administration: Administration,
    ) -> None:
        self._pools = pools
        self._jobs = jobs
        self._leases = leases
        self._holds = holds
        self._loans = loans
        self._intake = intake
        self._administration = administration

    def on_submitted(self, event: JobSubmitted, now: float) -> bool:
        job = event.job
        if self._jobs.is_known(job.id):
            return False
        pool = self._pools.of(job)
        refusal = NoPool(job.tenant) if pool is None else self._intake.submit(pool, job, now)
        if pool is not None and isinstance(refusal, Never):
            refusal = replace(refusal, spare=self._spare_for(pool, job))
        if refusal is not None:
            self._jobs.refuse(job, refusal, now)
        return True

    def _spare_for(self, pool: Pool, job: Job) -> str:
        """The pool in which a job that is too large for its tenant's cells could run, with a negative priority."""
        spare = self._pools.open_pool
        if spare is None or spare is pool or not pool.spec.reserves or job.pinned:
            return ""
        return spare.spec.name if self._intake.could_hold(spare, job) else ""

    def on_cancelled(self, event: JobCancelled, now: float) -> bool:
        suspended = self._jobs.suspended.get(event.job_id)
        if suspended is not None:
            self._jobs.drop(suspended.job, suspended.serial, Status.CANCELLED, now)
            return True
        found = self._jobs.live.get(event.job_id)
        if found is None:
            return False
        running = self._jobs.on_gpus(event.job_id)
        grace_seconds = inf if event.grace_seconds is None else event.grace_seconds
        if any(self._jobs.status(*each) == CANCELLING for each in (found, running) if each is not None):
            return running is not None and self._leases.hasten(*running, grace_seconds, now)
        pool, serial = found
        self._holds.release(serial, now)
        if running is None:
            self._loans.drop(serial, now)
            self._jobs.signal(pool, serial, Signal.CANCEL, now)
            self._jobs.end(pool, serial, now)
            return True
        self._leases.stop(*running, Cancelled(), now, grace_seconds)
        return True

    def on_held(self, event: JobHeld, now: float) -> bool:
        found = self._jobs.live.get(event.job_id)
        if found is None or self._jobs.status(*found) == CANCELLING or found[1] in self._jobs.to_suspend:
            return False
        pool, serial = found
        running = self._jobs.on_gpus(event.job_id)
        if running is not None and self._jobs.status(*running) == CANCELLING:
            return False
        self._holds.release(serial, now)
        if running is None:
            self._loans.drop(serial, now)
            self._jobs.suspend(pool, serial, now)
            return True
        self._jobs.to_suspend.add(serial)
        if self._jobs.status(*running) != STOPPING:
            self._leases.stop(*running, Suspended(), now)
        return True

    def on_released(self, event: JobReleased, now: float) -> bool:
        found = self._jobs.live.get(event.job_id)
        if found is not None and found[1] in self._jobs.to_suspend:
            self._jobs.to_suspend.discard(found[1])  # it waits again as soon as it has left its GPUs
            return True
        suspended = self._jobs.suspended.pop(event.job_id, None)
        if suspended is None:
            return False
        pool = self._pools.of(suspended.job)
        if pool is None:
            self._jobs.drop(suspended.job, suspended.serial, Status.REFUSED, now)
            self._jobs.refused[suspended.job.id] = NoPool(suspended.job.tenant)
            return True
        self._intake.reenter(pool, suspended, now)
        pool.table.queued_at[pool.table.row[suspended.serial]] = now
        self._administration.see_that_it_fits(pool, suspended.serial, now)
        return True

    def on_resumable(self, event: JobResumable, now: float) -> bool:
        """Lifts the limit of preemptions, which protects jobs that would lose all their work."""
        found = self._jobs.live.get(event.job_id)
        if found is None:
            return False
        for pool, serial in {found, self._jobs.on_gpus(event.job_id) or found}:  # on borrowed GPUs it has two rows
            pool.table.preemptions_left[pool.table.row[serial]] = inf
            pool.touch(now)
        return True
