"""What is there when a question about the future is asked: found once, for all possible futures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from horae.forks.beliefs import PastJob
from horae.model.arrays import Floats
from horae.model.jobs import Job
from horae.model.shapes import Option
from horae.scheduler import Scheduler


@dataclass(frozen=True)
class Present:
    jobs: Mapping[str, Job]  # that have not ended, suspended ones included, with the speeds that are believed now
    steps_done: Mapping[str, Floats]  # by pool: of its jobs, by row
    run_seconds: Mapping[str, float]  # by job that is in a pool: how long it has run, in seconds of its first shape

    @classmethod
    def of(cls, scheduler: Scheduler) -> Present:
        steps = {pool.spec.name: pool.table.view(scheduler.now).steps_done for pool in scheduler.pools}
        return cls(_live_jobs(scheduler), steps, _run_seconds(scheduler, steps))

    def running(self) -> list[PastJob]:
        """The jobs that have run, with how long so far."""
        return [PastJob(self.jobs[job_id], seconds) for job_id, seconds in self.run_seconds.items() if seconds > 0]


def _live_jobs(scheduler: Scheduler) -> dict[str, Job]:
    found = {
        job_id: _believed(pool.table.jobs[row], pool.table.speed[row].tolist())
        for job_id, (pool, serial) in scheduler.jobs.live.items()
        for row in (pool.table.row[serial],)
    }
    return found | {job_id: each.job for job_id, each in scheduler.jobs.suspended.items()}


def _believed(job: Job, speeds: Iterable[float]) -> Job:
    """The job with the speeds of the table, which reports may have revised since it was submitted."""
    revised = [Option(option.shape, speed) for option, speed in zip(job.options, speeds, strict=False) if speed > 0]
    if len(revised) != len(job.options) or tuple(revised) == job.options:
        return job
    copy = object.__new__(Job)  # without the checks that the job has passed
    for name in Job.__slots__:
        object.__setattr__(copy, name, getattr(job, name))
    object.__setattr__(copy, "options", tuple(revised))
    return copy


def _run_seconds(scheduler: Scheduler, steps: Mapping[str, Floats]) -> dict[str, float]:
    found: dict[str, float] = {}
    for job_id, (pool, serial) in scheduler.jobs.live.items():
        running, number = scheduler.jobs.on_gpus(job_id) or (pool, serial)
        row = running.table.row[number]
        speed = float(running.table.speed[row, 0])
        found[job_id] = float(steps[running.spec.name][row]) / speed if speed > 0 else 0.0
    return found
