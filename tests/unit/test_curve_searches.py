"""The optimiser of a curve-based search, told by hand what its trials report."""

from __future__ import annotations

from math import exp, inf, nan

import numpy as np
import pytest

from horae.engines.search.early_stopping import Curves, DrawnReports
from horae.engines.search.loss_forecast import Report, forecast
from horae.model.events import CurveRevised, Ending, Event, JobCancelled
from horae.model.jobs import Arrival, Curve, Job, Truth
from horae.model.searches import Method, Search, Trial
from horae.model.shapes import Option, Shape

OPTIONS = (Option(Shape("V100", 1, "node"), 1.0),)
TOTAL = 1000.0
GOOD, FAIR, POOR = Curve(0.05, 1.0, 0.2), Curve(0.05, 1.0, 0.21), Curve(0.05, 1.0, 0.9)


def trial(name: str, curve: Curve) -> Trial:
    return Trial(Arrival(Job(name, 0.0, OPTIONS, app="search"), Truth(TOTAL, OPTIONS)), curve)


def search(**curves: Curve) -> Search:
    """Of trials whose lengths the scheduler is not told."""
    return Search("search", 0.0, Method.CURVES, tuple(trial(name, curve) for name, curve in curves.items()))


def reports(name: str, curve: Curve, until: float, first: float = 10.0) -> list[Report]:
    """Every ten steps, without noise."""
    steps = [10.0 * number for number in range(round(first / 10), round(until / 10) + 1)]
    return [Report(name, step, 1 / (curve.rate * step + curve.start) + curve.floor) for step in steps]


def killed(events: list[Event]) -> list[str]:
    return [event.job_id for event in events if isinstance(event, JobCancelled)]


def test_a_hopeless_trial_is_killed_though_it_does_not_run_just_now() -> None:
    curves = Curves(search(good=GOOD, poor=POOR))
    curves.heard([*reports("good", GOOD, 200.0), *reports("poor", POOR, 200.0)])
    events = curves.look(600.0, {"good"})
    assert killed(events) == ["poor"]
    assert set(curves.job_ids) == {"good"}
    assert [event.job_id for event in events if isinstance(event, CurveRevised)] == ["good"]


@pytest.mark.parametrize(
    ("told", "why"),
    [
        (reports("poor", POOR, 90.0), "it has not shown a tenth of its curve"),
        (reports("poor", POOR, 200.0, first=180.0), "three reports are too few"),
        ([report._replace(loss=nan) for report in reports("poor", POOR, 200.0)], "nothing of it is a loss"),
    ],
    ids=lambda value: value.replace(" ", "-") if isinstance(value, str) else "",
)
def test_of_whom_too_little_is_known_he_is_left_alone(told: list[Report], why: str) -> None:
    curves = Curves(search(good=GOOD, poor=POOR))
    curves.heard([*reports("good", GOOD, 200.0), *told])
    assert killed(curves.look(600.0, {"good", "poor"})) == [], why


def test_the_last_loss_of_one_that_has_finished_is_what_others_must_come_near() -> None:
    curves = Curves(search(good=GOOD, fair=FAIR, poor=POOR))
    curves.heard(reports("good", GOOD, TOTAL)[::-1])
    curves.ended("good", Ending.FINISHED)
    curves.heard([*reports("fair", FAIR, 200.0), *reports("poor", POOR, 200.0)])
    assert killed(curves.look(600.0, {"fair", "poor"})) == ["poor"]


def test_the_hopes_of_a_trial_that_has_failed_kill_nobody_until_it_runs_again() -> None:
    curves = Curves(search(good=GOOD, poor=POOR))
    curves.heard([*reports("good", GOOD, 200.0), *reports("poor", POOR, 200.0)])
    curves.ended("good", Ending.FAILED)
    assert killed(curves.look(600.0, {"poor"})) == []
    curves.began("good", 700.0)
    assert killed(curves.look(1200.0, {"good", "poor"})) == ["poor"]


def test_a_trial_whose_losses_fall_in_another_form_has_nobody_killed() -> None:
    """It falls exponentially, to 0.9: the fitted curve goes far below that, and the other is as good in truth."""
    steps = [10.0 * number for number in range(1, 41)]
    falls = [Report("good", step, 0.9 + 1.2 * exp(-step / 150)) for step in steps]
    found = forecast(np.array(steps), np.array([report.loss for report in falls]), TOTAL)
    assert found is not None
    assert found.high * 1.1 < 0.9
    curves = Curves(search(good=GOOD, poor=POOR))
    curves.heard([*falls, *reports("poor", POOR, 400.0)])
    assert killed(curves.look(600.0, {"good", "poor"})) == []


def test_losses_that_fall_by_a_power_of_the_steps_cost_work_but_not_the_best_trial() -> None:
    """Fifteen searches of twelve trials, looked at each twentieth of the way."""
    work = 0.0
    for seed in range(15):
        draw = np.random.default_rng(seed)
        fall = {f"t{n}": (draw.uniform(0.15, 1.05), draw.uniform(0.5, 2), draw.uniform(0.3, 0.8)) for n in range(12)}
        loss = {name: (lambda k, f=f: f[0] + f[1] * (k / 10) ** -f[2]) for name, f in fall.items()}
        curves = Curves(search(**dict.fromkeys(fall, GOOD)))
        for look in range(1, 20):
            steps = [50.0 * (look - 1) + 10.0 * part for part in range(1, 6)]
            for name in list(curves.job_ids):
                noise = 1 + 0.01 * draw.uniform(-1, 1, len(steps))
                curves.heard([Report(name, k, loss[name](k) * e) for k, e in zip(steps, noise.tolist(), strict=True)])
            work += len(curves.job_ids) / (15 * 12 * 19)
            curves.look(600.0 * look, curves.job_ids)
        assert min(fall, key=lambda name: loss[name](TOTAL)) in curves.job_ids
    assert work < 0.5


def test_a_trial_that_was_stopped_or_lost_goes_on_later() -> None:
    curves = Curves(search(good=GOOD))
    for ending in (Ending.STOPPED, Ending.LOST, Ending.FAILED):
        curves.ended("good", ending)
    assert list(curves.job_ids) == ["good"]


def test_it_looks_as_long_as_one_of_its_trials_runs() -> None:
    curves = Curves(search(good=GOOD, poor=POOR))
    assert curves.look_at == inf
    curves.began("good", 50.0)
    assert curves.look_at == 650.0
    curves.began("poor", 100.0)
    assert curves.look_at == 650.0
    curves.look(650.0, {"poor", "a job of somebody else"})
    assert curves.look_at == 1250.0
    curves.look(1250.0, {"a job of somebody else"})
    assert curves.look_at == inf
    curves.began("a job of somebody else", 2000.0)
    assert curves.look_at == inf


def test_reports_of_those_who_are_gone_are_not_heard() -> None:
    curves = Curves(search(good=GOOD))
    curves.cancelled("good")
    curves.heard(reports("good", GOOD, 500.0))
    assert curves.look(600.0, {"good"}) == []


def test_simulated_trials_report_each_hundredth_once_and_nothing_that_they_have_not_done() -> None:
    one = search(good=GOOD)
    drawn = DrawnReports([one])
    first, second = drawn.until("good", 99.9), drawn.until("good", 300.0)
    assert [report.steps for report in [*first, *second]] == pytest.approx([10.0 * n for n in range(1, 31)])
    assert len(first) == 9
    assert drawn.until("good", 250.0) == []
    assert drawn.until("good", 2 * TOTAL)[-1] == Report("good", TOTAL, one.trials[0].loss(1.0))
