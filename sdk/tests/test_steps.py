"""The loop, when a checkpoint is due, and the measured speed; time is passed as a value."""

from __future__ import annotations

import math

import horae_sdk as horae
import pytest
from horae_sdk._schedule import Schedule
from horae_sdk._speed import Speed
from sdk_jobs import Job


@pytest.mark.parametrize(
    ("loader", "start", "total", "steps"),
    [
        pytest.param("abc", 0, None, [(1, "a"), (2, "b"), (3, "c")], id="without a total, one pass"),
        pytest.param("abc", 0, 2, [(1, "a"), (2, "b")], id="no more than the total"),
        pytest.param("ab", 0, 3, [(1, "a"), (2, "b"), (3, "a")], id="another pass where the loader ends"),
        pytest.param("abc", 7, 9, [(8, "a"), (9, "b")], id="the total counts from the first start"),
        pytest.param("abc", 9, 9, [], id="nothing is left"),
        pytest.param("", 0, None, [], id="nothing to do"),
    ],
)
def test_steps(loader: str, start: int, total: int | None, steps: list[tuple[int, str]]) -> None:
    assert list(horae.init().steps(loader, start=start, total=total)) == steps


def test_the_total_of_the_job_is_used_where_the_script_has_none(in_job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HORAE_STEPS_TOTAL", "4")
    assert [step for step, _ in horae.init().steps("abc", start=1)] == [2, 3, 4]
    assert [step for step, _ in horae.init().steps("abc", total=2)] == [1, 2]


def test_a_loader_that_cannot_be_iterated_again_is_an_error_before_the_total() -> None:
    run = horae.init()
    with pytest.raises(ValueError, match="empty after 2 of 3 steps"):
        list(run.steps(iter("ab"), total=3))


@pytest.mark.parametrize("options", [{"every": -1.0}, {"every": math.nan}, {"report_seconds": 0.0}], ids=str)
def test_options_are_checked(options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="="):
        horae.init(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize(("every", "due"), [(0.0, True), (600.0, False), (math.inf, False)])
def test_a_run_asks_the_clock(every: float, due: bool) -> None:
    assert horae.init(every=every).checkpoint_due() == due


def test_a_checkpoint_is_due_when_the_period_has_passed_since_the_last() -> None:
    schedule = Schedule(100.0, every_seconds=60.0, lease_ends_at=None)
    assert not schedule.due(159.0, 1.0)
    assert schedule.due(160.0, 1.0)
    schedule.begin_save(160.0)
    assert schedule.end_save(170.0) == 10.0
    assert not schedule.due(229.0, 1.0)
    assert schedule.due(230.0, 1.0)


def test_a_checkpoint_is_due_once_before_the_lease_ends() -> None:
    schedule = Schedule(0.0, every_seconds=math.inf, lease_ends_at=1000.0)
    assert not schedule.due(940.0, 1.0)
    assert schedule.due(951.0, 1.0), "half a minute is assumed for a save, one and a half times that is left for it"
    schedule.begin_save(951.0)
    schedule.end_save(981.0)
    assert not schedule.due(981.0, 1.0)
    assert not schedule.due(5000.0, 1.0)


@pytest.mark.parametrize(
    ("save_seconds", "step_seconds", "due_at"), [(0.0, 0.0, 998.0), (100.0, 0.0, 848.0), (100.0, 20.0, 808.0)]
)
def test_the_lease_leaves_time_for_a_save_as_measured_and_for_two_steps(
    save_seconds: float, step_seconds: float, due_at: float
) -> None:
    schedule = Schedule(0.0, every_seconds=math.inf, lease_ends_at=1000.0)
    schedule.begin_save(10.0)
    schedule.end_save(10.0 + save_seconds)
    assert not schedule.due(due_at - 0.1, step_seconds)
    assert schedule.due(due_at, step_seconds)


@pytest.mark.parametrize(
    ("lease_ends_at", "now", "due"),
    [(20.0, 9.0, False), (20.0, 10.0, True), (-5.0, 100.0, False)],
    ids=["the first half of a short lease", "its second half", "a lease that ended before the run began"],
)
def test_short_leases(lease_ends_at: float, now: float, due: bool) -> None:
    assert Schedule(0.0, every_seconds=math.inf, lease_ends_at=lease_ends_at).due(now, 0.0) == due


def test_the_speed_is_that_of_the_last_half_minute_without_saves() -> None:
    speed = Speed()
    speed.restart(0.0, 100)
    for second in range(1, 61):
        speed.step(float(second), 100 + 10 * second)
    assert speed.steps_per_second == pytest.approx(10.0)
    speed.pause(40.0)
    for second in range(61, 121):
        speed.step(40.0 + second, 700 + 20 * (second - 60))
    assert speed.steps_per_second == pytest.approx(20.0)


def test_the_speed_of_steps_longer_than_the_window() -> None:
    speed = Speed()
    speed.restart(0.0, 0)
    assert speed.steps_per_second == 0.0
    for step in (1, 2, 3, 4):
        speed.step(50.0 * step, step)
        assert speed.steps_per_second == pytest.approx(1 / 50)
