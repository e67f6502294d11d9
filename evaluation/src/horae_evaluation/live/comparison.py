"""The same trace in the simulator, which knows only means, and how far the two are apart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from math import inf
from pathlib import Path
from random import Random
from statistics import fmean, pstdev

import numpy as np

from horae.experiments.simulate import simulate
from horae.model.jobs import Arrival, Truth
from horae.model.setup import Setup
from horae.service.job_file import to_job
from horae_evaluation.live.service_run import JobTimes, Overheads, ServiceRun
from horae_evaluation.live.workload import LiveJob

TOLERANCE = 0.05
SIMULATIONS = 20
SHIFT_SECONDS = 0.5  # by which submissions differ between simulations, at most


@dataclass(frozen=True)
class Comparison:
    """One real run beside several simulations of it, whose submissions differ by fractions of a second.

    A moment more or less can change which job a round preempts, and so all that follows. One simulation would be one
    sample, as the real run is; several show how much of a difference is chance.
    """

    policy: str
    real: tuple[JobTimes, ...]  # in the order of submission, as are the simulated
    simulated: tuple[tuple[JobTimes, ...], ...]  # by simulation
    overheads: Overheads

    @property
    def completion_mean_seconds(self) -> tuple[float, float]:
        """Of the real jobs, and of the simulated."""
        return _mean(self.real), fmean(map(_mean, self.simulated))

    @property
    def completion_deviation(self) -> float:
        """The standard deviation of the mean completion time between simulations, relative to their mean."""
        return pstdev(map(_mean, self.simulated)) / self.completion_mean_seconds[1]

    @property
    def completion_difference(self) -> float:
        """Of the simulated mean, relative to the real one."""
        real, simulated = self.completion_mean_seconds
        return simulated / real - 1

    @property
    def job_error_p90(self) -> float:
        """The 90th percentile of the relative errors of single jobs."""
        by_job = zip(*self.simulated, strict=True)
        errors = [abs(_mean(jobs) / job.completion_seconds - 1) for job, jobs in zip(self.real, by_job, strict=True)]
        return float(np.quantile(errors, 0.9))

    @property
    def preemptions(self) -> tuple[int, float]:
        return _preemptions(self.real), fmean(map(_preemptions, self.simulated))

    @property
    def makespan_seconds(self) -> tuple[float, float]:
        """From the first submission to the last end."""
        return _makespan(self.real), fmean(map(_makespan, self.simulated))

    @property
    def holds(self) -> bool:
        return abs(self.completion_difference) <= TOLERANCE

    def plain(self) -> dict[str, object]:
        return {
            "policy": self.policy,
            "jobs": len(self.real),
            "completion_mean_seconds": _two(self.completion_mean_seconds),
            "completion_difference": self.completion_difference,
            "completion_deviation": self.completion_deviation,
            "job_error_p90": self.job_error_p90,
            "preemptions": _two(self.preemptions),
            "makespan_seconds": _two(self.makespan_seconds),
            "overheads": asdict(self.overheads),
            "real": [asdict(job) for job in self.real],
            "simulated": [[asdict(job) for job in jobs] for jobs in self.simulated],
        }


def compare(policy: str, run: ServiceRun, simulations: int = SIMULATIONS) -> Comparison:
    """Simulates what was run. Of single real jobs, only the moments of their submissions are used."""
    submitted_at = {job_id: job.submitted_at for job_id, job in run.times.items()}
    simulated = [
        simulate_jobs(run.config.setup, run.jobs, _shifted(submitted_at, number), run.overheads)
        for number in range(simulations)
    ]
    in_order = tuple(tuple(jobs[job_id] for job_id in run.times) for jobs in simulated)
    return Comparison(policy, tuple(run.times.values()), in_order, run.overheads)


def _shifted(submitted_at: Mapping[str, float], seed: int) -> dict[str, float]:
    """The same submissions in the same order, each a little later."""
    random = Random(seed)
    later = sorted(at + random.uniform(0.0, SHIFT_SECONDS) for at in submitted_at.values())
    return dict(zip(submitted_at, later, strict=True))


def simulate_jobs(
    setup: Setup, jobs: Mapping[str, LiveJob], submitted_at: Mapping[str, float], overheads: Overheads
) -> dict[str, JobTimes]:
    """The simulated times by job id. Jobs run at their mean speeds, and all have the same overheads."""
    # Surveys tell a service what its engine runs; here they would only keep the clock running.
    setup = replace(setup, survey_seconds=inf)
    arrivals = [arrival(setup, job_id, job, submitted_at[job_id], overheads) for job_id, job in jobs.items()]
    log = simulate(setup, arrivals).log
    leases = np.bincount(log.leases.job, minlength=len(log.jobs))
    preemptions = np.bincount(log.leases.job[log.leases.preempted], minlength=len(log.jobs))
    columns = log.jobs.submitted_at, log.jobs.started_at, log.jobs.ended_at, leases, preemptions
    rows = zip(log.jobs.id, *(column.tolist() for column in columns), strict=True)
    return {job_id: JobTimes(jobs[job_id].name, *row) for job_id, *row in rows}


def arrival(setup: Setup, job_id: str, job: LiveJob, at: float, overheads: Overheads) -> Arrival:
    """A job as the service's scheduler gets it, with the means as its truth."""
    made = to_job(job.spec(0, Path()), job_id, "", setup, at)
    truth = Truth(
        job.steps,
        made.options,
        leaving_seconds=overheads.leaving_seconds,
        startup_seconds=overheads.startup_seconds,
        resume_seconds=overheads.resume_seconds,
        closing_seconds=overheads.closing_seconds,
    )
    return Arrival(made, truth)


def _mean(jobs: Iterable[JobTimes]) -> float:
    return fmean(job.completion_seconds for job in jobs)


def _preemptions(jobs: Iterable[JobTimes]) -> int:
    return sum(job.preemptions for job in jobs)


def _makespan(jobs: Iterable[JobTimes]) -> float:
    spans = [(job.submitted_at, job.ended_at) for job in jobs]
    return max(ended_at for _, ended_at in spans) - min(submitted_at for submitted_at, _ in spans)


def _two(values: tuple[float, float]) -> dict[str, float]:
    return {"real": values[0], "simulated": values[1]}
