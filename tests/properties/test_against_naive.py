"""Horae's simulation and an obviously right one agree, job by job, to the second.

Where a preemptive policy may choose between equal victims, the instances are such that the documents leave no choice:
all gangs have one size, so a gang needs at most one victim, and of those that would do it is the last in rank.
"""

from __future__ import annotations

from math import inf
from typing import Any, NamedTuple

import pytest
from builders import cluster, simulate, spread_job, with_truth
from hypothesis import example, given
from hypothesis import strategies as st
from oracles.naive import Discipline, NaiveCluster, Outcome, drf, fifo, las, sjf, srtf, tiresias
from profiles import examples

from horae.model.jobs import Arrival
from horae.model.setup import Cadence

QUEUES = {"fifo": fifo, "sjf": sjf}
LIMITS = (50, 200)  # GPU-seconds


class Row(NamedTuple):
    """One job of a workload."""

    at: int
    gpus: int
    seconds: int
    believed_seconds: int | None
    cpus_per_gpu: int = 0
    restart_seconds: int = 0
    min_runtime_seconds: int = 0
    preemptions_max: float = inf
    user: str = ""


class Workload(NamedTuple):
    nodes: int
    node_gpus: int
    rows: list[Row]
    node_cpus: float = inf

    @property
    def arrivals(self) -> list[Arrival]:
        return [
            with_truth(
                spread_job(
                    f"job {index}",
                    row.at,
                    row.gpus,
                    row.believed_seconds,
                    self.node_gpus,
                    cpus_per_gpu=row.cpus_per_gpu,
                    restart_seconds=row.restart_seconds,
                    min_runtime_seconds=row.min_runtime_seconds,
                    preemptions_max=row.preemptions_max,
                    user=row.user,
                ),
                row.seconds,
            )
            for index, row in enumerate(self.rows)
        ]

    def in_horae(self, policy: str, round_seconds: int | None = None, **options: Any) -> dict[str, Outcome]:
        recorder = simulate(
            cluster(self.nodes, self.node_gpus, cpus=self.node_cpus),
            self.arrivals,
            policy,
            Cadence.EVENTS if round_seconds is None else Cadence.ROUNDS,
            round_seconds=360 if round_seconds is None else round_seconds,
            **options,
        )
        return {row.job_id: Outcome(row.started_at, row.ended_at, row.starts) for row in recorder.records()}

    def in_the_oracle(self, discipline: Discipline, round_seconds: int | None = None) -> dict[str, Outcome]:
        naive = NaiveCluster(self.nodes, self.node_gpus, discipline, self.node_cpus)
        return naive.run(self.arrivals, round_seconds)


times = st.integers(0, 60)
lengths = st.integers(1, 90)


@st.composite
def mixed_gangs(draw: st.DrawFn) -> Workload:
    """Gangs of all sizes that the cluster can hold, within one node more often; some lengths misjudged or unknown."""
    nodes, node_gpus = draw(st.integers(1, 4)), draw(st.integers(1, 8))
    gangs = st.integers(1, node_gpus) | st.integers(1, nodes * node_gpus)
    beliefs = st.sampled_from(["true", "true", "half", "unknown"])
    row = st.tuples(times, gangs, lengths, beliefs).map(lambda drawn: Row(*drawn[:3], _believed(*drawn[2:])))
    return Workload(nodes, node_gpus, draw(st.lists(row, min_size=2, max_size=25)))


def _believed(seconds: int, belief: str) -> int | None:
    return {"true": seconds, "half": -(-seconds // 2), "unknown": None}[belief]


@st.composite
def gangs_with_cpus(draw: st.DrawFn) -> Workload:
    """One node whose CPUs are fewer than all its GPUs' jobs together would like, but enough for each."""
    rows = draw(st.lists(st.builds(_row_with_cpus, times, lengths, st.integers(1, 4), st.integers(0, 4)), min_size=2))
    needed = max(row.gpus * row.cpus_per_gpu for row in rows)
    return Workload(1, 4, rows, needed + draw(st.integers(0, 3)))


def _row_with_cpus(at: int, seconds: int, gpus: int, cpus_per_gpu: int) -> Row:
    return Row(at, gpus, seconds, seconds, cpus_per_gpu)


@st.composite
def gangs_of_users(draw: st.DrawFn) -> Workload:
    """Three users on nodes of which some run out of CPUs first, and some of GPUs."""
    row = st.builds(
        lambda at, seconds, gpus, cpus, user: Row(at, gpus, seconds, seconds, cpus, user=user),
        times,
        lengths,
        st.integers(1, 4),
        st.integers(0, 3),
        st.sampled_from(["ada", "bob", "cyd"]),
    )
    return Workload(draw(st.integers(1, 3)), 4, draw(st.lists(row, min_size=2, max_size=25)), node_cpus=12)


@st.composite
def equal_gangs(draw: st.DrawFn, blind: bool = True) -> Workload:
    """Single GPUs on one node, parts of a node, whole nodes, or several nodes: always one size in a workload."""
    nodes, node_gpus, gpus = draw(
        st.sampled_from([(1, 1, 1), (1, 3, 1), (1, 8, 1), (3, 1, 1), (2, 4, 4), (4, 2, 2), (2, 4, 2), (4, 2, 4)])
    )
    row = st.builds(
        Row,
        at=times,
        gpus=st.just(gpus),
        seconds=lengths,
        believed_seconds=st.none() if blind else st.none() | lengths,
        cpus_per_gpu=st.just(0),
        restart_seconds=st.sampled_from([0, 5, 15]),
        min_runtime_seconds=st.sampled_from([0, 0, 20]),
        preemptions_max=st.sampled_from([inf, inf, inf, 0, 2]),
    )
    return Workload(nodes, node_gpus, draw(st.lists(row, min_size=2, max_size=25)))


# The first is displaced while the second may not be; when that has had its minimum run time, nothing else happens.
WAITS_FOR_A_MINIMUM_RUNTIME = Workload(
    nodes=2,
    node_gpus=4,
    rows=[
        Row(0, 4, 15, None),
        Row(1, 4, 22, None, min_runtime_seconds=20),
        Row(2, 4, 8, None),
        Row(1, 4, 1, None),
    ],
)

preemptive_rounds = st.sampled_from([5, 7, 10, 20])


@pytest.mark.parametrize("backfill", [False, True])
@pytest.mark.parametrize("policy", QUEUES)
@examples(quick=40, nightly=300)
@given(workload=mixed_gangs())
def test_a_queue_that_acts_on_events_starts_and_ends_every_job_when_the_oracle_does(
    policy: str, backfill: bool, workload: Workload
) -> None:
    want = workload.in_the_oracle(QUEUES[policy](backfill))
    assert workload.in_horae(policy, backfill=backfill) == want


@pytest.mark.parametrize("backfill", [False, True])
@pytest.mark.parametrize("policy", QUEUES)
@examples(quick=40, nightly=300)
@given(workload=mixed_gangs(), round_seconds=st.sampled_from([1, 7, 10, 60]))
def test_a_queue_that_acts_in_rounds_starts_and_ends_every_job_when_the_oracle_does(
    policy: str, backfill: bool, workload: Workload, round_seconds: int
) -> None:
    want = workload.in_the_oracle(QUEUES[policy](backfill), round_seconds)
    assert workload.in_horae(policy, round_seconds, backfill=backfill) == want


@examples(quick=40, nightly=300)
@given(workload=gangs_with_cpus(), backfill=st.booleans())
@example(workload=Workload(1, 4, [Row(0, 1, 1, 1, 1), Row(0, 1, 1, 1, 1)], node_cpus=1), backfill=False)
def test_jobs_wait_for_cpus_as_they_wait_for_gpus(workload: Workload, backfill: bool) -> None:
    want = workload.in_the_oracle(fifo(backfill))
    assert workload.in_horae("fifo", backfill=backfill) == want


@examples(quick=40, nightly=300)
@given(workload=equal_gangs(), round_seconds=preemptive_rounds)
@example(workload=Workload(1, 1, [Row(0, 1, 8, None), Row(0, 1, 8, None)]), round_seconds=7)
def test_under_las_every_job_starts_and_ends_when_it_does_in_the_oracle(workload: Workload, round_seconds: int) -> None:
    want = workload.in_the_oracle(las(), round_seconds)
    assert workload.in_horae("las", round_seconds) == want


@pytest.mark.parametrize("policy", ["srtf", "srsf"])
@examples(quick=40, nightly=300)
@given(workload=equal_gangs(blind=False), round_seconds=preemptive_rounds, backfill=st.booleans())
def test_with_the_least_left_first_every_job_starts_and_ends_when_it_does_in_the_oracle(
    policy: str, workload: Workload, round_seconds: int, backfill: bool
) -> None:
    want = workload.in_the_oracle(srtf(backfill, by_service=policy == "srsf"), round_seconds)
    assert workload.in_horae(policy, round_seconds, backfill=backfill) == want


@examples(quick=40, nightly=300)
@given(workload=gangs_of_users())
def test_under_drf_every_job_starts_and_ends_when_it_does_in_the_oracle(workload: Workload) -> None:
    want = workload.in_the_oracle(drf(workload.nodes, workload.node_gpus, workload.node_cpus))
    assert workload.in_horae("drf") == want


@pytest.mark.parametrize("promote_after", [0, 2, 8])
@examples(quick=40, nightly=300)
@given(workload=equal_gangs(), round_seconds=preemptive_rounds)
@example(workload=WAITS_FOR_A_MINIMUM_RUNTIME, round_seconds=7)
def test_under_tiresias_every_job_starts_and_ends_when_it_does_in_the_oracle(
    promote_after: int, workload: Workload, round_seconds: int
) -> None:
    want = workload.in_the_oracle(tiresias(LIMITS, promote_after), round_seconds)
    assert workload.in_horae("tiresias", round_seconds, limits=LIMITS, promote_after=promote_after) == want
