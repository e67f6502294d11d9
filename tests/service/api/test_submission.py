"""Submissions: what is accepted, what is refused with which remedy, and what is written."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from service.api.harness import Clients, World, refused, served

from horae.service.api.context import Limits
from horae.service.api.identity import Identity
from horae.service.api.problems import Refused
from horae.service.api.submissions import owned
from horae.service.models import JobSpec, Role
from horae.service.store import schema


def test_an_accepted_job_is_a_row_an_event_and_a_line_of_the_audit(world: World, send: Clients) -> None:
    answer = send("ann", "POST", "/v1/jobs", {"run": "python train.py", "name": "bert", "gpus": 2, "gpu_type": "a100"})
    assert answer.status_code == 201
    assert answer.json() == {"ids": ["1"]}
    assert answer.headers["location"] == "/v1/jobs/1"
    (row,) = world.rows(schema.jobs)
    assert (row.state, row.tenant, row.user, row.app, row.gpus, row.gpu_type) == (
        "submitted",
        "nlp",
        "ann",
        "1",
        2,
        "A100",
    )
    spec = json.loads(row.spec)
    assert (spec["tenant"], spec["user"], spec["run"]) == ("nlp", "ann", "python train.py")
    ((kind, event),) = world.inbox()
    assert kind == event["event"] == "JobSubmitted"
    assert event["at"] == 0.0
    job = event["job"]
    assert (job["id"], job["tenant"], job["user"], job["command"]) == ("1", "nlp", "ann", "python train.py")
    assert job["preemptions_max"] == 0, "it has not shown that it can resume"
    (line,) = world.rows(schema.audit)
    assert (line.user, line.action, line.target) == ("ann", "submit", "1")
    shown = send("ann", "GET", "/v1/jobs/1").json()
    assert (shown["state"], shown["name"], shown["spec"]["run"]) == ("submitted", "bert", "python train.py")


def test_arrays_and_sweeps_are_apps_of_several_jobs(world: World, send: Clients) -> None:
    body = [
        {"run": "x", "array": 2},
        {"run": "y --lr {lr}", "sweep": {"lr": [0.1, 0.2], "stop": "successive-halving"}, "steps": 70},
        {"run": "z", "app": "mine"},
    ]
    assert send("ann", "POST", "/v1/jobs", body).json() == {"ids": ["1_0", "1_1", "2_0", "2_1", "3"]}
    rows = {row.id: row for row in world.rows(schema.jobs)}
    assert [rows[each].app for each in ("1_0", "1_1", "2_0", "2_1", "3")] == ["1", "1", "2", "2", "nlp/mine"]
    specs = {each: json.loads(row.spec) for each, row in rows.items()}
    assert specs["1_1"]["env"]["HORAE_ARRAY_INDEX"] == "1"
    assert specs["2_1"]["run"] == "y --lr 0.2"
    assert specs["2_1"]["env"]["HORAE_PARAM_lr"] == "0.2"
    assert specs["2_1"]["sweep"] == {"lr": 0.2, "stop": "successive-halving"}
    assert [event["job"].get("app", "") for _, event in world.inbox()] == ["1", "1", "2", "2", "nlp/mine"]


@pytest.mark.parametrize(
    ("spec", "field", "remedy"),
    [
        ({}, "run", "add it"),
        ({"run": "x", "gpu": 2}, "gpu", "spelling"),
        ({"run": "x", "gpus": 0}, "gpus", "greater than or equal to 1"),
        ({"run": "x", "gpu_type": "A10O"}, "gpu_type", "did you mean A100?"),
        ({"run": "x", "gpu_type": ["A100", "H100"]}, "gpu_type", "use A100, V100"),
        ({"run": "x", "gpus": 64}, "gpus", "the largest gang is 16 x A100 in one cluster"),
        ({"run": "x", "gpus": 16, "locality": {"require": "node"}}, "gpus", "8 x A100 in one node"),
        ({"run": "x", "locality": {"require": "planet"}}, "locality.require", "use gpu, node, rack, cluster"),
        ({"run": "x", "gpus": {"min": 4, "max": 2}}, "gpus", "give a min up to max"),
        ({"run": "x", "workdir": "/does/not/exist"}, "workdir", "create it"),
        ({"run": "x", "workdir": "here"}, "workdir", "give the whole path"),
        ({"run": "x", "processes": 9}, "processes", "up to 8"),
        ({"run": "x", "gpus": {"min": 1, "max": 8}, "processes": 64}, "processes", "up to 8"),
        ({"run": "x", "gpus": 1_000_000, "processes": 1025}, "processes", "up to 1,024"),
        ({"run": "x", "grace": "2h"}, "grace", "up to 3600"),
        ({"run": "x", "deadline": "soon"}, "deadline", "12h"),
        ({"run": "x", "max_duration": "long"}, "max_duration", "give seconds"),
        ({"run": "x", "after": ["17"]}, "after", "give the id of a job"),
        ({"run": "x", "sweep": {}}, "sweep", "give values"),
        ({"run": "x", "sweep": {"lr": [1], "stop": "never"}}, "sweep.stop", "successive-halving"),
        ({"run": "x", "sweep": {"lr": [1], "stop": "hyperband"}}, "steps", "the number of steps of a whole trial"),
        ({"run": "x", "sweep": {"lr": {"uniform": [0, 1]}}}, "sweep.lr", "random: 16"),
        ({"run": "x", "sweep": {"lr": {"uniform": [1, 0]}, "random": 4}}, "sweep.lr", "{uniform: [0, 1]}"),
        ({"run": "x", "sweep": {"lr": {"log_uniform": [0, 1]}, "random": 4}}, "sweep.lr", "give a range"),
        ({"run": "x", "sweep": {"lr": {"integer": [0.5, 1]}, "random": 4}}, "sweep.lr", "give a range"),
        ({"run": "x", "sweep": {"lr": {"uniform": None}, "random": 4}}, "sweep.lr", "give a range"),
        ({"run": "x", "sweep": {"lr": [1], "random": 0}}, "sweep.random", "up to 10,000"),
        ({"run": "x", "array": 2, "sweep": {"lr": [1]}}, "sweep", "remove one"),
        ({"run": "x", "speed": {"T4": 1}}, "speed", "use A100, V100"),
    ],
)
def test_a_wrong_file_is_refused_with_field_and_remedy(
    world: World, send: Clients, spec: dict[str, Any], field: str, remedy: str
) -> None:
    problem = refused(send("ann", "POST", "/v1/jobs", spec), 422)
    assert problem["field"].startswith(field)
    assert remedy in problem["remedy"]
    assert world.rows(schema.jobs) == []


def test_one_wrong_file_of_a_list_refuses_all_and_is_named(world: World, send: Clients) -> None:
    problem = refused(send("ann", "POST", "/v1/jobs", [{"run": "x"}, {"run": "x", "gpus": 64}]), 422)
    assert problem["field"] == "1.gpus"
    assert world.rows(schema.jobs) == []


def test_users_submit_for_themselves_admins_for_their_tenant_operators_for_all(send: Clients) -> None:
    spec = {"run": "x"}
    assert refused(send("ann", "POST", "/v1/jobs", {**spec, "tenant": "vision"}), 403)["field"] == "tenant"
    assert refused(send("ann", "POST", "/v1/jobs", {**spec, "user": "anton"}), 403)["field"] == "user"
    refused(send("vera", "POST", "/v1/jobs", spec), 403)
    assert send("adam", "POST", "/v1/jobs", {**spec, "user": "anton"}).status_code == 201
    for user in ("stranger", "bob", "oskar"):  # not listed, of another tenant, and with more rights
        assert refused(send("adam", "POST", "/v1/jobs", {**spec, "user": user}), 403)["field"] == "user"
    assert send("olga", "POST", "/v1/jobs", {**spec, "tenant": "vision", "user": "bob"}).status_code == 201


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_jobs_run_as_root_only_for_operators_of_the_machine(world: World) -> None:
    spec = JobSpec(run="id", user="root", tenant="nlp")
    roles: dict[str, Role] = {"adam": "tenant-admin", "olga": "operator"}
    for name, role in roles.items():
        with pytest.raises(Refused) as problem:
            owned(spec, Identity(name, role, "nlp"), replace(world.context, own_uid=0))
        assert (problem.value.problem.status, problem.value.problem.field) == (403, "user")
    socket = Identity("root", "operator", "", "socket", 0)
    assert owned(spec, socket, replace(world.context, own_uid=0)).user == "root"
    assert owned(spec, Identity("olga", "operator", ""), replace(world.context, own_uid=4242)).user == "root", "a name"
    with pytest.raises(Refused):
        owned(JobSpec(run="id"), Identity("", "operator", ""), replace(world.context, own_uid=0))


def test_a_service_of_root_does_not_tell_which_folders_exist(tmp_path: Path) -> None:
    world = World(tmp_path, own_uid=0)
    (tmp_path / "there").mkdir()
    with world.app() as send:
        for name in ("there", "missing"):
            assert send("ann", "POST", "/v1/jobs", {"run": "x", "workdir": str(tmp_path / name)}).status_code == 201
        assert refused(send("ann", "POST", "/v1/jobs", {"run": "x", "workdir": "here"}), 422)["field"] == "workdir"


def test_jobs_of_other_tenants_cannot_be_waited_for(world: World, send: Clients) -> None:
    world.add_job("1", "nlp")
    world.add_job("2", "vision", "bob")
    world.add_job("3", "nlp", state="failed")
    world.insert(schema.counters, name="jobs", value=3)
    assert send.submit(after=["1"]) == "4"
    unknown = refused(send("ann", "POST", "/v1/jobs", {"run": "x", "after": ["99"]}), 422)
    other = refused(send("ann", "POST", "/v1/jobs", {"run": "x", "after": ["2"]}), 422)
    assert other["detail"].replace("2", "99") == unknown["detail"]
    refused(send("ann", "POST", "/v1/jobs", {"run": "x", "after": ["3"]}), 422)


def test_a_retried_request_is_answered_with_the_same_jobs(world: World, send: Clients) -> None:
    body = [{"run": "x", "array": 3}, {"run": "y"}]
    first = send("ann", "POST", "/v1/jobs", body, idempotency_key="k")
    again = send("ann", "POST", "/v1/jobs", body, idempotency_key="k")
    assert first.json() == again.json() == {"ids": ["1_0", "1_1", "1_2", "2"]}
    other = send("ann", "POST", "/v1/jobs", {"run": "z"}, idempotency_key="k")
    assert refused(other, 422)["field"] == "Idempotency-Key"
    assert send("anton", "POST", "/v1/jobs", body, idempotency_key="k").json()["ids"][0] == "3_0", "keys are one's own"
    assert len(world.rows(schema.jobs)) == 8


def test_concurrent_retries_make_one_job(world: World) -> None:
    with served(world) as url, httpx.Client(verify=False) as client, ThreadPoolExecutor(8) as threads:
        headers = {**world.headers("ann"), "Idempotency-Key": "same"}

        def post(_: int) -> list[str]:
            found: list[str] = client.post(f"{url}/v1/jobs", json={"run": "x"}, headers=headers).json()["ids"]
            return found

        assert list(threads.map(post, range(24))) == [["1"]] * 24
    assert len(world.rows(schema.jobs)) == len(world.inbox()) == 1


def test_limits_per_user(tmp_path: Path) -> None:
    limits = Limits(jobs_per_user=3, gpus_per_user=4, max_duration=3600.0)
    world = World(tmp_path, limits=limits)
    with world.app() as send:
        assert send("ann", "POST", "/v1/jobs", {"run": "x", "array": 3}).status_code == 201
        full = send("ann", "POST", "/v1/jobs", {"run": "x"})
        assert "3 of your jobs" in refused(full, 429)["detail"]
        assert int(full.headers["retry-after"]) > 0
        assert send("adam", "POST", "/v1/jobs", {"run": "x", "user": "anton", "array": 2}).status_code == 201
        theirs = send("adam", "POST", "/v1/jobs", [{"run": "x"}, {"run": "x", "user": "anton", "array": 2}])
        assert "2 of the jobs of 'anton'" in refused(theirs, 429)["detail"], "an admin's jobs count for their users"
        assert send("adam", "POST", "/v1/jobs", {"run": "x", "array": 3}).status_code == 201, "nothing was counted"
        assert refused(send("bob", "POST", "/v1/jobs", {"run": "x", "gpus": 8}), 422)["field"] == "gpus"
        long = send("bob", "POST", "/v1/jobs", {"run": "x", "max_duration": "2h"})
        assert refused(long, 422)["field"] == "max_duration"
        job = send.submit("bob")
        assert send("bob", "GET", f"/v1/jobs/{job}").json()["spec"]["max_duration"] == 3600.0
        interactive = {"run": "x", "priority": "interactive", "gpus": 2}
        assert refused(send("bob", "POST", "/v1/jobs", interactive), 422)["field"] == "gpus"
        assert send("olga", "POST", "/v1/jobs", {"run": "x", "gpus": 8, "max_duration": "2d"}).status_code == 201


def test_large_requests_are_bounded(tmp_path: Path) -> None:
    world = World(tmp_path, body_bytes_max=10_000)
    with world.app() as send:
        refused(send("ann", "POST", "/v1/jobs", {"run": "x" * 20_000}), 413)
        refused(send("ann", "POST", "/v1/jobs", []), 422)
        refused(send("ann", "POST", "/v1/jobs", [{"run": "x", "array": 9000}, {"run": "x", "array": 9000}]), 422)
        headers = {**world.headers("ann"), "content-type": "application/json"}
        refused(send.request("POST", "/v1/jobs", content=b'{"run":', headers=headers), 422)
        refused(send.request("POST", "/v1/jobs", content=_chunks(), headers=headers), 413)


async def _chunks() -> AsyncIterator[bytes]:
    for _ in range(5):
        yield b"x" * 5000


def test_values_that_no_store_can_hold_are_refused(send: Clients) -> None:
    headers = {**send.world.headers("ann"), "content-type": "application/json"}
    for body in ('{"run":"x","name":"\\ud800"}', '{"run":"x","sweep":{"lr":["\\ud800"]}}', '{"run":"x","gpus":1e999}'):
        refused(send.request("POST", "/v1/jobs", content=body, headers=headers), 422)


def test_no_setup_means_not_available_yet(world: World, send: Clients) -> None:
    with world.engine.begin() as connection:
        connection.execute(schema.meta.delete())
    answer = send("ann", "POST", "/v1/jobs", {"run": "x"})
    refused(answer, 503)
    assert answer.headers["retry-after"]


def test_known_speeds_of_a_model_are_used(world: World, send: Clients) -> None:
    known = {"model": "bert", "gpu_type": "A100", "gpus": 2, "reports": 1, "wall": 0.0}
    world.insert(schema.speeds, **known, tenant="nlp", steps_per_second=6.0)
    world.insert(schema.speeds, **known, tenant="vision", steps_per_second=1e9)
    send.submit(model="bert", gpus=4)
    ((_, event),) = world.inbox()
    assert {option["shape"]["accelerator"]: option["steps_per_second"] for option in event["job"]["options"]} == {
        "A100": 12.0,
        "V100": 12.0,
    }


def test_a_user_has_few_interactive_jobs_and_each_of_them_ends(tmp_path: Path) -> None:
    world = World(tmp_path, limits=Limits(interactive_jobs=2, interactive_duration=600.0))
    with world.app() as send:
        shell = {"run": "sh", "priority": "interactive", "pty": True}
        first = send.submit("ann", **shell)
        assert send("ann", "GET", f"/v1/jobs/{first}").json()["spec"]["max_duration"] == 600.0
        both = [{"run": "x", "env": {"priority": "interactive"}}, shell]
        assert send("ann", "POST", "/v1/jobs", both).status_code == 201
        problem = refused(send("ann", "POST", "/v1/jobs", shell), 429)
        assert problem["detail"] == "2 of your interactive jobs have not ended, and 2 may be there"
        assert problem["remedy"] == "end one of them, or submit a job that is not interactive"
        send.submit("ann", run="x")
        send.submit("anton", **shell)
        for _ in range(3):
            job = send.submit("olga", **shell, tenant="nlp")
            assert send("olga", "GET", f"/v1/jobs/{job}").json()["spec"]["max_duration"] == 600.0
        for change, field in (
            ({"max_duration": 601}, "max_duration"),
            ({"gpus": 2}, "gpus"),
            ({"processes": 2}, "pty"),
            ({"priority": "high"}, "pty"),
        ):
            assert refused(send("bob", "POST", "/v1/jobs", {**shell, **change}), 422)["field"] == field


def test_only_the_user_of_a_job_and_operators_use_its_terminal(world: World, send: Clients) -> None:
    spec = json.dumps({"run": "sh", "pty": True, "priority": "interactive"})
    world.add_job("1", spec=spec)
    world.add_running("2", 7, "a0/0", spec=spec)
    assert refused(send("ann", "GET", "/v1/jobs/1/terminal"), 409)["detail"] == "job 1 is pending, and does not run"
    elsewhere = "the terminal of job 2 is not on this machine"
    for name in ("ann", "olga"):
        assert refused(send(name, "GET", "/v1/jobs/2/terminal"), 409)["detail"] == elsewhere
    for name, status in (("anton", 403), ("adam", 403), ("vera", 403), ("bob", 404)):
        assert refused(send(name, "GET", "/v1/jobs/2/terminal"), status)
        assert refused(send(name, "POST", "/v1/jobs/2/terminal", ""), status)
