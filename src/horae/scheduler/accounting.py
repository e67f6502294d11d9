"""Charges leases to jobs: what a job received, how a restart is charged, and how long a lease is protected."""

from __future__ import annotations

from math import inf, isfinite

from horae.model.job_table import NONE
from horae.model.plans import Placement
from horae.scheduler.pool import Pool


def has_begun(pool: Pool, serial: int, steps: float) -> bool:
    """Whether a job has run under its lease: its start was confirmed, or it has made progress."""
    row = pool.table.row[serial]
    return bool(pool.table.confirmed_at[row] < inf or steps > pool.table.steps_base[row])


def book(pool: Pool, serial: int, left_at: float) -> None:
    """Books what a job that will continue received under the lease that it has left."""
    table, row = pool.table, pool.table.row[serial]
    seconds = max(left_at - table.since[row], 0.0) if table.confirmed_at[row] < inf else 0.0
    table.run_base[row] += seconds
    table.service_base[row] += seconds * table.held_gpus[row]
    table.received_base[row, table.option[row]] += seconds
    table.epoch[row] = table.option[row] = NONE
    table.held_gpus[row] = 0
    table.steps_ahead[row] = 0.0
    table.confirmed_at[row] = inf


def lease(pool: Pool, serial: int, option: int, epoch: int, placement: Placement, now: float) -> None:
    """Gives a job GPUs from now on."""
    table, row = pool.table, pool.table.row[serial]
    table.epoch[row], table.option[row] = epoch, option
    table.held_gpus[row] = len(placement.gpus)
    table.pace[row] = 1.0
    table.confirmed_at[row] = inf
    _begin(pool, row, now, placement.lease_seconds)


def _begin(pool: Pool, row: int, at: float, lease_seconds: float, starting_seconds: float = 0.0) -> None:
    """Starts the lease's accounting: its work, its protected time, and its charge."""
    table, job = pool.table, pool.table.jobs[row]
    table.since[row] = at
    resuming_seconds = job.restart_seconds if table.has_run(row) else 0.0
    table.productive_at[row] = at + resuming_seconds
    # Stopping it costs a restart, and starting it took some time: it must have worked at least that long, or two
    # jobs could preempt each other forever without progress.
    restarting_seconds = max(resuming_seconds + job.restart_seconds, starting_seconds)
    protected_seconds = max(job.min_runtime_seconds, restarting_seconds)
    table.protected_until[row] = at + protected_seconds
    table.lease_until[row] = at - pool.spec.lateness(at) + lease_seconds
    if lease_seconds:
        # It may begin after the decision that granted it, whose wake-up does not account for it.
        pool.look_at(float(table.lease_until[row]))


def confirm(pool: Pool, serial: int, at: float, now: float) -> bool:
    """Confirms that the engine runs the job since that time; returns whether that is news. Start-up is free."""
    table, row = pool.table, pool.table.row[serial]
    if table.confirmed_at[row] < inf:
        return False
    table.confirmed_at[row] = at
    began_at, since = min(at, now), float(table.since[row])
    if began_at > since:
        _begin(pool, row, began_at, float(table.lease_until[row]) - since, began_at - since)
    table.runs[row] += 1
    return True


def left_alone(pool: Pool, serial: int, now: float) -> int:
    """Restores a job's full speed after its partner has left the shared GPUs, and returns the job's demand."""
    table, row = pool.table, pool.table.row[serial]
    seconds = max(now - table.productive_at[row], 0.0)
    done = seconds * table.speed[row, table.option[row]] * table.pace[row]
    table.steps_ahead[row] += done
    table.productive_at[row] = max(table.productive_at[row], now)
    table.pace[row] = 1.0
    return int(table.demand[row])


def report(pool: Pool, serial: int, steps: float, at: float, done: float | None = None) -> None:
    """Applies a progress report; saved progress never decreases, and invalid numbers are ignored.

    Where it is not told how many steps are done, those saved are taken for it, unless their number is no news: a job
    that has saved nothing since has done more nevertheless.
    """
    table, row = pool.table, pool.table.row[serial]
    is_told = done is not None and isfinite(done)
    base = table.steps_base[row]
    if isfinite(steps) and (steps > base or (steps == base and is_told)):
        table.steps_base[row] = steps
        table.steps_ahead[row] = max(done - steps, 0.0) if done is not None and is_told else 0.0
        table.productive_at[row] = max(table.productive_at[row], at)
