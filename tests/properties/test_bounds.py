"""Lower bounds: no policy ever does better, and where the optimum is known they reach it."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import combinations
from math import inf

import numpy as np
import pytest
from builders import ACCELERATOR, arrival, cluster, job
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import examples

from horae.experiments.simulate import simulate
from horae.model.cluster import Cluster, Node
from horae.model.jobs import Arrival, Truth
from horae.model.setup import Cadence, PoolSpec, Setup
from horae.model.shapes import Option, Shape
from horae.policies.registry import POLICIES
from horae.reports.bounds import (
    Bounds,
    PoolWork,
    best_prices,
    bounds,
    mean_busy_times,
    pool_works,
    shortest_remaining_first,
)
from horae.reports.metrics import measure
from horae.reports.run_log import RunLog

ROUNDING = 1 + 1e-9
KINDS = ("A100", "V100", "K80")


def holds(log: RunLog) -> bool:
    metrics, least = measure(log), bounds(log)
    if not metrics.finished:
        return bool(np.isnan(least.makespan_seconds))
    return (
        0 <= least.completion_mean_seconds <= metrics.completion_mean_seconds * ROUNDING
        and 0 <= least.makespan_seconds <= metrics.makespan_seconds * ROUNDING
    )


@st.composite
def workloads(draw: st.DrawFn) -> tuple[Cluster, tuple[PoolSpec, ...], list[Arrival]]:
    kinds = KINDS[: draw(st.integers(1, 3))]
    nodes = [
        Node(f"{kind}-{index}", kind, draw(st.sampled_from([1, 2, 4])))
        for kind in kinds
        for index in range(draw(st.integers(1, 3)))
    ]
    spec = PoolSpec("open", "fifo", {}, draw(st.sampled_from(list(Cadence))), round_seconds=30.0)
    pools: tuple[PoolSpec, ...] = (spec,)
    if len(nodes) > 1 and draw(st.booleans()):
        pools = (replace(spec, name="own", tenants=("t1",), nodes=(nodes[0].name,)), spec)
    jobs = [draw(arrivals(f"j{index}", kinds)) for index in range(draw(st.integers(1, 12)))]
    return Cluster("lab", tuple(nodes)), pools, sorted(jobs, key=lambda each: each.job.submitted_at)


@st.composite
def arrivals(draw: st.DrawFn, id: str, kinds: tuple[str, ...]) -> Arrival:
    """Several shapes, what is believed and what is true, restarts, deadlines."""
    shapes = draw(
        st.lists(
            st.builds(Shape, st.sampled_from(kinds), st.integers(1, 4), st.sampled_from(["node", "cluster"])),
            min_size=1,
            max_size=4,
            unique=True,
        )
    )
    speed = st.floats(0.25, 4.0)
    believed = tuple(Option(shape, draw(speed)) for shape in shapes)
    true = tuple(Option(shape, draw(speed)) for shape in shapes) if draw(st.booleans()) else believed
    steps = draw(st.floats(1.0, 300.0))
    submitted = replace(
        job(id, draw(st.integers(0, 300)), restart_seconds=draw(st.sampled_from([0.0, 5.0, 20.0]))),
        options=believed,
        steps_total=draw(st.sampled_from([steps, 2 * steps, None])),
        tenant=draw(st.sampled_from(["t1", "t2"])),
    )
    return Arrival(submitted, Truth(steps, true))


@pytest.mark.parametrize("policy", POLICIES)
@given(workload=workloads())
@examples(quick=8, nightly=15)
def test_no_policy_beats_the_bounds(policy: str, workload: tuple[Cluster, tuple[PoolSpec, ...], list[Arrival]]) -> None:
    machines, pools, jobs = workload
    log = simulate(Setup(machines, tuple(replace(pool, policy=policy) for pool in pools)), jobs).log
    assert holds(log)


@st.composite
def tenant_workloads(draw: st.DrawFn) -> tuple[Setup, list[Arrival]]:
    """Tenants with cells of a few GPUs, most of which borrow; some jobs are lazy, some have a negative priority."""
    machines = Cluster("box", tuple(Node(f"n{index}", "A100", 4) for index in range(draw(st.integers(1, 2)))))
    policy = draw(st.sampled_from(["fifo", "srtf", "sjf", "las"]))
    pools = [
        PoolSpec(
            tenant, policy, tenants=(tenant,), cells={"A100.gpu": draw(st.integers(1, 2))}, borrow=draw(st.booleans())
        )
        for tenant in ("t1", "t2")
    ]
    jobs = []
    for index in range(draw(st.integers(1, 14))):
        shapes = [Shape("A100", gpus, "node") for gpus in draw(st.sampled_from([(1,), (1, 2), (2,), (1, 4)]))]
        options = tuple(Option(shape, float(shape.gpus)) for shape in shapes)
        steps = draw(st.floats(1.0, 300.0))
        submitted = replace(
            job(f"j{index}", draw(st.integers(0, 300)), lazy=draw(st.booleans())),
            options=options,
            steps_total=steps,
            tenant=draw(st.sampled_from(["t1", "t1", "t2"])),
            priority=draw(st.sampled_from([0, 0, 0, -1])),
        )
        jobs.append(Arrival(submitted, Truth(steps, options)))
    setup = Setup(machines, (*pools, PoolSpec("spare", "fifo", {"backfill": True})))
    return setup, sorted(jobs, key=lambda each: each.job.submitted_at)


@given(workload=tenant_workloads())
@examples(quick=60, nightly=400)
def test_no_tenant_beats_the_bounds_by_borrowing(workload: tuple[Setup, list[Arrival]]) -> None:
    assert holds(simulate(*workload).log)


def test_tenants_that_borrow_count_as_one_machine_with_the_whole_cluster() -> None:
    # Eight GPUs, one of them reserved. Eight jobs of 100 s run side by side: the tenant's own GPU would need 800 s.
    jobs = [arrival(f"j{index}", seconds=100, tenant="t") for index in range(8)]
    own = PoolSpec("own", "fifo", {"backfill": True}, tenants=("t",), cells={f"{ACCELERATOR}.gpu": 1})
    log = simulate(Setup(cluster(1, 8), (own, PoolSpec("spare"))), jobs).log
    assert bounds(log) == pytest.approx(Bounds(100, 100))
    alone = simulate(Setup(cluster(1, 8), (replace(own, borrow=False), PoolSpec("spare"))), jobs).log
    assert bounds(alone) == pytest.approx(Bounds(450, 800))


lengths = st.lists(st.integers(1, 50), min_size=1, max_size=12)


@given(lengths)
@settings(max_examples=40)
def test_on_one_gpu_shortest_first_is_optimal_and_the_bound_says_so(seconds: list[int]) -> None:
    jobs = [arrival(f"j{index}", 0.0, seconds=float(each)) for index, each in enumerate(seconds)]
    log = simulate(Setup(cluster(1, 1), (PoolSpec("all", "sjf"),)), jobs).log
    optimum = sum(np.cumsum(sorted(seconds))) / len(seconds)
    assert bounds(log) == pytest.approx(Bounds(optimum, sum(seconds)))
    assert measure(log).completion_mean_seconds == pytest.approx(optimum)


@given(lengths, st.integers(1, 4))
@settings(max_examples=40)
def test_the_makespan_bound_is_what_preemption_can_reach(seconds: list[int], gpus: int) -> None:
    """McNaughton's wrap-around rule: the longest job, or the work over the machines, whichever is more."""
    jobs = [arrival(f"j{index}", 0.0, seconds=float(each)) for index, each in enumerate(seconds)]
    log = simulate(Setup(cluster(1, gpus), (PoolSpec("all"),)), jobs).log
    assert bounds(log).makespan_seconds == pytest.approx(max(*seconds, sum(seconds) / gpus))


@given(lengths, st.integers(1, 4))
@settings(max_examples=40)
def test_on_equal_gpus_the_bound_is_below_the_known_optimum(seconds: list[int], gpus: int) -> None:
    """Without gangs, and all there at once, shortest first in a list is optimal, preemption or not."""
    jobs = [arrival(f"j{index}", 0.0, seconds=float(each)) for index, each in enumerate(seconds)]
    log = simulate(Setup(cluster(1, gpus), (PoolSpec("all", "sjf"),)), jobs).log
    free = [0.0] * gpus
    ends = []
    for each in sorted(seconds):
        free = sorted(free)
        free[0] += each
        ends.append(free[0])
    assert bounds(log).completion_mean_seconds <= sum(ends) / len(ends) * ROUNDING


tiny = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 2), st.integers(1, 3)), min_size=1, max_size=4)


@given(tiny)
@settings(max_examples=60)
def test_the_bounds_are_below_the_best_of_all_schedules(jobs: list[tuple[int, int, int]]) -> None:
    """Every way to share two GPUs second by second, tried out."""
    arrived = [arrival(f"j{index}", at, gpus, seconds) for index, (at, gpus, seconds) in enumerate(jobs)]
    arrived.sort(key=lambda each: each.job.submitted_at)
    log = simulate(Setup(cluster(1, 2), (PoolSpec("all", "fifo"),)), arrived).log
    least = bounds(log)

    @cache
    def best(now: int, left: tuple[int, ...]) -> tuple[int, int]:
        """The least sum of ends and, apart from that, the least last end."""
        if not any(left):
            return 0, 0
        rows = [row for row, (at, _, _) in enumerate(jobs) if at <= now and left[row]]
        sums, lasts = [], []
        for count in range(len(rows) + 1):
            for chosen in combinations(rows, count):
                if sum(jobs[row][1] for row in chosen) <= 2 and (chosen or not rows):
                    after = tuple(each - (row in chosen) for row, each in enumerate(left))
                    ended = sum(now + 1 for row in chosen if not after[row])
                    total, last = best(now + 1, after)
                    sums.append(total + ended)
                    lasts.append(max(last, now + 1 if ended else 0))
        return min(sums), min(lasts)

    total, last = best(0, tuple(seconds for _, _, seconds in jobs))
    submitted = [at for at, _, _ in jobs]
    assert least.completion_mean_seconds <= (total - sum(submitted)) / len(jobs) * ROUNDING
    assert least.makespan_seconds <= (last - min(submitted)) * ROUNDING


@st.composite
def works(draw: st.DrawFn) -> PoolWork:
    kinds, count = draw(st.integers(1, 3)), draw(st.integers(1, 8))
    amounts = st.one_of(st.floats(1.0, 100.0), st.just(inf))
    rows = [[draw(st.floats(1.0, 100.0)), *(draw(amounts) for _ in range(kinds - 1))] for _ in range(count)]
    gpus = np.array([draw(st.integers(1, 5)) for _ in range(kinds)])
    return PoolWork(np.zeros(count), np.ones(count), np.array(rows), gpus)


@given(works(), st.lists(st.floats(0.0, 1.0), min_size=3, max_size=3))
@settings(max_examples=60)
def test_no_prices_are_better_than_the_best(work: PoolWork, weights: list[float]) -> None:
    best = best_prices(work)
    assert best @ work.gpus == pytest.approx(1.0)
    assert (best >= 0).all()
    other = np.array(weights[: len(work.gpus)]) + 1e-3
    other /= other @ work.gpus
    assert work.priced(other).sum() <= work.priced(best).sum() * (1 + 1e-6)


def test_mean_busy_times_by_hand() -> None:
    # Work 4 from 0 and work 2 from 1: the first runs 0-1 and 3-6, the second 1-3. Mean busy times: (0.5 + 3 x 4.5) / 4
    # and 2. Who costs nothing is busy from its release for its fastest time.
    release, work = np.array([0.0, 1.0, 5.0]), np.array([4.0, 2.0, 0.0])
    assert mean_busy_times(release, work, np.array([1.0, 1.0, 2.0])) == pytest.approx(14 / 4 + 2 + 6)


def test_shortest_remaining_first_by_hand() -> None:
    # The first is put off by the second, not by the third, which would take longer than what is left of it.
    assert shortest_remaining_first([0.0, 1.0, 4.0], [4.0, 2.0, 3.0]) == 3 + 6 + 9


def test_each_pool_has_a_bound_of_its_own() -> None:
    # One GPU each: 100 + 100 s in the one pool, 50 s in the other. Together they could have shared both.
    machines = Cluster("lab", (Node("a", ACCELERATOR, 1), Node("b", ACCELERATOR, 1)))
    pools = (PoolSpec("own", tenants=("t",), nodes=("a",)), PoolSpec("open"))
    jobs = [arrival("x", seconds=100, tenant="t"), arrival("y", seconds=100, tenant="t"), arrival("z", seconds=50)]
    log = simulate(Setup(machines, pools), jobs).log
    assert len(list(pool_works(log))) == 2
    assert bounds(log) == pytest.approx(Bounds((100 + 200 + 50) / 3, 200))


def test_a_type_that_is_fast_for_some_is_priced_higher() -> None:
    # Two jobs that run on both types, 10 GPU-seconds here and 40 there: at equal prices 10 / 2 each, but 8 at (.8, .2).
    work = PoolWork(np.zeros(2), np.ones(2), np.array([[10.0, 40.0], [10.0, 40.0]]), np.array([1, 1]))
    assert best_prices(work) == pytest.approx([0.8, 0.2])
