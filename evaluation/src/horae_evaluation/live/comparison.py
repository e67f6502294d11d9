"""The same trace in the simulator, which knows means and deviations, and how far the two are apart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
from horae_evaluation.live.paced_job import JOB_DEVIATION, STARTUP_SECONDS, lognormal
from horae_evaluation.live.service_run import JobTimes, Overheads, ServiceRun
from horae_evaluation.live.workload import LiveJob

TOLERANCE = 0.05
SIMULATIONS = 20

Jobs = tuple[JobTimes, ...]  # of one run, in the order of submission


@dataclass(frozen=True)
class Comparison:
    """Real runs of one trace beside simulations of it.

    Speeds and start-up times are random in both. A moment more or less can change which job a round preempts, and so
    all that follows: one run of either kind is one sample.
    """

    policy: str
    real: tuple[Jobs, ...]  # by run
    simulated: tuple[Jobs, ...]  # by simulation
    overheads: Overheads

    @property
    def completion_mean_seconds(self) -> tuple[float, float]:
        """Of the real jobs, and of the simulated."""
        return fmean(map(_mean, self.real)), fmean(map(_mean, self.simulated))

    @property
    def completion_deviation(self) -> tuple[float, float]:
        """The standard deviation of the mean completion time between runs, relative to their mean, of either kind."""
        return _deviation(self.real), _deviation(self.simulated)

    @property
    def completion_difference(self) -> float:
        """Of the simulated mean, relative to the real one."""
        real, simulated = self.completion_mean_seconds
        return simulated / real - 1

    @property
    def job_error_p90(self) -> float:
        """The 90th percentile of the relative errors of single jobs, each a mean over runs."""
        by_job = zip(zip(*self.real, strict=True), zip(*self.simulated, strict=True), strict=True)
        return float(np.quantile([abs(_mean(simulated) / _mean(real) - 1) for real, simulated in by_job], 0.9))

    @property
    def preemptions(self) -> tuple[float, float]:
        return fmean(map(_preemptions, self.real)), fmean(map(_preemptions, self.simulated))

    @property
    def makespan_seconds(self) -> tuple[float, float]:
        """From the first submission to the last end."""
        return fmean(map(_makespan, self.real)), fmean(map(_makespan, self.simulated))

    @property
    def holds(self) -> bool:
        return abs(self.completion_difference) <= TOLERANCE

    def plain(self) -> dict[str, object]:
        return {
            "policy": self.policy,
            "jobs": len(self.real[0]),
            "completion_mean_seconds": _two(self.completion_mean_seconds),
            "completion_difference": self.completion_difference,
            "completion_deviation": _two(self.completion_deviation),
            "job_error_p90": self.job_error_p90,
            "preemptions": _two(self.preemptions),
            "makespan_seconds": _two(self.makespan_seconds),
            "overheads": asdict(self.overheads),
            "real": [[asdict(job) for job in jobs] for jobs in self.real],
            "simulated": [[asdict(job) for job in jobs] for jobs in self.simulated],
        }


def compare(policy: str, runs: Sequence[ServiceRun], simulations: int = SIMULATIONS) -> Comparison:
    """Simulates what was run. Of single real jobs, only the moments of their submissions are used."""
    overheads = Overheads.mean([run.overheads for run in runs])
    simulated = [_simulation(runs[number % len(runs)], overheads, number) for number in range(simulations)]
    return Comparison(policy, tuple(tuple(run.times.values()) for run in runs), tuple(simulated), overheads)


def _simulation(run: ServiceRun, overheads: Overheads, seed: int) -> Jobs:
    submitted_at = {job_id: job.submitted_at for job_id, job in run.times.items()}
    jobs = simulate_jobs(run.config.setup, run.jobs, submitted_at, overheads, seed)
    return tuple(jobs[job_id] for job_id in run.times)


def simulate_jobs(
    setup: Setup, jobs: Mapping[str, LiveJob], submitted_at: Mapping[str, float], overheads: Overheads, seed: int
) -> dict[str, JobTimes]:
    """The simulated times by job id. Speeds and start-ups of jobs are drawn from the distributions of the real ones."""
    # Surveys tell a service what its engine runs; here they would only keep the clock running.
    setup = replace(setup, survey_seconds=inf)
    arrivals = [
        arrival(setup, job_id, job, submitted_at[job_id], overheads, Random(f"{seed} {job.name}"))
        for job_id, job in jobs.items()
    ]
    log = simulate(setup, arrivals).log
    leases = np.bincount(log.leases.job, minlength=len(log.jobs))
    preemptions = np.bincount(log.leases.job[log.leases.preempted], minlength=len(log.jobs))
    columns = log.jobs.submitted_at, log.jobs.started_at, log.jobs.ended_at, leases, preemptions
    rows = zip(log.jobs.id, *(column.tolist() for column in columns), strict=True)
    return {job_id: JobTimes(jobs[job_id].name, *row) for job_id, *row in rows}


def arrival(setup: Setup, job_id: str, job: LiveJob, at: float, overheads: Overheads, random: Random) -> Arrival:
    """A job as the service's scheduler gets it, with a draw of its speed and of its start-ups as its truth."""
    made = to_job(job.spec(0, Path()), job_id, "", setup, at)
    pace = 1 / lognormal(random, JOB_DEVIATION)
    options = tuple(option._replace(steps_per_second=option.steps_per_second * pace) for option in made.options)
    shortest, longest = STARTUP_SECONDS
    later_seconds = random.uniform(shortest, longest) - (shortest + longest) / 2
    truth = Truth(
        job.steps,
        options,
        leaving_seconds=overheads.leaving_seconds,
        startup_seconds=max(overheads.startup_seconds + later_seconds, 0.0),
        resume_seconds=max(overheads.resume_seconds + later_seconds, 0.0),
        closing_seconds=overheads.closing_seconds,
    )
    return Arrival(made, truth)


def _mean(jobs: Iterable[JobTimes]) -> float:
    return fmean(job.completion_seconds for job in jobs)


def _deviation(runs: Sequence[Jobs]) -> float:
    means = [_mean(jobs) for jobs in runs]
    return pstdev(means) / fmean(means)


def _preemptions(jobs: Iterable[JobTimes]) -> int:
    return sum(job.preemptions for job in jobs)


def _makespan(jobs: Iterable[JobTimes]) -> float:
    spans = [(job.submitted_at, job.ended_at) for job in jobs]
    return max(ended_at for _, ended_at in spans) - min(submitted_at for submitted_at, _ in spans)


def _two(values: tuple[float, float]) -> dict[str, float]:
    return {"real": values[0], "simulated": values[1]}
