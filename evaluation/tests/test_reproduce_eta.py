"""Questions about starts and delays: on a small generated history, and with answers that are made up."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from pathlib import Path

import pytest
from command_line import horae
from horae_evaluation.eta.calibration import HORIZONS, Answer, Errors, Wait, ask_etas, baseline, by_horizon, part_of
from horae_evaluation.eta.delays import DelayErrors, PlanAnswer, ask_plans
from horae_evaluation.eta.histories import POLICIES, History, past_at, seconds_of
from horae_evaluation.eta.live import HORIZONS as LIVE_HORIZONS
from horae_evaluation.eta.live import ask_live, draw_jobs
from horae_evaluation.eta.page import duration, page
from live_service import SOURCES

from horae.forks.eta import Moments
from horae.model.cluster import Cluster, Node
from horae.scheduler import Scheduler
from horae.traces.generators import Poisson

DAY = 86_400.0


def _history(*, lengths_known: bool = False) -> History:
    made = Poisson(jobs=60, cluster_gpus=16, load=1.5, median_seconds=3000.0, sigma=1.0).arrivals(seed=1)
    found = []
    for each in made:
        steps = each.truth.steps_total if lengths_known else None
        options = tuple(option for option in each.job.options if option.shape.gpus <= 16)
        if options:
            found.append(replace(each, job=replace(each.job, steps_total=steps, options=options)))
    return History("made", Cluster("test", tuple(Node(f"n{n}", "gpu", 8) for n in range(2))), tuple(found))


def _answer(wait: float, low: float, median: float, high: float) -> Answer:
    return Answer("made", "fifo with backfill", "1", wait, Moments(median, low, high), Moments(100.0, 50.0, 150.0))


@pytest.mark.parametrize("policy", POLICIES)
def test_a_visit_does_not_change_what_happens_and_sees_only_the_past(policy: str) -> None:
    history = _history()
    seen = history.run(policy)
    moments = [10_000.0, 10_000.5, 20_000.0]
    visited: list[tuple[int, float]] = []

    def look(number: int, scheduler: Scheduler) -> None:
        visited.append((number, scheduler.now))
        started = {job_id for job_id, at in seen.started.items() if at <= scheduler.now}
        assert {job_id for job_id in scheduler.jobs.live if scheduler.jobs.on_gpus(job_id) is not None} <= started
        ended = [each.job.id for each in past_at(history, seen, scheduler.now)]
        assert set(ended) == {job_id for job_id, at in seen.ended.items() if at < scheduler.now}
        assert not set(ended) & set(scheduler.jobs.live)

    history.visit(policy, moments, look)
    assert visited == list(enumerate(moments))


def test_with_known_lengths_and_no_past_the_answer_is_what_happens() -> None:
    """Under FIFO without a past, no later jobs are believed, and none matters."""
    history = _history(lengths_known=True)
    answers = ask_etas(history, "fifo with backfill", "first", 6, 3, seed=0)
    assert len(answers) == 6
    exact = [each for each in answers if each.predicted.median == pytest.approx(each.wait, abs=1e-3)]
    assert len(exact) >= 4, "later jobs may be backfilled before some"
    assert answers == ask_etas(history, "fifo with backfill", "first", 6, 3, seed=0)
    assert answers != ask_etas(history, "fifo with backfill", "first", 6, 3, seed=1)


def test_the_two_parts_share_no_job() -> None:
    history = _history()
    first, second = (part_of(history, part) for part in ("first", "second"))
    assert first[-1].job.submitted_at <= second[0].job.submitted_at
    assert not {each.job.id for each in first} & {each.job.id for each in second}


def test_delays_are_the_difference_of_two_runs() -> None:
    history = _history(lengths_known=True)
    answers = ask_plans(history, "fifo with backfill", "second", 3, 2, seed=0)
    assert len(answers) == 3
    assert any(each.actual for each in answers)
    assert all(each.predicted.keys() == each.actual.keys() for each in answers)
    assert all(each.job_id not in each.actual for each in answers)


def test_the_errors_of_delays() -> None:
    """Three jobs are delayed, two of which were named, beside one that was not delayed."""
    one = PlanAnswer("made", "p", "x", {"a": 100.0, "b": 0.0, "c": 600.0}, {"a": 160.0, "b": 300.0, "c": 0.0})
    other = PlanAnswer("made", "p", "y", {"a": 90.0}, {"a": 90.0})
    found = DelayErrors.of([one, other])
    assert (found.questions, found.jobs, found.delayed, found.found, found.named) == (2, 4, 3, 2, 3)
    assert (found.delay, found.error, found.sign) == (160.0, 60.0, 2)


def test_errors_and_coverage_by_horizon() -> None:
    answers = [_answer(100, 50, 90, 120), _answer(300, 10, 100, 200), _answer(20, 30, 40, 50), _answer(7000, 1, 2, inf)]
    found = by_horizon(answers, HORIZONS)
    assert list(found) == ["< 10 min", "< 6 h", "all"]
    short = found["< 10 min"]
    assert (short.questions, short.wait, short.error, short.width) == (3, 100, 20, 70)
    assert (short.covered, short.below) == pytest.approx((1 / 3, 1 / 3))
    assert (short.baseline_error, short.baseline_covered) == pytest.approx((80.0, 1 / 3))
    assert (found["all"].covered, found["< 6 h"].width) == (0.5, inf)
    unanswered = _answer(5, inf, inf, inf)
    assert Errors.of([unanswered])[:2] == (1, 0)
    assert Errors.of([*answers, unanswered])[2:] == found["all"][2:], "a question without an answer is counted apart"
    assert "| < 10 s | 1 | 0 |  |" in page([], [], [unanswered], LIVE_HORIZONS)


def test_the_baseline_is_of_the_last_week_and_of_jobs_as_large() -> None:
    past = [
        Wait(1, 10 * DAY, 10 * DAY + 60.0),
        Wait(1, 10 * DAY, 10 * DAY + 100.0),
        Wait(1, 10 * DAY, 10 * DAY + 140.0),
        Wait(8, 10 * DAY, 10 * DAY + 9000.0),
        Wait(1, 0.0, 5000.0),  # long ago
        Wait(1, 10 * DAY, 11 * DAY + 5000.0),  # not yet
    ]
    assert baseline(past, 1, 0.0, 11 * DAY) == Moments(100.0, 60.0, 140.0)
    assert baseline(past, 1, 80.0, 11 * DAY) == Moments(20.0, 0.0, 60.0)
    assert baseline(past, 8, 0.0, 11 * DAY).median == 9000.0
    assert baseline(past, 2, 0.0, 11 * DAY).high == 9000.0
    assert baseline([], 1, 0.0, DAY) == Moments(0.0, 0.0, 0.0)


def test_past_jobs_have_their_true_lengths() -> None:
    history = _history()
    seen = history.run("fifo with backfill")
    past = past_at(history, seen, inf)
    true = {each.job.id: seconds_of(each) for each in history.arrivals}
    assert {each.job.id: each.seconds for each in past} == true
    assert len(past_at(history, seen, inf, count=7)) == 7


def test_the_page_has_what_was_asked_for() -> None:
    plan = PlanAnswer("made", "tiresias", "x", {"a": 100.0}, {"a": 160.0})
    whole = page([_answer(100, 50, 90, 120)], [plan], [_answer(5, 1, 2, 9)], LIVE_HORIZONS)
    assert (
        "| made | fifo with backfill | < 10 min | 1 | 1 | 1.7 min | 10 s | 100% | 0% | 1.2 min | 0 s | 100% |" in whole
    )
    assert "| made | tiresias | 1 | 1 | 1 | 1 | 1 | 2.7 min | 1.0 min | 1 of 1 |" in whole
    assert "| < 10 s | 1 | 1 | 5 s | 3 s | 100% |" in whole
    assert page([], [plan], [], LIVE_HORIZONS).startswith("## Delays")
    assert [duration(each) for each in (59.0, 90.0, 5400.0, 2 * DAY, inf)] == [
        "59 s",
        "1.5 min",
        "1.5 h",
        "2.0 d",
        "open",
    ]


def test_a_real_service_is_asked_while_jobs_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", SOURCES)
    monkeypatch.setattr("horae_evaluation.eta.live.ASK_SECONDS", 0.5)
    monkeypatch.setattr("horae_evaluation.eta.live.ARRIVAL_SECONDS", 0.05)
    told: list[str] = []
    answers = ask_live(24, 0, tmp_path, told.append)
    assert told[-1].startswith("24 of 24 jobs submitted, 24 ended")
    assert answers
    assert all(each.wait >= 0.0 and each.predicted.low <= each.predicted.high for each in answers)
    assert {each.policy for each in answers} <= set(POLICIES)


def test_live_jobs_depend_on_the_seed_alone() -> None:
    assert draw_jobs(40, 1) == draw_jobs(40, 1) != draw_jobs(40, 2)
    assert {each.tenant for each in draw_jobs(40, 1)} == {"fifo", "tiresias", "max-min"}


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--policy", "srtf"], "--policy: is 'srtf'; use fifo with backfill, tiresias, max-min"),
        (["--part", "third"], "--part: is 'third'; use first or second"),
        (["--out", "/no/such/folder/x.json"], "name a file in a folder that exists"),
        (["--ask", "eta", "--data", "/no/such/folder"], "/no/such/folder"),
    ],
)
def test_bad_options_are_one_line(options: list[str], complaint: str) -> None:
    assert complaint in horae("reproduce", "eta", *options).complaint
