"""Enters jobs into pools: their numbers, their rows, and the history they carry over from another pool."""

from __future__ import annotations

from horae.model.arrays import Bools
from horae.model.job_table import JobNumbers
from horae.model.jobs import Job
from horae.model.plans import Riders
from horae.model.reasons import Never
from horae.scheduler.interning import Interned
from horae.scheduler.jobs import CARRIED, JobRegistry, SuspendedJob, is_loan
from horae.scheduler.placer import Placer
from horae.scheduler.pool import Pool


class Intake:
    def __init__(self, interned: Interned, placer: Placer, jobs: JobRegistry) -> None:
        self._interned = interned
        self._placer = placer
        self._jobs = jobs

    def submit(self, pool: Pool, job: Job, now: float) -> Never | None:
        """Enters a new job into a pool, unless it can never run there; returns the reason in that case."""
        demand = self._interned.demands.number(job.demand)
        never = pool.never(demand, self._interned.demands.all[demand], self._placer)
        if never is None:
            self._enter(pool, job, self._jobs.new_serial(job.id), demand, now)
        return never

    def enter(self, pool: Pool, job: Job, serial: int, now: float) -> None:
        """Enters a job that already has a serial into a pool."""
        self._enter(pool, job, serial, self._interned.demands.number(job.demand), now)

    def _enter(self, pool: Pool, job: Job, serial: int, demand: int, now: float) -> None:
        app = pool.apps.join(job, now)
        interned = self._interned
        tenant, user = interned.tenants.number(job.tenant), interned.users.number(job.owner)
        model = interned.models.number(job.model)
        shapes = pool.option_shapes(demand, interned.demands.all[demand], interned.shapes, self._placer)
        entry = JobNumbers(app.number, tenant, user, demand, shapes, app.submitted_at, app.integral, model)
        pool.table.add(serial, job, entry)
        pool.unsettled += 1
        if not is_loan(serial):
            self._jobs.live[job.id] = (pool, serial)
        pool.welcome(serial, now)

    def take(self, free: Bools, riders: Riders, job: Job) -> bool:
        """Takes GPUs for a job off those that are free, if it fits there; returns whether it does."""
        demand = job.demand
        for shape in demand.shapes:
            spot = self._placer.place(free, riders, demand, shape)
            if spot is not None:
                free[spot.gpus] = False
                return True
        return False

    def could_hold(self, pool: Pool, job: Job) -> bool:
        """Whether a job would fit a pool if that were empty."""
        return self.never(pool, job) is None

    def never(self, pool: Pool, job: Job) -> Never | None:
        """Why a job can never run in a pool; None if it can."""
        number = self._interned.demands.number(job.demand)
        return pool.never(number, self._interned.demands.all[number], self._placer)

    def reenter(self, pool: Pool, withdrawn: SuspendedJob, now: float) -> None:
        """Enters a job that was in a pool before into this one, with its history."""
        self.enter(pool, withdrawn.job, withdrawn.serial, now)
        row = pool.table.row[withdrawn.serial]
        for name in CARRIED:
            column, values = pool.table.columns[name][row : row + 1], withdrawn.carried[name]
            if column.ndim == 1:
                column[:] = values
            else:  # tables differ in their capacity for options
                options = min(column.shape[-1], values.shape[-1])
                column[:, :options] = values[:, :options]
