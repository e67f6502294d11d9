"""Slurm's priorities and its backfill, by hand and against a plain simulation of EASY."""

from __future__ import annotations

import heapq
from dataclasses import replace
from math import inf
from typing import Any

import pytest
from builders import arrival, cluster, simulate, with_truth
from hypothesis import given
from hypothesis import strategies as st

from horae.model.cluster import Cluster, Node
from horae.model.jobs import Arrival
from horae.model.shapes import Option, Shape

HOUR = 3600.0
FIFO: dict[str, Any] = {"size_weight": 0.0, "fair_share_weight": 0.0, "interval_seconds": 1e6, "age_max_seconds": 1e9}


def starts(jobs: list[Arrival], gpus: int, **options: Any) -> dict[str, float]:
    records = simulate(cluster(nodes=1, gpus=gpus), jobs, "slurm", **{**FIFO, **options}).records()
    return {record.job_id: record.started_at for record in records}


def test_a_later_job_starts_if_it_ends_before_the_reservation() -> None:
    """Three of four GPUs are taken for an hour, the next job needs all four: half an hour fits before, two do not."""
    jobs = [
        arrival("first", 0.0, 3, HOUR, limit_seconds=HOUR),
        arrival("head", 1.0, 4, HOUR, limit_seconds=HOUR),
        arrival("long", 2.0, 1, 2 * HOUR, limit_seconds=2 * HOUR),
        arrival("short", 3.0, 1, HOUR / 2, limit_seconds=HOUR / 2),
    ]
    assert starts(jobs, 4) == {"first": 0.0, "short": 3.0, "head": HOUR, "long": 2 * HOUR}
    assert starts(jobs, 4, backfill=False) == {"first": 0.0, "head": HOUR, "long": 2 * HOUR, "short": 2 * HOUR}


def test_a_later_job_starts_if_it_leaves_the_reservation_its_gpus() -> None:
    jobs = [
        arrival("first", 0.0, 3, HOUR, limit_seconds=HOUR),
        arrival("head", 1.0, 3, HOUR, limit_seconds=HOUR),
        arrival("long", 2.0, 1, 9 * HOUR, limit_seconds=9 * HOUR),
        arrival("longer", 3.0, 1, 9 * HOUR, limit_seconds=9 * HOUR),
    ]
    assert starts(jobs, 4) == {"first": 0.0, "long": 2.0, "head": HOUR, "longer": 2 * HOUR}


def test_a_job_that_ends_before_its_limit_lets_the_head_start_earlier() -> None:
    jobs = [
        arrival("first", 0.0, 2, 100.0, limit_seconds=HOUR),
        arrival("head", 1.0, 2, 50.0, limit_seconds=HOUR),
    ]
    assert starts(jobs, 2) == {"first": 0.0, "head": 100.0}


@pytest.mark.parametrize(
    ("seconds", "limit"), [(5.0, 1), (HOUR, 1), (HOUR + 1, 4), (13 * HOUR, 24), (25 * HOUR, 168), (200 * HOUR, 200)]
)
def test_without_a_limit_users_ask_for_the_next_usual_one(seconds: float, limit: float) -> None:
    """The head of two GPUs waits for one job of this length; a job of one GPU fits before it up to the limit."""
    others = [arrival("head", 1.0, 2, 10.0), arrival("fits", 2.0, 1, 10.0, limit_seconds=limit * HOUR - 2.0)]
    found = starts([arrival("first", 0.0, 1, seconds), *others], 2)
    assert found["fits"] == 2.0
    too_long = arrival("not", 2.0, 1, 10.0, limit_seconds=limit * HOUR)
    assert starts([arrival("first", 0.0, 1, seconds), others[0], too_long], 2)["not"] > 2.0


def test_who_has_used_less_goes_first() -> None:
    """Ada has used the GPU for an hour; Bob comes later, and is before her next job."""
    jobs = [
        arrival("one", 0.0, 1, HOUR, user="ada"),
        arrival("two", 1.0, 1, HOUR, user="ada"),
        arrival("three", 2.0, 1, HOUR, user="bob"),
    ]
    records = simulate(cluster(nodes=1, gpus=1), jobs, "slurm", size_weight=0.0).records()
    assert [record.job_id for record in sorted(records, key=lambda each: each.started_at)] == ["one", "three", "two"]


def test_use_is_forgotten() -> None:
    """A year after, one hour more or less does not matter: the first to come goes first."""
    year = 365 * 24 * HOUR
    jobs = [
        arrival("old", 0.0, 1, 10 * HOUR, user="ada"),
        arrival("recent", year - HOUR, 1, 2 * HOUR, user="bob"),
        arrival("ada", year, 1, HOUR, user="ada"),
        arrival("bob", year, 1, HOUR, user="bob"),
    ]
    records = simulate(cluster(nodes=1, gpus=1), jobs, "slurm", size_weight=0.0).records()
    began = {record.job_id: record.started_at for record in records}
    assert began["ada"] < began["bob"]
    forgetful = simulate(cluster(nodes=1, gpus=1), jobs, "slurm", size_weight=0.0, half_life_seconds=1e12).records()
    began = {record.job_id: record.started_at for record in forgetful}
    assert began["bob"] < began["ada"]


def easy(jobs: list[tuple[float, int, float, float]], gpus: int) -> list[float]:
    """EASY backfill, first come, first served: by job, when it starts. Jobs: submission, GPUs, length, limit."""
    began: list[float] = [inf] * len(jobs)
    running: dict[int, float] = {}  # by job, when it ends at its limit
    moments = [each[0] for each in jobs]
    heapq.heapify(moments)
    while moments:
        now = heapq.heappop(moments)
        for one in [one for one in running if began[one] + jobs[one][2] <= now]:
            del running[one]
        queue = [one for one in range(len(jobs)) if jobs[one][0] <= now and began[one] == inf]
        free = gpus - sum(jobs[one][1] for one in running)

        def start(one: int, at: float = now) -> None:
            began[one] = at
            running[one] = at + jobs[one][3]
            heapq.heappush(moments, at + jobs[one][2])

        while queue and jobs[queue[0]][1] <= free:
            free -= jobs[queue[0]][1]
            start(queue.pop(0))
        if not queue:
            continue
        there, shadow = free, inf
        for one in sorted(running, key=lambda one: running[one]):
            there += jobs[one][1]
            shadow = running[one]
            if there >= jobs[queue[0]][1]:
                break
        extra = there - jobs[queue[0]][1]
        for one in queue[1:]:
            _, wants, _, limit = jobs[one]
            if wants <= free and (now + limit <= shadow or wants <= extra):
                free -= wants
                extra -= 0 if now + limit <= shadow else wants
                start(one)
    return began


@st.composite
def workloads(draw: st.DrawFn) -> tuple[list[tuple[float, int, float, float]], int]:
    gpus = draw(st.integers(1, 8))
    rows = draw(
        st.lists(
            st.tuples(st.integers(0, 60), st.integers(1, gpus), st.integers(1, 40), st.integers(0, 40)),
            min_size=1,
            max_size=14,
        )
    )
    # Odd fractions, so that no two moments coincide by chance and hide the order of events.
    jobs = [
        (at + place / 97, wants, length + place / 89, length + more + place / 83)
        for place, (at, wants, length, more) in enumerate(rows)
    ]
    return sorted(jobs), gpus


@given(workloads())
def test_starts_are_those_of_a_plain_simulation(workload: tuple[list[tuple[float, int, float, float]], int]) -> None:
    jobs, gpus = workload
    arrivals = [
        arrival(f"{place:02}", at, wants, length, limit_seconds=limit)
        for place, (at, wants, length, limit) in enumerate(jobs)
    ]
    found = starts(arrivals, gpus)
    assert [found[name] for name in sorted(found)] == pytest.approx(easy(jobs, gpus))


def test_a_long_job_on_another_type_harms_no_reservation() -> None:
    """The head waits for the A100; a job that accepts the V100 may take it for as long as it likes."""
    both = Cluster("both", (Node("a", "A100", 1), Node("v", "V100", 1)))

    def on(name: str, at: float, kind: str, seconds: float) -> Arrival:
        made = arrival(name, at, 1, seconds, limit_seconds=seconds).job
        return with_truth(replace(made, options=(Option(Shape(kind, 1, "node"), 1.0),)), seconds)

    jobs = [on("first", 0.0, "A100", 100.0), on("head", 1.0, "A100", 10.0), on("other", 2.0, "V100", 1e6)]
    records = simulate(both, jobs, "slurm", **FIFO).records()
    assert {record.job_id: record.started_at for record in records} == {"first": 0.0, "head": 100.0, "other": 2.0}
