"""Parameters other than the policy that affect completion time: the length of rounds, restarts, wrong speeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from horae.experiments.learning import Learning
from horae_evaluation.gavel.rows import HOUR, Solve, Spread, by_case
from horae_evaluation.gavel.setup import GavelCase

RESTART_SECONDS = 60.0  # where rounds are varied, so that a preemption has a cost


@dataclass(frozen=True)
class Sweep:
    name: str
    axis: str  # in words, with the unit
    values: tuple[float, ...]
    change: Callable[[GavelCase, float], GavelCase]
    compared_with: str = "the first value"
    base: Callable[[GavelCase], GavelCase] | None = None  # the reference; None: the first value

    def base_of(self, case: GavelCase) -> GavelCase:
        return self.base(case) if self.base else self.change(case, self.values[0])


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
                "known speeds",
                lambda case: case,
            ),
            Sweep(
                "estimates",
                "cells profiled, all else estimated and nothing learned later (%)",
                (0, 10, 20, 50, 100),
                lambda case, value: replace(case, learning=Learning(profile_share=value / 100, is_online=False)),
                "known speeds",
                lambda case: case,
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
    change: Spread  # of the mean completion time against the sweep's reference, seed by seed
    restarts_per_job: float
    restart_share: float  # of all GPU time


def run_sweep(
    sweep: Sweep, rates: Mapping[str, Sequence[float]], like: GavelCase, seeds: int, solve: Solve
) -> list[Step]:
    loads = [(workload, rate) for workload, each in rates.items() for rate in each]
    points = [(*load, value) for load in loads for value in sweep.values]
    at = {load: replace(like, workload=load[0], jobs_per_hour=load[1]) for load in loads}
    cases = [sweep.base_of(at[load]) for load in loads]
    cases += [sweep.change(at[workload, rate], value) for workload, rate, value in points]
    results = by_case(cases, seeds, solve)
    bases = dict(zip(loads, results, strict=False))
    found = []
    for (workload, rate, value), each in zip(points, results[len(loads) :], strict=True):
        known = [result.completion_mean_seconds for result in bases[workload, rate]]
        mine = [result.completion_mean_seconds for result in each]
        change = Spread.of([one / other - 1 for one, other in zip(mine, known, strict=True)])
        hours = Spread.of([seconds / HOUR for seconds in mine])
        restarts = float(np.mean([result.restarts_per_job for result in each]))
        share = float(np.mean([result.restart_share for result in each]))
        found.append(Step(sweep.name, value, workload, rate, hours, change, restarts, share))
    return found


ESTIMATES_WITHIN = 0.05  # of the mean completion time with known speeds
PROFILE_SECONDS = Learning().profile_seconds


def too_costly(steps: Sequence[Step]) -> list[Step]:
    """The steps where profiling a fifth of the speeds, and learning the rest online, costs more than the limit."""
    usual = [step for step in steps if step.sweep == "profiling" and step.value == PROFILE_SECONDS]
    return [step for step in usual if step.change.mean > ESTIMATES_WITHIN]
