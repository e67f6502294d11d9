"""What completion time depends on, beside the policy: the length of rounds, restarts, wrong speeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from horae.learning import Learning
from horae.reproduction.gavel import Case
from horae.reproduction.rows import HOUR, Solve, Spread, by_case

RESTART_SECONDS = 60.0  # where rounds are varied, so that a preemption has its price


@dataclass(frozen=True)
class Sweep:
    name: str
    axis: str  # in words, with the unit
    values: tuple[float, ...]
    change: Callable[[Case, float], Case]


SWEEPS: Mapping[str, Sweep] = MappingProxyType(
    {
        sweep.name: sweep
        for sweep in (
            Sweep(
                "rounds",
                f"length of a round (minutes; restarts cost {RESTART_SECONDS:g} s)",
                (6, 12, 24, 48),
                lambda case, value: replace(case, round_seconds=60.0 * value, restart_seconds=RESTART_SECONDS),
            ),
            Sweep(
                "restart",
                "cost of a restart (seconds)",
                (0, 15, 30, 60, 120),
                lambda case, value: replace(case, restart_seconds=value),
            ),
            Sweep(
                "noise",
                "error of believed speeds (%)",
                (0, 10, 20, 30, 50),
                lambda case, value: replace(case, speed_noise=value / 100),
            ),
            Sweep(
                "profiling",
                "profiling of one model on one GPU type (seconds)",
                (0, 60, 150, 300, 600),
                lambda case, value: replace(case, learning=Learning(profile_seconds=value)),
            ),
        )
    }
)


@dataclass(frozen=True)
class Step:
    sweep: str
    value: float
    workload: str
    jobs_per_hour: float
    hours: Spread
    restarts_per_job: float
    restart_share: float  # of all GPU time


def run_sweep(sweep: Sweep, rates: Mapping[str, Sequence[float]], like: Case, seeds: int, solve: Solve) -> list[Step]:
    points = [(workload, rate, value) for workload, each in rates.items() for rate in each for value in sweep.values]
    cases = [
        sweep.change(replace(like, workload=workload, jobs_per_hour=rate), value) for workload, rate, value in points
    ]
    found = []
    for (workload, rate, value), results in zip(points, by_case(cases, seeds, solve), strict=True):
        hours = Spread.of([result.completion_mean_seconds / HOUR for result in results])
        restarts = float(np.mean([result.restarts_per_job for result in results]))
        share = float(np.mean([result.restart_share for result in results]))
        found.append(Step(sweep.name, value, workload, rate, hours, restarts, share))
    return found
