"""The same trace in the simulator, and how far the two are apart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import chain
from math import inf
from pathlib import Path
from random import Random
from statistics import fmean, pstdev

import numpy as np

from horae.engines.engine import Engine
from horae.engines.simulated import SimulatedEngine
from horae.experiments.simulate import simulate
from horae.model.jobs import Arrival, Truth
from horae.model.setup import Setup
from horae.service.job_file import to_job
from horae_evaluation.live.paced_engine import PacedEngine
from horae_evaluation.live.service_run import JobTimes, Overheads, ServiceRun
from horae_evaluation.live.workload import LiveJob

TOLERANCE = 0.05
SIMULATIONS = 5  # of each real run
OTHER_DRAWS = 20  # of all real runs of a policy
_OTHER_SEEDS = 1_000_000  # above those of real runs

Jobs = tuple[JobTimes, ...]  # of one run, in the order of submission


@dataclass(frozen=True)
class Comparison:
    """Real runs of one trace beside simulations of it.

    A moment more or less can change which job a round preempts, and so all that follows. So there are several
    simulations of each real run: with the same speeds and start-ups, and with delays of the machine drawn anew.
    """

    policy: str
    real: tuple[Jobs, ...]  # by run
    simulated: tuple[tuple[Jobs, ...], ...]  # by run
    other_draws: tuple[Jobs, ...]  # simulations with other speeds and start-ups
    overheads: Overheads

    @cached_property
    def all_simulated(self) -> tuple[Jobs, ...]:
        return tuple(chain.from_iterable(self.simulated))

    @property
    def completion_mean_seconds(self) -> tuple[float, float]:
        """Of the real jobs, and of the simulated."""
        return fmean(map(_mean, self.real)), fmean(map(_mean, self.all_simulated))

    @property
    def completion_difference(self) -> float:
        """Of the simulated mean, relative to the real one."""
        real, simulated = self.completion_mean_seconds
        return simulated / real - 1

    @property
    def run_differences(self) -> tuple[float, ...]:
        """Likewise, by real run."""
        pairs = zip(self.real, self.simulated, strict=True)
        return tuple(fmean(map(_mean, simulated)) / _mean(real) - 1 for real, simulated in pairs)

    @property
    def chance(self) -> tuple[float, float]:
        """By how much mean completion times vary, as relative standard deviations: between simulations of the same real
        run, and between simulations with other draws."""
        return fmean(map(_deviation, self.simulated)), _deviation(self.other_draws)

    @property
    def other_draws_mean_seconds(self) -> float:
        return fmean(map(_mean, self.other_draws))

    @property
    def job_error_p90(self) -> float:
        """The 90th percentile of the relative errors of single jobs, over all jobs of all runs."""
        errors = [
            abs(_mean(simulated) / job.completion_seconds - 1)
            for real, simulations in zip(self.real, self.simulated, strict=True)
            for job, *simulated in zip(real, *simulations, strict=True)
        ]
        return float(np.quantile(errors, 0.9))

    @property
    def preemptions(self) -> tuple[float, float]:
        return fmean(map(_preemptions, self.real)), fmean(map(_preemptions, self.all_simulated))

    @property
    def makespan_seconds(self) -> tuple[float, float]:
        """From the first submission to the last end."""
        return fmean(map(_makespan, self.real)), fmean(map(_makespan, self.all_simulated))

    @property
    def holds(self) -> bool:
        return abs(self.completion_difference) <= TOLERANCE

    def plain(self) -> dict[str, object]:
        return {
            "policy": self.policy,
            "jobs": len(self.real[0]),
            "completion_mean_seconds": _two(self.completion_mean_seconds),
            "completion_difference": self.completion_difference,
            "run_differences": self.run_differences,
            "job_error_p90": self.job_error_p90,
            "chance": {"same_draws": self.chance[0], "other_draws": self.chance[1]},
            "other_draws_mean_seconds": self.other_draws_mean_seconds,
            "preemptions": _two(self.preemptions),
            "makespan_seconds": _two(self.makespan_seconds),
            "delays_mean_seconds": dict(zip(("starting", "leaving", "closing"), self.overheads.means, strict=True)),
            "real": [_plain(jobs) for jobs in self.real],
            "simulated": [[_plain(jobs) for jobs in simulations] for simulations in self.simulated],
        }


def compare(
    policy: str, runs: Sequence[ServiceRun], simulations: int = SIMULATIONS, other_draws: int = OTHER_DRAWS
) -> Comparison:
    """Simulates what was run, with the moments of submission of the real jobs."""
    overheads = Overheads.all(run.overheads for run in runs)
    simulated = [
        tuple(_simulation(run, run.overheads, run.seed, chance) for chance in range(simulations)) for run in runs
    ]
    others = [
        _simulation(runs[number % len(runs)], overheads, _OTHER_SEEDS + number, 0) for number in range(other_draws)
    ]
    real = tuple(tuple(run.times.values()) for run in runs)
    return Comparison(policy, real, tuple(simulated), tuple(others), overheads)


def _simulation(run: ServiceRun, overheads: Overheads, seed: int, chance: int) -> Jobs:
    submitted_at = {job_id: job.submitted_at for job_id, job in run.times.items()}
    jobs = simulate_jobs(run.config.setup, run.jobs, submitted_at, overheads, seed, chance)
    return tuple(jobs[job_id] for job_id in run.times)


def simulate_jobs(
    setup: Setup,
    jobs: Mapping[str, LiveJob],
    submitted_at: Mapping[str, float],
    overheads: Overheads,
    seed: int,
    chance: int = 0,
) -> dict[str, JobTimes]:
    """The simulated times by job id: `seed` determines the speeds and start-ups, as of real jobs, and `chance` the
    delays of the machine."""
    # Surveys tell a service what its engine runs; here they would only keep the clock running.
    setup = replace(setup, survey_seconds=inf)
    arrivals = [arrival(setup, job_id, job, submitted_at[job_id]) for job_id, job in jobs.items()]

    def paced(engine: Engine) -> Engine:
        assert isinstance(engine, SimulatedEngine)
        return PacedEngine(engine, arrivals, jobs, seed, overheads, Random(f"machine {chance}"))

    log = simulate(setup, arrivals, wrap=paced).log
    leases = np.bincount(log.leases.job, minlength=len(log.jobs))
    preemptions = np.bincount(log.leases.job[log.leases.preempted], minlength=len(log.jobs))
    columns = log.jobs.submitted_at, log.jobs.started_at, log.jobs.ended_at, leases, preemptions
    rows = zip(log.jobs.id, *(column.tolist() for column in columns), strict=True)
    return {job_id: JobTimes(jobs[job_id].name, *row) for job_id, *row in rows}


def arrival(setup: Setup, job_id: str, job: LiveJob, at: float) -> Arrival:
    """A job as the service's scheduler gets it; its truth is drawn when it starts."""
    made = to_job(job.spec(0, Path()), job_id, "", setup, at)
    return Arrival(made, Truth(job.steps, made.options))


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


def _plain(jobs: Jobs) -> list[dict[str, object]]:
    return [asdict(job) for job in jobs]


def _two(values: tuple[float, float]) -> dict[str, float]:
    return {"real": values[0], "simulated": values[1]}
