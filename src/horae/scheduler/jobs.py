"""The known jobs: the pools of the live ones, the outcomes of the others, and every change of a status."""

from __future__ import annotations

from collections import deque
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from horae.model.arrays import Bools
from horae.model.job_table import NONE
from horae.model.jobs import Job
from horae.model.reasons import Refusal
from horae.model.status import HOLDING, ON_GPUS, PENDING, STOPPING, Signal, Status, after

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from horae.scheduler.pool import Pool

_UNSETTLED = frozenset({PENDING, HOLDING, STOPPING})

# Columns with a job's history, which it carries over into another pool.
CARRIED = (
    "steps_base", "run_base", "service_base", "service_mark", "received_base", "preemptions_left", "queued_at", "runs",
    "speed", "curve_rate", "curve_start", "curve_floor",
)  # fmt: skip


_LOAN = 1 << 40  # above all serials: a loan has its own row, and therefore its own serial


def loan_of(serial: int) -> int:
    return serial | _LOAN


def home_of(loan: int) -> int:
    return loan & ~_LOAN


def is_loan(serial: int) -> bool:
    return serial >= _LOAN


class Ended(NamedTuple):
    status: Status
    at: float


class SuspendedJob(NamedTuple):
    """A job suspended by its owner: it is in no pool, so that no policy plans for it."""

    job: Job
    serial: int
    carried: dict[str, NDArray[Any]]  # by column


class JobRegistry:
    def __init__(self) -> None:
        self.live: dict[str, tuple[Pool, int]] = {}  # by id: its pool and serial
        self.id_of: dict[int, str] = {}  # by serial, of live and suspended jobs
        self.suspended: dict[str, SuspendedJob] = {}
        self.to_suspend: set[int] = set()  # serials of jobs to be suspended as soon as they have left their GPUs
        self.ended: dict[str, Ended] = {}
        self._end_order: deque[str] = deque()  # ids of ended jobs, earliest end first
        self.refused: dict[str, Refusal] = {}
        self.failures: dict[int, int] = {}  # by serial
        self.retry_at: dict[int, float] = {}  # by serial: when a start that was lost before it ran is retried
        self.lent: dict[int, Pool] = {}  # by serial of a loan: the pool that it is in
        self.serial_next = 0

    def is_known(self, job_id: str) -> bool:
        return job_id in self.live or job_id in self.ended or job_id in self.suspended

    def new_serial(self, job_id: str) -> int:
        serial = self.serial_next
        self.serial_next += 1
        self.id_of[serial] = job_id
        return serial

    # Queries

    def where(self, serial: int) -> Pool:
        return self.lent[serial] if is_loan(serial) else self.live[self.id_of[serial]][0]

    def home(self, loan: int) -> Pool:
        """The pool of the tenant whose job borrows."""
        return self.live[self.id_of[loan]][0]

    def job(self, serial: int) -> Job:
        pool = self.where(serial)
        return pool.table.jobs[pool.table.row[serial]]

    def epoch(self, pool: Pool, serial: int) -> int:
        return int(pool.table.epoch[pool.table.row[serial]])

    def status(self, pool: Pool, serial: int) -> int:
        return int(pool.table.status[pool.table.row[serial]])

    def current(self, job_id: str, epoch: int) -> tuple[Pool, int] | None:
        """The job, if this epoch is its present lease; None for outdated epochs."""
        found = self.live.get(job_id)
        if found is None or epoch == NONE:
            return None
        if self.epoch(*found) == epoch:
            return found
        loan = loan_of(found[1])
        if loan in self.lent and self.epoch(self.lent[loan], loan) == epoch:
            return self.lent[loan], loan
        return None

    def on_gpus(self, job_id: str) -> tuple[Pool, int] | None:
        """The row under which a job holds GPUs, if it does: its own, or that of its loan."""
        found = self.live.get(job_id)
        if found is None:
            return None
        if self.status(*found) in ON_GPUS:
            return found
        loan = loan_of(found[1])
        if loan in self.lent and self.status(self.lent[loan], loan) in ON_GPUS:
            return self.lent[loan], loan
        return None

    def status_of(self, job_id: str) -> Status | None:
        if job_id in self.live:
            return Status(self.status(*(self.on_gpus(job_id) or self.live[job_id])))
        if job_id in self.suspended:
            return Status.SUSPENDED
        ended = self.ended.get(job_id)
        return None if ended is None else ended.status

    def barred(self, pool: Pool, squatting: set[str], now: float) -> Bools | None:
        """By row: whether its job must not start yet, because a run of it still exists, or a start of it was just lost.

        None where there is no such job.
        """
        if not squatting and not self.retry_at:
            return None
        table = pool.table
        barred = np.zeros(table.count, dtype=bool)
        for serial, row in table.row.items():
            barred[row] = table.ids[row] in squatting or self.retry_at.get(home_of(serial), -inf) > now
        return barred if barred.any() else None

    def next_retry_at(self, pool: Pool) -> float:
        """When the next lost start may be retried in a pool."""
        if not self.retry_at:
            return inf
        here = pool.table.row
        return min((at for each, at in self.retry_at.items() if each in here or loan_of(each) in here), default=inf)

    # Changes

    def signal(self, pool: Pool, serial: int, signal: Signal, now: float) -> int:
        """Changes the status of a live job; the only way to do so."""
        table, row = pool.table, pool.table.row[serial]
        before = int(table.status[row])
        status = after(table.ids[row], before, signal)
        table.status[row] = status
        pool.unsettled += (status in _UNSETTLED) - (before in _UNSETTLED)
        if status == PENDING and signal != Signal.RELEASE:
            table.queued_at[row] = now
        return status

    def end(self, pool: Pool, serial: int, now: float) -> None:
        """Removes a live job that has reached a final status."""
        row = pool.table.row[serial]
        job, status = pool.table.jobs[row], Status(pool.table.status[row])
        self._leave(pool, serial, now, is_finished=status is Status.FINISHED)
        self._forget(job.id, serial)
        self.remember(job.id, Ended(status, now))

    def refuse(self, job: Job, refusal: Refusal, now: float) -> None:
        self.refused[job.id] = refusal
        self.remember(job.id, Ended(Status.REFUSED, now))

    def remember(self, job_id: str, ended: Ended) -> None:
        self.ended[job_id] = ended
        self._end_order.append(job_id)

    def withdraw(self, pool: Pool, serial: int, now: float) -> SuspendedJob:
        """Removes a pending job from its pool, and returns it with its history."""
        table, row = pool.table, pool.table.row[serial]
        job = table.jobs[row]
        carried = {name: table.columns[name][row : row + 1].copy() for name in CARRIED}
        pool.unsettled -= 1
        self._leave(pool, serial, now, is_finished=False)
        del self.live[job.id]
        return SuspendedJob(job, serial, carried)

    def suspend(self, pool: Pool, serial: int, now: float) -> None:
        self.to_suspend.discard(serial)
        withdrawn = self.withdraw(pool, serial, now)
        self.suspended[withdrawn.job.id] = withdrawn

    def drop(self, job: Job, serial: int, status: Status, now: float) -> None:
        """Ends a job that is in no pool."""
        self.suspended.pop(job.id, None)
        self._forget(job.id, serial)
        self.remember(job.id, Ended(status, now))

    def forget_ended(self, before: float) -> None:
        """Forgets jobs that ended before that time."""
        order = self._end_order
        while order and self.ended[order[0]].at < before:
            job_id = order.popleft()
            del self.ended[job_id]
            self.refused.pop(job_id, None)

    def _leave(self, pool: Pool, serial: int, now: float, *, is_finished: bool) -> None:
        pool.leave_app(serial, now, is_finished=is_finished)
        pool.table.remove(serial)
        pool.touch(now)

    def _forget(self, job_id: str, serial: int) -> None:
        self.live.pop(job_id, None)
        del self.id_of[serial]
        self.failures.pop(serial, None)
        self.retry_at.pop(serial, None)
        self.to_suspend.discard(serial)
