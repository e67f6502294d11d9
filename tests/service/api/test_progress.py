"""Reports of jobs: who may send them, what they change, and how often the log hears of it."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import httpx
import pytest
from service.api.harness import Clients, World, refused

from horae.service.api.reports import POINTS_MAX, SPEED_STEPS, SPEED_TOLERANCE, SPEEDS_MAX, Throttle
from horae.service.api.tokens import job_token
from horae.service.store import schema


@pytest.fixture
def job(world: World) -> str:
    spec = json.dumps({"run": "x", "model": "bert", "gpus": 2, "speed": {"A100": 4.0}})
    world.add_running("8", 5, "a0/0 a0/1", model="bert", spec=spec, steps_total=1000.0)
    return "8"


def report(send: Clients, job: str, token: str = "", **values: Any) -> httpx.Response:
    body = {"epoch": 5, "steps": 10.0, **values}
    token = token or job_token("a secret", job, body["epoch"])
    path = f"/v1/jobs/{job}/progress"
    return send.request("POST", path, json=body, headers={"Authorization": f"Bearer {token}"})


def test_a_report_is_shown_and_only_news_enters_the_log(world: World, send: Clients, job: str) -> None:
    assert report(send, job, loss=0.7).status_code == 204
    assert world.inbox() == []
    assert report(send, job, steps=20.0, saved=15.0, loss=0.5, resumable=True).status_code == 204
    assert report(send, job, steps=30.0, saved=25.0, resumable=True).status_code == 204
    assert [(kind, event.get("steps")) for kind, event in world.inbox()] == [
        ("JobResumable", None),
        ("JobProgressed", 15.0),
    ]
    shown = send("ann", "GET", f"/v1/jobs/{job}/progress").json()
    assert (shown["steps"], shown["saved"], shown["loss"], shown["steps_total"]) == (30.0, 25.0, 0.5, 1000.0)
    assert shown["resumable"] is True
    assert [(point["steps"], point["loss"]) for point in shown["points"]] == [
        (10.0, 0.7),
        (20.0, 0.5),
        (30.0, None),
    ]


def test_only_the_token_of_this_job_and_lease_is_taken(world: World, send: Clients, job: str) -> None:
    world.add_running("9", 6, "a0/2")
    for token in (job_token("a secret", "9", 5), job_token("a secret", job, 4), job_token("guess", job, 5), "x"):
        refused(report(send, job, token), 401)
    refused(report(send, job, world.tokens["olga"]), 401)
    refused(report(send, job, epoch=4), 409)
    refused(report(send, "77"), 409)
    other = send.request("GET", f"/v1/jobs/{job}", headers={"Authorization": f"Bearer {job_token('a secret', job, 5)}"})
    refused(other, 401)
    assert world.rows(schema.progress) == []


def test_a_measured_speed_that_differs_is_believed(world: World, send: Clients, job: str) -> None:
    report(send, job, steps=0.0)
    report(send, job, steps=20.0, steps_per_second=4.2)
    assert world.inbox() == []
    report(send, job, steps=30.0, steps_per_second=2.0)
    report(send, job, steps=40.0, steps_per_second=1.0)
    ((kind, event),) = world.inbox()
    assert kind == "SpeedRevised"
    assert (event["model"], event["steps_per_second"]) == ("bert", 2.0)
    assert event["shape"] == {"accelerator": "A100", "gpus": 2, "level": "node"}
    assert event["tenant"] == "nlp"
    (row,) = world.rows(schema.speeds)
    assert (row.tenant, row.model, row.gpu_type, row.gpus, row.steps_per_second) == ("nlp", "bert", "A100", 2, 2.0)


def test_a_few_steps_are_no_measurement(world: World, send: Clients, job: str) -> None:
    """The first step of a lease may take long, and a resumed job has done many steps before."""
    report(send, job, steps=500.0)
    report(send, job, steps=500.0 + SPEED_STEPS - 1, steps_per_second=1.0)
    assert world.inbox() == []
    report(send, job, steps=500.0 + SPEED_STEPS, steps_per_second=2.0)
    assert [(kind, event["steps_per_second"]) for kind, event in world.inbox()] == [("SpeedRevised", 2.0)]
    with world.engine.begin() as connection:
        connection.execute(schema.jobs.update().values(epoch=6, model="other"))
    report(send, job, epoch=6, steps=520.0, steps_per_second=1.0)
    assert len(world.inbox()) == 1, "a new lease begins anew"


def test_the_believed_speed_is_a_mean_of_the_last_reports(
    world: World, send: Clients, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Throttle, "is_due", lambda self, name: True)
    report(send, job, steps=0.0)
    for speed in (2.0, 1.0, 3.0):
        report(send, job, steps=20.0, steps_per_second=speed)
    believed = [event["steps_per_second"] for _, event in world.inbox()]
    assert believed == pytest.approx([2.0, 1.5, 2.0])
    for _ in range(20):
        report(send, job, steps=20.0, steps_per_second=8.0)
    (row,) = world.rows(schema.speeds)
    assert row.steps_per_second == pytest.approx(8.0, rel=SPEED_TOLERANCE), "a model that has become faster is followed"


def test_a_tenant_keeps_a_bounded_number_of_speeds_the_latest(world: World, send: Clients, job: str) -> None:
    rows = [
        {"tenant": tenant, "model": f"m{number}", "gpu_type": "A100", "gpus": 1, "steps_per_second": 1.0, "reports": 1,
         "wall": float(number)}
        for tenant in ("nlp", "vision") for number in range(SPEEDS_MAX)
    ]  # fmt: skip
    with world.engine.begin() as connection:
        connection.execute(schema.speeds.insert(), rows)
    report(send, job, steps=0.0)
    report(send, job, steps=20.0, steps_per_second=2.0)
    kept = Counter(row.tenant for row in world.rows(schema.speeds))
    assert kept == {"nlp": SPEEDS_MAX, "vision": SPEEDS_MAX}
    assert "m0" not in {row.model for row in world.rows(schema.speeds) if row.tenant == "nlp"}


def test_losses_are_thinned(world: World, send: Clients, job: str) -> None:
    rows = [{"job_id": job, "steps": float(each), "wall": 0.0, "loss": 1.0} for each in range(POINTS_MAX)]
    with world.engine.begin() as connection:
        connection.execute(schema.points.insert(), rows)
    report(send, job, steps=1000.0, loss=0.1)
    points = send("ann", "GET", f"/v1/jobs/{job}/progress").json()["points"]
    assert len(points) == POINTS_MAX // 2 + 1
    assert (points[0]["steps"], points[-1]["steps"]) == (0.0, 1000.0)


def test_a_report_without_a_loss_keeps_the_one_of_the_same_steps(send: Clients, job: str) -> None:
    reports: list[dict[str, Any]] = [{"loss": 0.7}, {}, {"steps": 20.0}, {"steps": 20.0, "loss": 0.4}]
    for values in reports:
        report(send, job, **values)
    points = send("ann", "GET", f"/v1/jobs/{job}/progress").json()["points"]
    assert [(point["steps"], point["loss"]) for point in points] == [(10.0, 0.7), (20.0, 0.4)]


def test_a_report_of_nothing_possible_is_refused(send: Clients, job: str) -> None:
    for values in ({"steps": -1}, {"saved": "x"}, {"wrong": 1}):
        refused(report(send, job, **values), 422)
