"""Handles the engine's reports about leases: they begin, progress and end, or are found by a survey."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from horae.model.commands import Start
from horae.model.events import (
    Ending,
    JobEnded,
    JobPhase,
    JobProgressed,
    JobStarted,
    LeaseAdopted,
    Phase,
    Surveyed,
)
from horae.model.notices import Notice, StartOverdue
from horae.model.plans import Lease
from horae.model.reasons import Overdue
from horae.model.status import FINAL, PENDING, STARTING, STOPPING, Signal, Status
from horae.scheduler import accounting
from horae.scheduler.administration import Administration
from horae.scheduler.holds import Holds
from horae.scheduler.jobs import JobRegistry, home_of, is_loan
from horae.scheduler.leases import Leases
from horae.scheduler.loans import Loans
from horae.scheduler.pool import Pool
from horae.scheduler.pool_set import PoolSet
from horae.scheduler.surveys import Surveys
from horae.scheduler.unacknowledged import Unacknowledged


class EngineEvents:
    """Handlers that return whether the event took effect; otherwise its lease has ended or is unknown."""

    def __init__(
        self,
        pools: PoolSet,
        jobs: JobRegistry,
        leases: Leases,
        holds: Holds,
        loans: Loans,
        surveys: Surveys,
        administration: Administration,
        unacknowledged: Unacknowledged,
        tell: Callable[[Notice], None],
        *,
        start_seconds: float,
        acknowledge_seconds: float,
    ) -> None:
        self._pools = pools
        self._jobs = jobs
        self._leases = leases
        self._holds = holds
        self._loans = loans
        self._surveys = surveys
        self._administration = administration
        self._unacknowledged = unacknowledged
        self._tell = tell
        self._start_seconds = start_seconds
        self._acknowledge_seconds = acknowledge_seconds
        self.handlers: dict[type, Callable[[Any, float], bool]] = {
            JobStarted: self.on_started,
            JobPhase: self.on_phase,
            JobProgressed: self.on_progressed,
            JobEnded: self.on_ended,
            Surveyed: self.on_surveyed,
            LeaseAdopted: self.on_adopted,
        }

    def on_started(self, event: JobStarted | JobPhase | JobProgressed, now: float) -> bool:
        found = self._jobs.current(event.job_id, event.epoch)
        if found is None:
            return False
        self._unacknowledged.answered(Start, event.epoch, event.job_id)
        pool, serial = found
        since = pool.table.since[pool.table.row[serial]]
        accounting.confirm(pool, serial, event.at, now)
        if self._jobs.status(pool, serial) == STARTING:
            self._jobs.signal(pool, serial, Signal.ACKNOWLEDGE, now)
            if self._leases.starting:
                self._leases.begun(event.epoch)
            if pool.unsettled and now > since:
                pool.touch(now)  # it can be contested only from now on
        return True

    def on_phase(self, event: JobPhase, now: float) -> bool:
        if event.phase in (Phase.RUNNING, Phase.SAVING):
            return self.on_started(event, now)
        found = self._jobs.current(event.job_id, event.epoch)
        if found is None:
            return False
        self._unacknowledged.answered(Start, event.epoch, event.job_id)
        if self._jobs.status(*found) == STARTING:
            self._leases.starting.setdefault(event.epoch, now + self._start_seconds)
        return True

    def on_progressed(self, event: JobProgressed, now: float) -> bool:
        found = self._jobs.current(event.job_id, event.epoch)
        if found is None:
            return False
        self.on_started(event, now)
        pool, serial = found
        accounting.report(pool, serial, event.steps, event.at, event.done)
        if is_loan(serial):
            self._loans.sync(serial)
        return True

    def on_ended(self, event: JobEnded, now: float) -> bool:
        if self._surveys.seen_at and (event.job_id, event.epoch) in self._surveys.seen_at:
            self._surveys.gone((event.job_id, event.epoch), now)
        found = self._jobs.current(event.job_id, event.epoch)
        if found is None:
            return False
        pool, serial = found
        before = self._jobs.status(pool, serial)
        # Lost before it ran: the cause is not known to the scheduler, so the start is not retried at once.
        is_stillborn = event.ending is Ending.LOST and not accounting.has_begun(pool, serial, event.steps)
        lease = self._leases.leave(pool, event.epoch, serial, now)
        self._touch_neighbours(pool, lease, now)
        status = self._jobs.signal(pool, serial, self._signal_of(serial, event.ending), now)
        accounting.report(pool, serial, event.steps, event.at)
        if status in FINAL:
            self._holds.release(serial, now)
            if is_loan(serial):
                self._loans.ended(serial, Status(status), now)
            else:
                self._loans.drop(serial, now)
                self._jobs.end(pool, serial, now)
        else:
            accounting.book(pool, serial, min(event.at, now))  # an end may be reported late
            self._wait_again(pool, serial, now)
            expected = before == STOPPING and event.ending is Ending.STOPPED
            if is_stillborn:
                self._jobs.retry_at[home_of(serial)] = now + self._acknowledge_seconds
            if not expected or not self._holds.counts_on(pool, event.epoch, now):
                pool.touch(now)
        self._holds.lease_ended(event.epoch, now)
        if self._administration.leaving:
            self._administration.remove_idle_nodes(now)
        return True

    def _touch_neighbours(self, pool: Pool, lease: Lease, now: float) -> None:
        """Marks other pools for a decision if they share GPUs with this one, or the lease was on their GPUs."""
        if self._pools.has_quotas or (len(self._pools.all) > 1 and not pool.gpus[lease.gpus].all()):
            for neighbour in self._pools:
                neighbour.touch(now)

    def _wait_again(self, pool: Pool, serial: int, now: float) -> None:
        """Suspends a job that left its GPUs with work left, moves it to the GPUs held for it, or requeues it."""
        if is_loan(serial):
            if serial in self._holds.by_serial:
                self._jobs.signal(pool, serial, Signal.HOLD, now)
            self._loans.left(serial, now)
            home = self._jobs.live.get(self._jobs.id_of.get(home_of(serial), ""))
            if home is not None and self._jobs.status(*home) == PENDING:
                self._administration.see_that_it_fits(*home, now)
        elif serial in self._jobs.to_suspend:
            self._holds.release(serial, now)
            self._jobs.suspend(pool, serial, now)
        elif serial in self._holds.by_serial:
            self._jobs.signal(pool, serial, Signal.HOLD, now)
        elif self._administration.has_moved:
            self._administration.see_that_it_fits(pool, serial, now)

    def _signal_of(self, serial: int, ending: Ending) -> Signal:
        if ending is Ending.FINISHED:
            return Signal.FINISH
        if ending is not Ending.FAILED:
            return Signal.LEAVE
        failures = self._jobs.failures.get(home_of(serial), 0) + 1
        self._jobs.failures[home_of(serial)] = failures
        return Signal.FAIL if failures > self._jobs.job(serial).retries_max else Signal.LEAVE

    def on_surveyed(self, event: Surveyed, now: float) -> bool:
        """Reconciles with a survey: leases that the engine no longer runs have ended, even if the message was lost."""
        self._unacknowledged.surveyed(now)
        self._surveys.expect(event, now)
        for fact in self._surveys.facts(event):
            self.handlers[type(fact)](fact, now)
        self._surveys.settle(event, now)
        return True

    def on_adopted(self, event: LeaseAdopted, now: float) -> bool:
        self._surveys.adopt(event, now)
        return True

    def stop_overdue(self, now: float) -> None:
        """Stops and requeues jobs that did not begin to run in time."""
        for epoch, due_at in list(self._leases.starting.items()):
            if due_at > now:
                continue
            del self._leases.starting[epoch]
            for serial in self._leases.by_epoch[epoch].bundle:
                pool = self._jobs.where(serial)
                if self._jobs.status(pool, serial) == STARTING:
                    self._tell(StartOverdue(self._jobs.id_of[serial], epoch))
                    self._leases.stop(pool, serial, Overdue(self._start_seconds), now)
