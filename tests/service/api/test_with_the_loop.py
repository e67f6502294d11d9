"""The API and the loop over one store: requests reach the scheduler, and its answers come back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import live_world
import pytest
from service.api.harness import SETUP, Clients, World, refused

from horae.model.events import Event
from horae.service.api.database import meta_value
from horae.service.api.tokens import SECRET, job_token


@pytest.fixture
def world(tmp_path: Path, store_url: str) -> World:
    return World(tmp_path, store_url, has_loop=True, answer_seconds=10.0)


@pytest.fixture
def engine(world: World) -> Iterator[live_world.LiveEngine]:
    """A loop in a thread of its own; its clock moves on while it waits."""
    made = live_world.LiveEngine(live_world.World(wall=time.time()))
    loop = live_world.start_loop(world.engine, made, SETUP, world.state)
    stopping = threading.Event()

    def run() -> None:
        events: Sequence[Event] = ()
        while not stopping.wait(0.0 if events or loop.is_busy else 0.02):
            events = loop.step(events)

    thread = threading.Thread(target=run)
    thread.start()
    yield made
    stopping.set()
    thread.join()
    loop.close()


def eventually(found: Callable[[], Any], wanted: Any) -> None:
    ends_at = time.monotonic() + 20
    while found() != wanted:
        assert time.monotonic() < ends_at, (found(), wanted)
        time.sleep(0.02)


def state(send: Clients, job: str) -> Callable[[], str]:
    return lambda: str(send("ann", "GET", f"/v1/jobs/{job}").json()["state"])


def test_jobs_run_wait_are_explained_and_cancelled(send: Clients, engine: live_world.LiveEngine) -> None:
    body = {"run": "train", "gpus": 8, "gpu_type": "A100", "checkpoint": {}}
    jobs = send("ann", "POST", "/v1/jobs", [body] * 3).json()["ids"]
    eventually(state(send, jobs[1]), "running")
    eventually(state(send, jobs[2]), "pending")
    why = send("ann", "GET", f"/v1/jobs/{jobs[2]}/why").json()
    assert {holder["job_id"] for holder in why["holders"]} & set(jobs[:2])
    assert why["reason"].startswith("not now")

    def reason() -> str:  # a list does not wait long for the loop
        listed = send("ann", "GET", "/v1/jobs?state=pending").json()["items"]
        return str(listed[0]["reason"])[:7]

    eventually(reason, "not now")
    assert send("ann", "DELETE", f"/v1/jobs/{jobs[0]}").status_code == 202
    eventually(state(send, jobs[2]), "running")
    eventually(state(send, jobs[0]), "cancelled")
    send("ann", "POST", f"/v1/jobs/{jobs[1]}/hold")
    eventually(state(send, jobs[1]), "suspended")
    send("ann", "POST", f"/v1/jobs/{jobs[1]}/release")
    eventually(state(send, jobs[1]), "running")
    engine.end(jobs[1])
    eventually(state(send, jobs[1]), "finished")
    kinds = [event["kind"] for event in send("ann", "GET", f"/v1/events?job={jobs[1]}").json()["items"]]
    assert kinds[0] == "JobSubmitted"
    assert kinds[-1] == "JobEnded"
    assert send("ann", "GET", "/v1/usage").json()[0]["gpu_hours"] > 0


def test_jobs_wait_for_others(send: Clients, engine: live_world.LiveEngine) -> None:
    first = send.submit()
    second = send.submit(after=first)
    eventually(state(send, first), "running")
    eventually(state(send, second), "waiting")
    engine.end(first)
    eventually(state(send, second), "running")


def test_a_report_reaches_the_scheduler(world: World, send: Clients, engine: live_world.LiveEngine) -> None:
    job = send.submit(model="bert", speed={"A100": 4.0})
    eventually(state(send, job), "running")
    epoch = send("ann", "GET", f"/v1/jobs/{job}").json()["epoch"]
    with world.engine.connect() as connection:
        secret = str(meta_value(connection, SECRET))
    token = {"Authorization": f"Bearer {job_token(secret, job, epoch)}"}
    report = {"epoch": epoch, "steps": 20.0, "saved": 10.0, "resumable": True, "steps_per_second": 2.0}
    for body in ({"epoch": epoch, "steps": 0.0}, report):
        assert send.request("POST", f"/v1/jobs/{job}/progress", json=body, headers=token).status_code == 204

    def kinds() -> set[str]:
        return {event["kind"] for event in send("olga", "GET", "/v1/events?since=0").json()["items"]}

    eventually(lambda: kinds() >= {"JobResumable", "JobProgressed", "SpeedRevised"}, True)


def test_operators_change_the_cluster(send: Clients, engine: live_world.LiveEngine) -> None:
    def health(name: str) -> tuple[str, str]:
        found = next(node for node in send("olga", "GET", "/v1/nodes").json() if node["name"] == name)
        return found["health"], found["reason"]

    assert send("olga", "POST", "/v1/nodes/a0/drain", {"reason": "fan"}).status_code == 200
    eventually(lambda: health("a0"), ("draining", "fan"))
    assert send("olga", "POST", "/v1/nodes/a0/resume").json() == {"applied": True}
    eventually(lambda: health("a0")[0], "healthy")
    assert send("adam", "PUT", "/v1/pools/nlp/policy", {"policy": "las"}).json() == {"applied": True}
    eventually(lambda: send("ann", "GET", "/v1/pools").json()[0]["policy"], "las")
    assert send("olga", "PATCH", "/v1/tenants/nlp", {"weight": 5}).json() == {"applied": True}
    eventually(lambda: send("ann", "GET", "/v1/tenants").json()[0]["weight"], 5.0)
    problem = refused(send("olga", "PUT", "/v1/reservations", {"tenants": {"nlp": {"A100.node": 9}}}), 409)
    assert "nlp" in problem["detail"]
    assert send("olga", "GET", "/readyz").json()["ready"] is True


def test_the_future_is_told_from_a_copy_of_the_loop(send: Clients, engine: live_world.LiveEngine) -> None:
    """With known lengths there is one future: a job of 100 steps, at one per second, ends when they are done."""
    body = {"run": "train", "gpus": 8, "gpu_type": "A100", "steps": 100.0, "speed": {"A100": 1.0}}
    jobs = send("ann", "POST", "/v1/jobs", [body] * 3).json()["ids"]
    eventually(state(send, jobs[1]), "running")
    eventually(state(send, jobs[2]), "pending")
    leases = dict(engine.running)
    found = send("ann", "GET", f"/v1/jobs/{jobs[2]}/eta?seconds=20&draws=2")
    assert found.status_code == 200, found.text
    answer = found.json()
    assert (answer["draws"], answer["cut_off"]) == (2, 0)
    assert answer["asked_at"] < answer["starts"]["median"] <= answer["asked_at"] + 200.0
    assert answer["ends"]["median"] - answer["starts"]["median"] == pytest.approx(100.0, abs=50.0)
    running = send("ann", "GET", f"/v1/jobs/{jobs[0]}/eta?seconds=20&draws=2").json()
    assert running["starts"] is None

    planned = send("ann", "POST", "/v1/plan?seconds=20&draws=2", body).json()
    assert planned["fits"] and planned["shapes"]
    assert planned["starts"]["median"] >= answer["starts"]["median"]
    assert engine.running == leases, "what a copy does is not done"
    assert send("ann", "GET", "/v1/jobs").json()["items"][0]["id"] == jobs[-1], "nothing was submitted"
    refused(send("ann", "POST", "/v1/plan", {**body, "gpus": 999}), 422)
    refused(send("ann", "GET", "/v1/jobs/nosuch/eta"), 404)


def test_the_past_is_told_under_another_setup(send: Clients, engine: live_world.LiveEngine) -> None:
    """The process of the question reads the log in the store; tenants see their own jobs only."""
    body = {"run": "train", "gpus": 8, "gpu_type": "A100", "steps": 100.0, "speed": {"A100": 1.0}}
    jobs = [send(name, "POST", "/v1/jobs", [body]).json()["ids"][0] for name in ("ann", "bob", "ann")]
    eventually(state(send, jobs[0]), "running")
    engine.end(jobs[0])
    eventually(state(send, jobs[0]), "finished")
    again = send("olga", "POST", "/v1/whatif", {})
    assert again.status_code == 200, again.text
    answer = again.json()
    assert answer["is_replay"] and answer["is_dated"]
    assert (answer["jobs"], answer["unchanged"]) == (1, 1)
    assert abs(answer["until"] - time.time()) < 3600.0
    other = send("bob", "POST", "/v1/whatif", {"policies": {"*": {"policy": "srtf"}}, "weights": {"nlp": 3.0}})
    assert other.status_code == 200, other.text
    found = other.json()
    assert found["change"] == ["policy srtf", "weight of nlp: 3"]
    assert [each["tenant"] for each in found["tenants"]] == ["vision"]
    assert (found["jobs"], found["changed"]["utilisation"]) == (0, None)
    begin = send("olga", "GET", "/data/whatif").json()["log_begins_at"]
    assert send("olga", "POST", "/v1/whatif", {"since": begin}).json()["jobs"] == 1, "as its page asks"
    problem = refused(send("olga", "POST", "/v1/whatif", {"policies": {"*": {"policy": "nothing-such"}}}), 409)
    assert (problem["field"], problem["detail"]) == ("policy", "there is no policy 'nothing-such'")
    assert refused(send("olga", "POST", "/v1/whatif", {"since": 1.0}), 409)["field"] == "since"
    refused(send("olga", "POST", "/v1/whatif", {"policy": "fifo"}), 422)
