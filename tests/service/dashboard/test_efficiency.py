"""The page Efficiency: what is held and used, idle GPU-hours, prices; each requester sees its own jobs only."""

from __future__ import annotations

import json
from typing import Any

import pytest
from service.api.harness import Clients, FakeLoop, World
from service.dashboard.fairness_rows import add_hour, log_now

from horae.service.store import schema

CANARY = "canary"


@pytest.fixture
def used(world: World) -> World:
    for place, (name, gpu_type, gpus) in enumerate([("a0", "A100", 8), ("a1", "A100", 8), ("v0", "V100", 4)]):
        health = "draining" if name == "a1" else "healthy"
        world.insert(schema.nodes, name=name, gpu_type=gpu_type, gpus=gpus, health=health, reason="", position=place)
    world.insert(schema.gpus, gpu="a0/7", state="failed", note=CANARY, at=1.0)
    began = log_now() - 1800.0
    named = {"name": f"name-{CANARY}", "user": f"user-{CANARY}"}
    world.add_running("1", 1, "a0/0 a0/1", started_at=began, unused_gpu_seconds=900.0, **named)
    world.add_running("2", 2, "a0/1 a1/0", started_at=began, tenant="vision", user="bob")  # a0/1 is shared
    world.add_job("3", state="finished", ended_at=log_now(), gpu_seconds=7200.0)
    world.add_job("4", state="finished", ended_at=log_now() - 40 * 86_400.0, gpu_seconds=7200.0)
    report = {"wall": 1.0, "steps": 1.0, "saved": 0.0, "resumable": False}
    world.insert(schema.progress, job_id="1", epoch=1, steps_per_second=2.5, **report)
    world.insert(schema.progress, job_id="2", epoch=1, steps_per_second=9.0, **report)  # of a former lease
    add_hour(world, "A100", 0, unused=1800.0)
    add_hour(world, "A100", 1)
    add_hour(world, "V100", 900)
    speed = {"gpu_type": "A100", "gpus": 2, "steps_per_second": 2.5, "reports": 3, "wall": 1.0}
    world.insert(schema.speeds, tenant="nlp", model=f"model-{CANARY}", **speed)
    return world


def page(send: Clients, name: str, query: str = "") -> dict[str, Any]:
    answer = send(name, "GET", f"/data/efficiency?{query}")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_what_is_held_is_beside_what_was_used_where_it_was_measured(used: World, send: Clients) -> None:
    found = page(send, "olga")
    jobs = {row["job_id"]: row for row in found["jobs"]}
    assert list(jobs) == ["3", "1", "2"], "the most GPU-hours first, of the window"
    assert jobs["1"]["gpu_hours"] == pytest.approx(1.0, abs=0.01)
    assert jobs["1"]["used_gpu_hours"] == pytest.approx(0.75, abs=0.01)
    assert (jobs["2"]["used_gpu_hours"], jobs["2"]["measured_gpu_hours"]) == (None, 0.0)
    assert (jobs["1"]["steps_per_second"], jobs["2"]["steps_per_second"]) == (2.5, None)
    nlp, vision = found["tenants"]
    assert (nlp["gpu_hours"], nlp["measured_gpu_hours"]) == pytest.approx((3.0, 1.0), abs=0.01)
    assert nlp["used_gpu_hours"] == pytest.approx(0.75, abs=0.01)
    assert vision["used_gpu_hours"] is None


def test_gpus_are_counted_once_by_type(used: World, send: Clients) -> None:
    a100, v100 = page(send, "olga")["types"]
    assert (a100["gpus"], a100["held"], a100["unusable"]) == (16, 3, 1 + 7), "a failed GPU, and a node that drains"
    assert (v100["gpus"], v100["held"], v100["unusable"]) == (4, 0, 0)
    assert (a100["running_jobs"], a100["steps_per_second"]) == (2, 2.5)
    assert (v100["running_jobs"], v100["steps_per_second"]) == (0, None)


def test_idle_hours_are_of_the_window(used: World, send: Clients) -> None:
    hours = page(send, "olga")["hours"]
    assert [(row["gpu_type"], row["held"], row["idle"], row["unused"]) for row in hours] == [
        ("A100", 2.0, 1.0, None),
        ("A100", 2.0, 1.0, 0.5),
    ]
    assert len(page(send, "olga", "window=month")["hours"]) == 2
    assert [row["unused"] for row in page(send, "bob")["hours"]] == [None, None], "what others do not use"


def test_prices_are_of_pools_that_serve_the_requester(used: World, send: Clients) -> None:
    assert page(send, "olga")["prices"] == [], "the loop is away"
    told = {"policy": "max-min", "objective": "least level", "value": 1.0, "bound": 1.5, "decided_at": 7.0}
    pools = [
        {"pool": name, **told, "prices": [["A100", 0.25, True], ["V100", None, False]]} for name in ("nlp", "spare")
    ]
    with FakeLoop(used) as loop:
        loop.answers["prices"] = {"prices": [*pools, {"pool": "other", "policy": "fifo"}]}
        send.app.state.services.loop._away_until = 0.0  # it was asked in vain just now
        mine, spare = page(send, "ann")["prices"]
        assert (mine["pool"], spare["pool"], mine["value"], mine["bound"]) == ("nlp", "spare", 1.0, 1.5)
        assert mine["types"][0] == {"gpu_type": "A100", "price": 0.25, "is_full": True}
        assert mine["types"][1]["price"] is None
        assert [each["pool"] for each in page(send, "bob")["prices"]] == ["spare"]


@pytest.mark.parametrize("name", ["bob", "vic"])
def test_nothing_of_another_tenant_is_on_the_page(used: World, send: Clients, name: str) -> None:
    found = page(send, name, "window=month")
    assert CANARY not in json.dumps(found) + send(name, "GET", "/efficiency?window=month").text
    assert [row["job_id"] for row in found["jobs"]] == ["2"]
    assert [row["name"] for row in found["tenants"]] == ["vision"]
    assert found["types"][0]["running_jobs"] == 1
    assert CANARY in send("ann", "GET", "/efficiency").text, "it is there for those who may see it"


def test_what_is_not_listed_is_counted(used: World, send: Clients) -> None:
    found = send("olga", "GET", "/v1/efficiency?limit=1").json()
    assert ([row["job_id"] for row in found["jobs"]], found["more_jobs"]) == (["3"], 2)
