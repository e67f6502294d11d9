"""Gavel's policies: how long a decision takes, beside the straightforward formulation, and how long a simulation.

A decision is `decide(view)` from the job table to the shares, with its proof; the first, which loads kernels, is not
counted. The straightforward formulation (bench/straightforward.py) is solved in the same process, for the same pool or,
where that would take too long, for a smaller one, for which we are timed once more.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import NamedTuple

from bench.cases import Result, data_folder, loop_seconds
from bench.pools import Pool, pool
from horae.experiments.simulate import simulate
from horae.model.cluster import Cluster, Node
from horae.model.decisions import Shares
from horae.model.setup import Cadence, PoolSpec, Setup
from horae.model.view import Policy
from horae.policies import make_policy
from horae.speed.table import SpeedBook
from horae.traces import speed_tables
from horae.traces.generators.gavel import GavelWorkload, reference_speeds
from horae.traces.jobs import arrivals

WARM_UP_SECONDS = 1.5
TURNS = 5  # the fastest counts, for noise only adds
PUBLIC_SIMULATION_SECONDS = 257.0  # Gavel's own simulator on the same workload, one core
CLASSES = 26  # as many as there are job types in Gavel's tables

LEAST: tuple[str, dict[str, object]] = ("max-min", {"fill": False})
FILLED: tuple[str, dict[str, object]] = ("max-min", {"fill": True})
IN_PAIRS: tuple[str, dict[str, object]] = ("max-min", {"fill": False, "sharing": True})
FINISH_TIME: tuple[str, dict[str, object]] = ("finish-time-fairness", {})


@dataclass(frozen=True)
class Solve(Result):
    gap: float  # between the value and its proven bound, relative
    compared_jobs: int  # 0: not compared
    compared_seconds: float
    straightforward_seconds: float

    def as_dict(self) -> dict[str, float]:
        figures = super().as_dict()
        if self.compared_jobs:
            figures["times_faster"] = self.straightforward_seconds / self.compared_seconds
        return figures


class Comparison(NamedTuple):
    """The straightforward formulation, and the pool for which there is time enough to solve it."""

    name: str
    pool: Pool

    def seconds(self) -> float:
        """cvxpy is imported here only, so that it burdens no other case."""
        solve = getattr(import_module("bench.straightforward"), self.name)
        started = time.process_time()
        solve(self.pool)
        return time.process_time() - started


def decision(policy: tuple[str, Mapping[str, object]], asked: Pool, comparison: Comparison | None) -> Solve:
    seconds, shares = _timed(policy, asked)
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    assert shares.evidence is not None
    value, bound = shares.evidence.value, shares.evidence.bound
    jobs, loops, gap = len(asked.gang), loop_seconds(), abs(bound - value) / abs(value)
    if comparison is None:
        return Solve(jobs, seconds, peak_mib, loops, gap, 0, 0.0, 0.0)
    smaller = len(comparison.pool.gang) != jobs
    compared_seconds = _timed(policy, comparison.pool)[0] if smaller else seconds
    compared = len(comparison.pool.gang), compared_seconds, comparison.seconds()
    return Solve(jobs, seconds, peak_mib, loops, gap, *compared)


def _timed(policy: tuple[str, Mapping[str, object]], asked: Pool) -> tuple[float, Shares]:
    made = make_policy(*policy)
    _warm_up(made)
    best = float("inf")
    for turn in range(TURNS):
        view = asked.view()  # a view remembers what was worked out from it
        started = time.process_time()
        shares = made.decide(view)
        best = min(best, time.process_time() - started)
        if turn and best > 1.0:
            break
    assert isinstance(shares, Shares)
    return best, shares


def _warm_up(policy: Policy) -> None:
    """Decides until all kernels are compiled or loaded: the first small calls of a process run without them."""
    until = time.process_time() + WARM_UP_SECONDS
    while time.process_time() < until:
        policy.decide(pool(64, CLASSES).view())


def max_min(jobs: int, classes: int) -> Solve:
    asked = pool(jobs, classes)
    return decision(LEAST, asked, Comparison("max_min", asked))


def finish_time(jobs: int) -> Solve:
    asked = pool(jobs)
    return decision(FINISH_TIME, asked, Comparison("finish_time_fairness", asked))


def finish_time_of_many_shapes() -> Solve:
    """Eight shapes: four types, in one node or spread. The straightforward way gets a tenth of the jobs."""
    smaller = pool(10_000, types=4, spread=True)
    return decision(
        FINISH_TIME,
        pool(100_000, types=4, spread=True),
        Comparison("finish_time_fairness", smaller),
    )


def filled(classes: int) -> Solve:
    """The straightforward way asks every job by a program of its own whether it can rise: 64 jobs are enough."""
    return decision(FILLED, pool(512, classes), Comparison("water_filling", pool(64, classes)))


def in_pairs() -> Solve:
    """Half of the jobs for the straightforward way: it lists a column for each two jobs and type."""
    comparison = Comparison("max_min_in_pairs", pool(256, CLASSES))
    return decision(IN_PAIRS, pool(512, CLASSES), comparison)


def simulation() -> Result:
    """36 GPUs of each of three types, 4.8 single-GPU jobs an hour, to job 5,000, max-min in rounds; no journal."""
    if "HORAE_DATA" not in os.environ:
        raise SystemExit("set HORAE_DATA to the folder with the published traces: speeds come from gavel/ there")
    measurements = tuple(speed_tables.read_gavel_csv(data_folder()))
    nodes = tuple(Node(f"{name}-{index}", name, 4) for name in ("v100", "p100", "k80") for index in range(9))
    cluster = Cluster("gavel", nodes)
    trace = GavelWorkload(reference_speeds(measurements, "v100"), jobs=5000, jobs_per_hour=4.8).trace(0)
    jobs, faults = arrivals(trace, cluster, SpeedBook(measurements))
    assert not faults, faults[0]
    setup = Setup(cluster, (PoolSpec("all", "max-min", {}, Cadence.ROUNDS),))
    simulate(setup, jobs[:400])  # enough for every kernel to be loaded, which is not counted
    started = time.process_time()
    recorder = simulate(setup, jobs).recorder
    seconds = time.process_time() - started
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return Result(recorder.ended_count, seconds, peak_mib, loop_seconds())


CASES: dict[str, Callable[[], Result]] = {
    "max-min, 2,048 jobs of 26 classes": partial(max_min, 2048, CLASSES),
    "max-min, 32,768 jobs of 26 classes": partial(max_min, 32_768, CLASSES),
    "max-min, 32,768 jobs, all different": partial(max_min, 32_768, 0),
    "finish-time fairness, 512 jobs": partial(finish_time, 512),
    "finish-time fairness, 2,048 jobs": partial(finish_time, 2048),
    "finish-time fairness, 100,000 jobs x 8 shapes": finish_time_of_many_shapes,
    "water filling, 512 jobs of 26 classes": partial(filled, CLASSES),
    "water filling, 512 jobs, all different": partial(filled, 0),
    "max-min in pairs, 512 jobs of 26 classes": in_pairs,
    "gavel, 108 GPUs, 5,000 jobs, max-min in rounds": simulation,
}
LIMITS_SECONDS = {
    "max-min, 2,048 jobs of 26 classes": 0.005,
    "max-min, 32,768 jobs of 26 classes": 0.04,
    "max-min, 32,768 jobs, all different": 0.5,
    "finish-time fairness, 512 jobs": 0.015,
    "finish-time fairness, 2,048 jobs": 0.05,
    "finish-time fairness, 100,000 jobs x 8 shapes": 2.0,
    "water filling, 512 jobs of 26 classes": 0.02,
    "water filling, 512 jobs, all different": 0.2,
    "max-min in pairs, 512 jobs of 26 classes": 0.5,
    "gavel, 108 GPUs, 5,000 jobs, max-min in rounds": 10.0,
}
