"""Reports of progress, against a real server: one that works, and several that do not."""

from __future__ import annotations

import json
import logging
import math
import socket
import threading
import time
from itertools import pairwise

import horae_sdk as horae
import pytest
from horae_sdk import _reports
from patience import HANG_SECONDS, wait_until
from sdk_jobs import Job, Service, finish


@pytest.fixture
def reporting(in_job: Job, service: Service, monkeypatch: pytest.MonkeyPatch) -> Service:
    monkeypatch.setenv("HORAE_URL", service.url)
    monkeypatch.setenv("HORAE_TOKEN", "secret")
    monkeypatch.setattr(_reports, "_TIMEOUT_SECONDS", HANG_SECONDS)  # no test depends on speed
    return service


def test_a_report_has_the_address_the_token_and_the_body_of_the_contract(
    reporting: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HORAE_JOB", "team/job 1?")
    monkeypatch.setenv("HORAE_EPOCH", "4")
    run = horae.init(report_seconds=0.01)
    wait_until(lambda: bool(reporting.requests))
    path, headers, body = reporting.requests[0]
    assert path == "/v1/jobs/team%2Fjob%201%3F/progress"
    assert headers["Authorization"] == "Bearer secret"
    assert headers["Content-Type"] == "application/json"
    assert body == {
        "epoch": 4, "steps": 0.0, "saved": 0.0, "loss": None, "steps_per_second": 0.0, "resumable": True,
    }  # fmt: skip
    run.close()


def test_steps_losses_and_saves_are_reported_and_the_newest_value_wins(reporting: Service) -> None:
    run = horae.init(report_seconds=0.01)
    for step, _ in run.steps(range(1000), start=500, total=1500):
        run.report(loss=1.0 / step)
        if step == 700:
            (run.checkpoint_dir / "state").write_text("x")
            run.saved(step)
    run.close()
    last = reporting.bodies[-1]
    assert (last["steps"], last["saved"], last["loss"]) == (1500.0, 700.0, 1.0 / 1500)
    assert last["steps_per_second"] > 0
    steps = [body["steps"] for body in reporting.bodies]
    assert steps == sorted(steps)
    assert all(body["saved"] <= body["steps"] for body in reporting.bodies)
    assert len(steps) < 1000, "many steps are one report"


def test_a_resumed_run_counts_from_the_steps_of_earlier_epochs(
    reporting: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HORAE_CHECKPOINT", "/somewhere/save-000001")
    monkeypatch.setenv("HORAE_STEPS_DONE", "120")
    horae.init().close()
    assert (reporting.bodies[0]["steps"], reporting.bodies[0]["saved"]) == (120.0, 120.0)


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_no_number_is_sent_as_null_and_diverged(reporting: Service, loss: float) -> None:
    run = horae.init(report_seconds=0.01)
    run.report(loss=loss)
    run.close()
    assert reporting.bodies[-1]["loss"] is None
    assert reporting.bodies[-1]["diverged"] is True


class Tensor:
    """A tensor, as far as a report looks at it."""

    def __init__(self, value: float, readers: list[str]) -> None:
        self.value, self.readers = value, readers

    def detach(self) -> Tensor:
        return self

    def __float__(self) -> float:
        self.readers.append(threading.current_thread().name)
        return self.value


def test_training_does_not_wait_for_the_value_of_a_tensor(reporting: Service) -> None:
    readers: list[str] = []
    run = horae.init(report_seconds=0.01)
    run.report(loss=Tensor(0.25, readers))
    run.close()
    assert reporting.bodies[-1]["loss"] == 0.25
    assert set(readers) == {"horae-reports"}


def test_a_loss_that_cannot_be_a_number_is_the_mistake_of_the_script() -> None:
    with pytest.raises(TypeError):
        horae.init().report(loss=[1.0])


def test_nothing_is_sent_twice(reporting: Service) -> None:
    run = horae.init(report_seconds=0.01)
    for _ in range(5):
        run.report(loss=1.0, step=3)
    run.close()
    assert all(one != other for one, other in pairwise(reporting.bodies))


@pytest.mark.parametrize("variables", [{"RANK": "1", "WORLD_SIZE": "2"}, {"HORAE_URL": ""}, {"HORAE_JOB": ""}], ids=str)
def test_other_ranks_and_runs_outside_of_horae_report_nothing(
    reporting: Service, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    run = horae.init()
    assert list(run.steps("ab")) == [(1, "a"), (2, "b")]
    run.close()
    assert not reporting.requests
    assert "horae-reports" not in [thread.name for thread in threading.enumerate()]


def test_after_errors_the_newest_state_is_sent_and_one_warning_is_written(
    reporting: Service, caplog: pytest.LogCaptureFixture
) -> None:
    answers = iter([500, 401, 302])
    reporting.answer = lambda: next(answers, 200)
    with caplog.at_level(logging.WARNING, "horae_sdk"):
        run = horae.init(report_seconds=0.01)
        wait_until(lambda: len(reporting.requests) >= 2)
        run.report(loss=0.5, step=9)
        wait_until(lambda: len(reporting.requests) >= 4 and reporting.bodies[-1]["steps"] == 9.0)
    assert {path for path, _, _ in reporting.requests} == {"/v1/jobs/job-1/progress"}, "the token is not redirected"
    assert len(caplog.records) == 1
    run.close()


def test_pauses_double_with_each_failure_up_to_a_minute() -> None:
    reporter = _reports.Reporter("http://127.0.0.1:1", None, dict, seconds=1.0)
    pauses = []
    for failures in range(8):
        reporter._failures = failures
        pauses.append(reporter._pause_seconds())
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]
    reporter.close()


def test_a_service_that_refuses_connections_disturbs_nothing(in_job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        monkeypatch.setenv("HORAE_URL", f"http://127.0.0.1:{taken.getsockname()[1]}")
        run = horae.init(report_seconds=0.01)
        assert len(list(run.steps(range(100)))) == 100
        run.close()


@pytest.mark.parametrize("url", ["nonsense", "http://[", "ftp://127.0.0.1"])
def test_an_address_that_is_none_disturbs_nothing(in_job: Job, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("HORAE_URL", url)
    run = horae.init(report_seconds=0.01)
    assert len(list(run.steps(range(100)))) == 100
    run.close()


def test_a_service_that_hangs_delays_neither_steps_nor_the_exit_for_long(
    reporting: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_reports, "_TIMEOUT_SECONDS", 0.2)
    released = threading.Event()
    reporting.answer = lambda: 200 if released.wait() else 500
    run = horae.init(report_seconds=0.01)
    assert len(list(run.steps(range(100)))) == 100, "steps end while the server hangs"
    run.close()
    assert not reporting.requests, "the exit did not wait for an answer"
    released.set()


def test_proxies_of_the_environment_are_not_used(reporting: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    horae.init().close()
    assert reporting.requests


def test_the_last_report_is_sent_at_exit(job: Job, service: Service) -> None:
    """Also of a script that ends within the pause between two reports."""
    job.variables["HORAE_URL"] = service.url
    status, _, errors = finish(
        job.start("""
            import horae_sdk as horae
            from horae_sdk import _reports

            _reports._TIMEOUT_SECONDS = 1000
            run = horae.init(report_seconds=1000)
            for step, batch in run.steps(range(50)):
                run.report(loss=step)
        """)
    )
    assert status == 0, errors
    assert (service.bodies[-1]["steps"], service.bodies[-1]["loss"]) == (50.0, 50.0)


def test_reports_come_at_most_once_per_period(reporting: Service) -> None:
    times: list[float] = []
    reporting.answer = lambda: times.append(time.monotonic()) or 200  # type: ignore[func-returns-value]
    run = horae.init(report_seconds=0.1)
    for step, _ in run.steps(iter(int, 1)):
        run.report(loss=step)
        if len(times) >= 4:
            break
    assert all(later - earlier > 0.099 for earlier, later in pairwise(times))
    run.close()


def test_the_token_is_not_shown(reporting: Service) -> None:
    run = horae.init()
    assert "secret" not in repr(run.environment)
    assert json.dumps(reporting.bodies).count("secret") == 0
    run.close()


def test_a_number_that_is_none_is_named(in_job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HORAE_EPOCH", "first")
    with pytest.raises(ValueError, match="HORAE_EPOCH is 'first'"):
        horae.init()
