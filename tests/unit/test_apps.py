"""What is known of an app as a whole, as its jobs come, finish and are ended before."""

from __future__ import annotations

from math import isnan

import pytest
from builders import cluster

from horae.experiments.simulate import simulate
from horae.model.events import JobCancelled
from horae.model.jobs import Arrival, Job, Truth
from horae.model.setup import PoolSpec, Setup
from horae.model.shapes import Option, Shape
from horae.scheduler.apps import AppLedger


def job(name: str, seconds: float | None, gpus: int = 1, later_seconds: float = 0.0) -> Job:
    options = (Option(Shape("v100", gpus, "node"), 1.0),)
    return Job(name, 0.0, options, app="app", steps_total=seconds, later_seconds=later_seconds)


def known(book: AppLedger) -> tuple[float, float]:
    """Its work, and its longest chain."""
    columns = book.columns()
    return float(columns.gpu_seconds[0]), float(columns.chain_seconds[0])


def test_what_was_done_stays_and_what_will_not_be_done_is_due_no_more() -> None:
    book = AppLedger()
    short, middle, long = job("short", 100.0), job("middle", 200.0, gpus=2), job("long", 900.0, later_seconds=50.0)
    for each in (short, middle, long):
        book.join(each, 0.0)
    assert known(book) == (100 + 400 + 900, 950)
    book.leave(middle, 10.0)
    assert known(book) == (1400, 950)
    book.drop(long, 20.0, undone_gpu_seconds=600.0, others=[short])
    assert known(book) == (800, 200)  # the middle one has finished, and took as long
    book.drop(short, 30.0, undone_gpu_seconds=100.0, others=[])
    assert known(book) == (700, 200)
    assert len(book) == 0


def test_of_an_app_with_a_job_of_unknown_length_nothing_is_known_until_that_has_gone() -> None:
    book = AppLedger()
    book.join(job("known", 100.0), 0.0)
    unknown = job("unknown", None)
    book.join(unknown, 0.0)
    assert all(isnan(value) for value in known(book))
    book.drop(unknown, 5.0, undone_gpu_seconds=float("nan"), others=[job("known", 100.0)])
    assert known(book)[1] == 100.0


def test_an_app_that_kills_its_longest_trial_is_as_badly_off_as_one_that_never_had_it() -> None:
    """Else it would be entitled to wait for a trial that is not there, and the other would have all first leases."""
    options = (Option(Shape("v100", 1, "node"), 1.0),)

    def arrival(name: str, app: str, seconds: float) -> Arrival:
        return Arrival(Job(name, 0.0, options, app=app, steps_total=seconds), Truth(seconds, options))

    setup = Setup(cluster(nodes=1, gpus=1), (PoolSpec("all", "themis", {"f": 1.0, "lease_seconds": 600.0}),))
    short, other = arrival("short", "a", 4000.0), arrival("other", "b", 4500.0)
    without = simulate(setup, [short, other])
    killed = simulate(setup, [short, arrival("killed", "a", 90_000.0), other], [JobCancelled(0.5, "killed")])
    ends = [
        {run.log.jobs.id[row]: run.log.jobs.ended_at[row] for row in range(len(run.log.jobs))}
        for run in (without, killed)
    ]
    assert ends[1]["short"] == pytest.approx(ends[0]["short"], abs=1.0)
