"""Who holds GPUs and until when, where two jobs may be on the same ones."""

from __future__ import annotations

import pytest
from builders import ACCELERATOR, cluster, handle, job

from horae.model.events import JobStarted, JobSubmitted, Tick
from horae.model.explanations import Explanation
from horae.model.jobs import Job
from horae.model.setup import Cadence, PoolSpec, Setup
from horae.model.shapes import Demand, Shape
from horae.model.speeds import Sharing
from horae.scheduler import Scheduler


def ask_beside(*jobs: Job, gpus: int) -> Explanation:
    """These start at once, of "m" and "n" two by two on the same GPUs; what somebody is told who comes 10 s later."""
    kept = Sharing(("m", "n"), ACCELERATOR, 1, (0.5, 0.8))
    pool = PoolSpec("all", "gandiva", cadence=Cadence.ROUNDS)
    scheduler = Scheduler(Setup(cluster(nodes=1, gpus=gpus), (pool,), sharing=(kept,)))
    for each in jobs:
        handle(scheduler, JobSubmitted(0.0, each))
    for command in handle(scheduler, Tick(0.0)).commands:
        for job_id in command.job_ids:  # type: ignore[union-attr]
            handle(scheduler, JobStarted(0.0, job_id, command.epoch))  # type: ignore[union-attr]
    handle(scheduler, JobSubmitted(10.0, job("late", 10.0)))
    explanation = scheduler.explain("late")
    assert explanation is not None
    return explanation


def test_two_on_the_same_gpus_end_later_and_the_last_of_them_alone() -> None:
    told = ask_beside(job("first", model="m"), job("second", model="n"), gpus=1)
    # At 80% the second needs 125 seconds. By then the first has done 62.5, and the rest goes at its full speed.
    assert {holder.job_id: holder.ends_at for holder in told.holders} == {
        "first": pytest.approx(162.5),
        "second": pytest.approx(125.0),
    }
    assert told.unblocking is not None
    assert {holder.job_id for holder in told.unblocking.leaving} == {"first", "second"}
    assert told.unblocking.at == pytest.approx(162.5)


def test_gpus_of_two_are_free_when_both_have_ended() -> None:
    told = ask_beside(job("first", model="m"), job("second", model="n"), job("alone", seconds=140.0), gpus=2)
    assert [holder.job_id for holder in told.holders] == ["alone", "second", "first"]
    assert told.unblocking is not None
    assert [holder.job_id for holder in told.unblocking.leaving] == ["alone"]


def test_beside_one_of_unknown_length_the_other_stays_slow() -> None:
    told = ask_beside(job("first", model="m"), job("second", model="n", seconds=None), gpus=1)
    assert {holder.job_id: holder.ends_at for holder in told.holders} == {
        "first": pytest.approx(200.0),
        "second": float("inf"),
    }


@pytest.mark.parametrize(
    ("gang", "members", "together"),
    [
        pytest.param(8, (1, 1), 1, id="single GPUs"),
        pytest.param(8, (2, 4), 4, id="one divides the other"),
        pytest.param(12, (2, 3), 6, id="a common multiple"),
        pytest.param(6, (4, 3), 6, id="no more than the gang"),
    ],
)
def test_a_node_ends_only_where_members_of_both_end(gang: int, members: tuple[int, int], together: int) -> None:
    shapes = (Shape(ACCELERATOR, gang, "cluster"),)
    one, other = (Demand(shapes, member, 1.0, 2.0) for member in members)
    assert one.beside(other) == other.beside(one) == Demand(shapes, together, 2.0, 4.0)
