"""Successive halving by what jobs report, told by hand what becomes of them."""

from __future__ import annotations

from math import inf, nan

import pytest

from horae.engines.search.halving import Halving
from horae.engines.search.loss_forecast import Report
from horae.model.errors import JobError
from horae.model.events import Ending, JobCancelled, JobEnded
from horae.model.jobs import Arrival, Job, Truth
from horae.model.searches import Bracket, Trial
from horae.model.shapes import Option, Shape

OPTIONS = (Option(Shape("V100", 1, "node"), 1.0),)


class Told:
    """By job, the losses that it has reported; each is told once."""

    def __init__(self, **losses: list[float]) -> None:
        self._losses = losses

    def until(self, job_id: str, steps: float) -> list[Report]:
        return [Report(job_id, float(step), loss) for step, loss in enumerate(self._losses.pop(job_id, []))]


def bracket(trials: int = 4, retries_max: int = 0) -> Bracket:
    """Of trials whose curves nobody knows."""
    jobs = [Job(f"t{n}", 0.0, OPTIONS, steps_total=70.0, retries_max=retries_max) for n in range(trials)]
    return Bracket(tuple(Trial(Arrival(job, Truth(70.0, OPTIONS))) for job in jobs))


def ended(job_id: str, ending: Ending = Ending.FINISHED, epoch: int = 0) -> JobEnded:
    return JobEnded(5.0, job_id, epoch, ending, 10.0)


def promoted(halving: Halving, *job_ids: str) -> list[str]:
    """Who is promoted when the last of these has finished."""
    *others, last = job_ids
    assert not any(halving.heard(ended(job_id), 9.0) for job_id in others)
    return [arrival.job.id for arrival in halving.heard(ended(last), 9.0)]


@pytest.mark.parametrize(
    ("losses", "survivors", "why"),
    [
        ([[0.5], [0.2], [0.9], [0.3]], ["t1.1", "t3.1"], "the two lowest go on"),
        ([[0.1, 0.9], [0.9, 0.2], [0.1, 0.8], [0.9, 0.3]], ["t1.1", "t3.1"], "by the last report, not by the best"),
        ([[], [0.8], [], [0.9]], ["t1.1", "t3.1"], "silence is worse than any loss"),
        ([[], [], [], [0.9]], ["t0.1", "t3.1"], "of those who are silent, the first"),
        ([[0.5], [0.5], [0.5], [0.5]], ["t0.1", "t1.1"], "of equals, the first"),
        ([[0.1, nan], [0.1, inf], [0.9], [0.8]], ["t2.1", "t3.1"], "what was good has gone wrong"),
        ([[-1.0], [0.0], [0.9], [nan, 0.8]], ["t2.1", "t3.1"], "what is not above 0 is no loss"),
    ],
    ids=lambda value: value.replace(" ", "-") if isinstance(value, str) else "",
)
def test_who_goes_on_is_decided_by_the_last_reports(losses: list[list[float]], survivors: list[str], why: str) -> None:
    told = Told(**{f"t{number}": each for number, each in enumerate(losses)})
    assert promoted(Halving(bracket(), "", told), "t3", "t0", "t2", "t1") == survivors, why


def test_each_rung_goes_on_with_the_work_of_the_one_before() -> None:
    told = Told(**{"t0": [0.4], "t1": [0.3], "t0.1": [0.1], "t1.1": [0.2]})
    halving = Halving(bracket(), "", told)
    for job_id in ("t0", "t1", "t2"):
        halving.heard(ended(job_id), 9.0)
    second = [arrival.job for arrival in halving.heard(ended("t3"), 9.0)]
    halving.heard(ended("t0.1"), 20.0)
    (third,) = [arrival.job for arrival in halving.heard(ended("t1.1"), 20.0)]
    assert [(job.id, job.continues) for job in second] == [("t0.1", "t0"), ("t1.1", "t1")]
    assert (third.id, third.continues) == ("t0.2", "t0.1")
    assert [job.steps_total for job in (*second, third)] == pytest.approx([20.0, 20.0, 40.0])
    assert third.submitted_at == 20.0
    assert halving.heard(ended("t0.2"), 60.0) == []


def test_news_that_is_told_twice_changes_nothing() -> None:
    told = Told(t0=[0.1], t1=[0.2], t2=[0.8], t3=[0.9])
    halving = Halving(bracket(), "", told)
    assert halving.heard(ended("t0"), 9.0) == halving.heard(ended("t0"), 9.0) == []
    assert promoted(halving, "t1", "t2", "t3") == ["t0.1", "t1.1"]
    assert halving.heard(ended("t3"), 9.0) == []


def test_nobody_waits_for_a_trial_that_failed_for_good_or_was_cancelled_and_it_does_not_go_on() -> None:
    halving = Halving(bracket(), "", Told(t0=[0.1], t3=[0.9]))
    assert halving.heard(ended("t0", Ending.FAILED), 9.0) == []
    assert halving.heard(ended("t1", Ending.FAILED), 9.0) == []
    assert halving.heard(ended("t3"), 9.0) == []
    assert [arrival.job.id for arrival in halving.heard(JobCancelled(9.0, "t2"), 9.0)] == ["t3.1"]


def test_a_search_all_of_whose_trials_have_failed_is_over() -> None:
    halving = Halving(bracket(2), "", Told())
    assert halving.heard(ended("t0", Ending.FAILED), 9.0) == []
    assert halving.heard(ended("t1", Ending.FAILED), 9.0) == []


def test_a_trial_that_will_be_tried_again_is_waited_for() -> None:
    halving = Halving(bracket(2, retries_max=1), "", Told(t0=[0.1], t1=[0.9]))
    assert halving.heard(ended("t1"), 9.0) == []
    for ending in (Ending.FAILED, Ending.FAILED, Ending.STOPPED, Ending.LOST):
        assert halving.heard(ended("t0", ending, epoch=3), 9.0) == []
    assert promoted(halving, "t0") == ["t0.1"]


def test_a_trial_that_has_failed_too_often_is_not() -> None:
    halving = Halving(bracket(2, retries_max=1), "", Told(t1=[0.9]))
    assert halving.heard(ended("t1"), 9.0) == []
    assert halving.heard(ended("t0", Ending.FAILED, epoch=3), 9.0) == []
    assert [arrival.job.id for arrival in halving.heard(ended("t0", Ending.FAILED, epoch=4), 9.0)] == ["t1.1"]


def test_without_reports_and_without_curves_nobody_can_be_chosen() -> None:
    halving = Halving(bracket(2), "")
    assert halving.heard(ended("t0"), 9.0) == []
    with pytest.raises(JobError, match="'t0' of a search has no loss curve"):
        halving.heard(ended("t1"), 9.0)
