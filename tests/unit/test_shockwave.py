"""Shockwave: its plans against all others that are possible, and that they are carried out."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, product
from math import ceil, log
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from builders import arrival, cluster, simulate
from hypothesis import given
from hypothesis import strategies as st

from horae.driver import run
from horae.engines.simulated import SimulatedEngine
from horae.model.arrays import Floats, Ints
from horae.model.jobs import Arrival
from horae.model.setup import Cadence, PoolSpec, Setup
from horae.model.view import View
from horae.policies.shockwave import PlannedWork, Shockwave, _contention
from horae.reports.recorder import Recorder
from horae.scheduler import Scheduler

ROUND, ROUNDS = 100.0, 4
Numbers = Sequence[float]
POINTS = ((0.0, log(1e-6)), (0.2, log(0.2)), (0.4, log(0.4)), (0.6, log(0.6)), (0.8, log(0.8)), (1.0, 0.0))


def utility(done: float) -> float:
    for (left, low), (right, high) in pairwise(POINTS):
        if done <= right:
            return low + (high - low) * (done - left) / (right - left)
    return 0.0


def value(
    policy: Shockwave, total: list[float], done: list[float], weight: list[float], counts: tuple[int, ...]
) -> float:
    reached = [min(each + count * ROUND, whole) for each, whole, count in zip(done, total, counts, strict=True)]
    mean = sum(w * utility(r / t) for w, r, t in zip(weight, reached, total, strict=True)) / len(total)
    return mean / ROUNDS - policy.makespan_weight * max(t - r for r, t in zip(reached, total, strict=True))


jobs_drawn = st.lists(st.tuples(st.integers(1, 12), st.integers(0, 11), st.integers(1, 40)), min_size=1, max_size=4)


@given(jobs_drawn, st.integers(1, 2), st.sampled_from((0.0, 0.0001, 0.001, 1.0)), st.sampled_from((0.0, 1.0, 12.0)))
def test_no_other_plan_of_single_gpus_is_better(
    drawn: list[tuple[int, int, int]], gpus: int, makespan_weight: float, power: float
) -> None:
    """All plans are tried, with weights and bounds by the definition."""
    policy = Shockwave(ROUNDS, ROUND, makespan_weight, power)
    total = [ROUND * rounds for rounds, _, _ in drawn]
    done = [ROUND * min(past, rounds - 1) for rounds, past, _ in drawn]
    fair_at = [ROUND * fair for _, _, fair in drawn]
    left = [t - d for t, d in zip(total, done, strict=True)]
    contention, count = max(1.0, len(drawn) / gpus), len(drawn)
    window = ROUND * ROUNDS
    later = [(fair - window) / contention for fair in fair_at]
    needed = [max(ceil((each - late) / ROUND - 1e-9), 0) for each, late in zip(left, later, strict=True)]
    weight = [1.0] * count
    if min(later) < 0 or max(needed) > ROUNDS or sum(needed) > gpus * ROUNDS:
        needed = [0] * count
        rho = [each * contention / max(fair, 1.0) for each, fair in zip(left, fair_at, strict=True)]
        weight = [r**power if r > 1 else 1.0 for r in rho]
    plans = [
        plan
        for plan in product(*(range(low, ROUNDS + 1) for low in needed))
        if sum(plan) <= gpus * ROUNDS and all(n * ROUND <= each for n, each in zip(plan, left, strict=True))
    ]
    best = max(value(policy, total, done, weight, plan) for plan in plans)
    view = cast("View", SimpleNamespace(now=0.0, capacity=np.array([gpus])))
    after = [[min(d + n * ROUND, t) / t for n in range(ROUNDS + 1)] for d, t in zip(done, total, strict=True)]
    utilities = np.array([[utility(share) for share in row] for row in after])
    work = PlannedWork(np.ones(count, dtype=np.int64), np.array(left), utilities, np.array(fair_at))
    counts, weights = policy.counts(view, work, contention)
    assert weights == pytest.approx(weight)
    assert sum(counts) <= gpus * ROUNDS
    assert (counts >= needed).all()
    assert value(policy, total, done, weight, tuple(counts)) == pytest.approx(best, rel=1e-9, abs=1e-9)


def ends(jobs: Sequence[Arrival], gpus: int, **options: Any) -> dict[str, float]:
    records = simulate(cluster(nodes=1, gpus=gpus), jobs, "shockwave", **options).records()
    return {record.job_id: record.ended_at for record in records}


def test_a_job_that_is_nearly_done_does_not_wait_for_a_long_one() -> None:
    ended = ends([arrival("long", seconds=6 * 3600.0), arrival("short", seconds=240.0)], gpus=1)
    assert ended["short"] <= 480.0
    assert ended["long"] == pytest.approx(6 * 3600.0 + 240.0)


def test_long_jobs_run_all_the_time_if_the_makespan_needs_it() -> None:
    """One job takes longer than all others together: it ends as if it were alone."""
    short = [arrival(f"short{number}", seconds=1200.0) for number in range(4)]
    ended = ends([arrival("long", seconds=7200.0), *short], gpus=2, rho_max=100.0)
    assert ended["long"] == pytest.approx(7200.0)


def test_a_plan_is_kept_until_a_job_arrives_or_ends() -> None:
    """The policy counts anew only where the set of jobs has changed since the last plan, or a window is over."""
    counted: list[float] = []

    class Counting(Shockwave):
        def counts(self, view: View, work: PlannedWork, contention: float) -> tuple[Ints, Floats]:
            counted.append(view.now)
            return super().counts(view, work, contention)

    jobs = [arrival("a", seconds=1000.0), arrival("b", seconds=1000.0), arrival("c", at=150.0, seconds=1000.0)]
    setup = Setup(cluster(nodes=1, gpus=1), (PoolSpec("pool", "shockwave", {}, Cadence.ROUNDS, 100.0),))
    scheduler = Scheduler(setup)
    scheduler.pools.all[0].policy = Counting(interval_seconds=100.0)
    recorder = Recorder(setup)
    run(scheduler, SimulatedEngine(setup.cluster, recorder.expecting(jobs)), (recorder,), strict=True)
    first, second, third = sorted(record.ended_at for record in recorder.records())
    assert third == pytest.approx(3000.0)
    # At the start, after the arrival at 150 s, after each end, and where a window of 20 rounds is over.
    after = [100.0 * ceil(at / 100.0) for at in (first, second, third)]
    assert set(counted) <= {0.0, 200.0, *after, *(at + 2000.0 for at in (0.0, 200.0, *after))}
    assert {0.0, 200.0} <= set(counted)
    assert len(counted) < 10  # of 30 rounds


def test_contention_is_that_of_the_life_of_a_job() -> None:
    """Alone for 1000 s and then with another on one GPU: nine tenths of the average and one tenth of the present."""
    view = SimpleNamespace(now=0.0, capacity=np.array([1]), memory=None)
    memory = _contention(cast("View", view), np.array([5])).plain()
    view = SimpleNamespace(now=1000.0, capacity=np.array([1]), memory={"contention": memory})
    found = _contention(cast("View", view), np.array([5, 6]))
    assert found.of_job == pytest.approx([0.9 * 1.0 + 0.1 * 2.0, 2.0])
    view = SimpleNamespace(now=1500.0, capacity=np.array([1]), memory={"contention": found.plain()})
    assert _contention(cast("View", view), np.array([5, 6])).of_job == pytest.approx(
        [0.9 * (1000 + 2 * 500) / 1500 + 0.2, 2.0]
    )
