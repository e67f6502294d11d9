"""Nothing of one tenant is sent to another, by any route that the API describes; and nothing without a token."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from service.api.harness import PEOPLE, FakeLoop, World, served

from horae.model.explanations import Explanation, Holder
from horae.model.reasons import BehindHead, NoRoom
from horae.model.serialization import to_plain
from horae.model.shapes import Shape
from horae.model.status import Status
from horae.service.api.app import create_app
from horae.service.api.middleware import OPEN_PATHS
from horae.service.store import schema

CANARY = "canary"  # in everything of the first tenant that has a text
SECRET_ID = "4711"
ID = re.compile(rf"(?<![\d.]){SECRET_ID}(?![\d.])")
STREAM_SECONDS = 1.0  # how long an open stream is read


ONLY_READS = "/v1/whatif"  # though it is a POST
WITHOUT_LOOP = ("/readyz", "/v1/jobs/{job_id}/eta", "/v1/plan")  # not available while it is away
# What is masked does not depend on the store, and all routes take a while.
pytestmark = pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)


def operations(world: World) -> list[tuple[str, str, dict[str, Any]]]:
    """All operations of the API's own description, so that a new route is covered by itself."""
    description = create_app(world.context).openapi()
    return [
        (method.upper(), path, {**operation, "components": description["components"]})
        for path, item in description["paths"].items()
        for method, operation in item.items()
    ]


def filled(path: str, job: str) -> str:
    values = {"job_id": job, "name": "nlp", "auction": "4", "token_id": "x"}
    return re.sub(r"{(\w+)}", lambda match: values.get(match[1], job), path)


def minimal(schema_: dict[str, Any], components: dict[str, Any], job: str) -> Any:
    """A value that a schema accepts, with only what is required."""
    if "$ref" in schema_:
        return minimal(components["schemas"][schema_["$ref"].rpartition("/")[2]], components, job)
    for choice in ("oneOf", "anyOf", "allOf"):
        if choice in schema_:
            return minimal(schema_[choice][0], components, job)
    if "enum" in schema_ or "const" in schema_:
        return schema_.get("const", schema_.get("enum", [None])[0])
    match schema_.get("type"):
        case "object":
            fields = schema_.get("properties", {})
            return {name: minimal(fields[name], components, job) for name in schema_.get("required", ())}
        case "array":
            return [minimal(schema_["items"], components, job)]
        case "integer" | "number":
            return 1
        case "boolean":
            return False
    return job


def query_of(operation: dict[str, Any]) -> dict[str, str]:
    """Parameters that widen what is asked for, for the routes that have them."""
    wide = {
        "since": "0",
        "tenant": "nlp",
        "job": SECRET_ID,
        "app": SECRET_ID,
        "follow": "true",
        "by": "app",
        "limit": "1000",
    }
    known = [each["name"] for each in operation.get("parameters", ()) if each["in"] == "query"]
    return {
        name: value for name, value in wide.items() if name in known and (name != "by" or "share" in str(operation))
    }


def received(client: httpx.Client, method: str, path: str, **options: Any) -> tuple[int, str]:
    """All bytes of an answer, headers included; of a stream, those of the first moment."""
    request = client.build_request(method, path, timeout=60, **options)
    is_stream = "stream" in path or "follow" in options.get("params", {})
    answer = client.send(request, stream=True)
    if is_stream:
        request.extensions["timeout"]["read"] = STREAM_SECONDS  # from here on; the headers may take longer
    text = b""
    try:
        for chunk in answer.iter_bytes():
            text += chunk
    except httpx.ReadTimeout:
        assert is_stream
    finally:
        answer.close()
    return answer.status_code, str(answer.headers) + text.decode(errors="replace")


@pytest.fixture(params=["the loop answers", "the loop is away"])
def secret(world: World, request: pytest.FixtureRequest) -> Iterator[World]:  # noqa: PLR0915  one row per table
    """A store in which everything of tenant nlp is marked, and a loop that names its jobs, or none."""
    spec = {"run": f"run-{CANARY}", "name": f"name-{CANARY}", "user": f"user-{CANARY}", "env": {"KEY": CANARY}}
    marked = {
        "name": f"name-{CANARY}",
        "user": f"user-{CANARY}",
        "model": f"model-{CANARY}",
        "app": f"nlp/app-{CANARY}",
    }
    world.add_running(SECRET_ID, 5, "a0/0", reason=f"reason-{CANARY}", spec=json.dumps(spec), **marked)
    world.add_job("4712", state="failed", reason=f"reason-{CANARY}", ended_at=1.0, spec=json.dumps(spec), **marked)
    world.add_job("8", "vision", "bob", reason=f"preempted by {SECRET_ID}")
    world.add_running("9", 6, "a0/1", tenant="vision", user="bob")
    held = f"cannot start: GPU a0/0 is held by lease 5 of job {SECRET_ID}"  # as older versions have recorded it
    world.add_job("10", "vision", "bob", reason=held, spec=json.dumps({"run": "x"}))
    world.add_lease("10", 2, ended_at=9.0, ending="lost", reason=held)
    world.add_event(7, "JobEnded", job_id="10", epoch=2, ending="lost", steps=0.0, message=held)
    user = f"cannot start: GPU a0/1 is held by process 77 (python) of user-{CANARY}"
    world.add_event(8, "JobEnded", job_id="8", epoch=3, ending="lost", steps=0.0, message=user)
    world.add_lease("8", 3, ended_at=9.0, ending="stopped", reason=f"preempted by {SECRET_ID}")
    for job in (SECRET_ID, "8"):
        folder = world.state / "engine" / "jobs" / job
        folder.mkdir(parents=True)
        (folder / "output.log").write_text(f"log-{CANARY}\n" if job == SECRET_ID else "my own\n")
    world.insert(schema.nodes, name="a0", gpu_type="A100", gpus=8, health="healthy", reason="", position=0)
    world.insert(schema.gpus, gpu="a0/7", state="foreign", note=f"used by {CANARY}", at=1.0)
    world.add_event(1, "JobSubmitted", job={"id": SECRET_ID, "command": CANARY, "tenant": "nlp"})
    world.add_event(2, "JobEnded", job_id="4712", epoch=1, ending="failed", steps=1.0, message=f"message-{CANARY}")
    world.add_event(3, "SpeedRevised", model=f"model-{CANARY}", shape={}, steps_per_second=1.0)
    world.add_event(4, "BidGiven", auction=4, app=f"nlp/app-{CANARY}", gpus=[1], rho=[1.0])
    world.add_event(5, "LeaseAdopted", epoch=9, job_ids=[SECRET_ID, "8"], gpus=[], steps=[])
    world.add_event(6, "GpuChanged", gpu="a0/7", state="foreign", note=CANARY)
    row = {"month": "2001-09", "tenant": "nlp", "user": f"user-{CANARY}", "gpu_type": "A100", "kind": "shared"}
    world.insert(schema.usage, **row, gpu_seconds=1.0, jobs=1)
    treated = {"rho": 1.0, "rho_max": 1.0, "gpus": 1, "guaranteed_gpus": 0, "waiting_jobs": 1, "own_wait_seconds": 0.0}
    world.insert(schema.fairness, at=1.0, tenant="nlp", app=f"nlp/app-{CANARY}", is_hourly=True, **treated)
    world.insert(schema.gpu_hours, at=0.0, gpu_type="A100", held=1.0, idle=1.0, unusable=0.0, unused=1.0)
    speed = {"gpu_type": "A100", "gpus": 1, "steps_per_second": 1.0, "reports": 1, "wall": 1.0}
    world.insert(schema.speeds, tenant="nlp", model=f"model-{CANARY}", **speed)
    world.insert(schema.audit, wall=1.0, user=CANARY, role="user", action="submit", target=SECRET_ID, detail=CANARY)
    world.insert(schema.scheduler_notices, seq=1, at=1.0, kind="x", text=CANARY)
    world.insert(schema.notices, at=1.0, tenant="nlp", job=SECRET_ID, kind=CANARY, payload=CANARY, last_error=CANARY)
    table = json.dumps([[0, 1], [2.0, 1.0]])
    part = {"pool": "spare", "app": f"nlp/app-{CANARY}", "tenant": "nlp", "offer": table, "bid": table, "note": CANARY}
    ends = {"called_at": 1.0, "closes_at": 1e12, "won_gpus": 1, "lease_seconds": 1.0, "payment": 0.5}
    world.insert(schema.auctions, auction=4, closed_at=None, **part, **ends)
    world.insert(schema.auctions, auction=3, closed_at=2.0, **part, **ends)
    world.insert(schema.trials, job_id=SECRET_ID, search=4711, bracket=0, size=1, position=0, rung=0, state="running",
                 steps=0.0, loss=None, reached=False)  # fmt: skip
    world.insert(schema.progress, job_id=SECRET_ID, epoch=5, wall=1.0, steps=1.0, saved=0.0, resumable=False)
    world.insert(schema.tokens, id="x", hash="x", name=CANARY, role="user", tenant="nlp", user=CANARY, wall=0.0)
    if request.param == "the loop is away":
        yield world
        return
    with FakeLoop(world) as loop:
        holder = Holder(SECRET_ID, 1, 0.0, 9.0)
        reason = BehindHead(SECRET_ID, NoRoom("spare", Shape("A100", 1, "node"), 0))
        explanation = Explanation("8", 1.0, Status.PENDING, reason, "spare", "fifo", (SECRET_ID,), (holder,))
        loop.answers["why"] = {
            "explanation": to_plain(explanation),
            "reason": str(reason),
            "text": f"{SECRET_ID} {CANARY}",
        }
        moment = {"median": 9.0, "low": 5.0, "high": "inf"}
        asked = {"asked_at": 1.0, "starts": moment, "ends": moment, "draws": 2, "cut_off": 0}
        loop.answers["eta"] = {"eta": {"job_id": "8", **asked}}
        loop.answers["plan"] = {"plan": {**asked, "delays": [{"job_id": SECRET_ID, "seconds": 99.0}]}}
        pool = {"policy": "max-min", "objective": CANARY, "value": 1.0, "bound": 1.0, "prices": [], "decided_at": 1.0}
        loop.answers["prices"] = {"prices": [{"pool": "nlp", **pool}]}
        loop.answers["reasons"] = {"reasons": {"8": str(reason)}}
        yield world


def test_no_byte_of_one_tenant_reaches_another(secret: World) -> None:
    seen = 0
    with served(secret) as url, httpx.Client(base_url=url, verify=False) as client:
        for person in ("bob", "vic"):
            for method, path, operation in operations(secret):
                body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
                for job, query in (("8", {}), ("8", query_of(operation)), (SECRET_ID, {})):
                    options: dict[str, Any] = {"headers": secret.headers(person), "params": query}
                    if body is not None:
                        options["json"] = minimal(body, operation["components"], job)
                    status, text = received(client, method, filled(path, job), **options)
                    assert status < 500 or path in WITHOUT_LOOP, (method, path, text)
                    assert CANARY not in text, (method, path, query)
                    if job != SECRET_ID:
                        assert not ID.search(text), (method, path, query, text)
                    seen += status == 200
    assert seen > 50, "most reads are answered"


def test_streams_are_read(secret: World) -> None:
    """The test above is not vacuous: what the other tenant may see of the streams has arrived."""
    with served(secret) as url, httpx.Client(base_url=url, verify=False) as client:
        for path, query, own in (
            ("/v1/events/stream", {"since": "0"}, "GPU a0/7 is foreign"),
            ("/v1/jobs/8/logs", {"follow": "true"}, "my own"),
        ):
            assert own in received(client, "GET", path, headers=secret.headers("bob"), params=query)[1], path


def test_the_canaries_are_there_for_those_who_may_see_them(secret: World) -> None:
    with served(secret) as url, httpx.Client(base_url=url, verify=False) as client:
        for path in (
            "/v1/jobs",
            f"/v1/jobs/{SECRET_ID}/logs",
            "/v1/events?since=0",
            "/v1/usage",
            "/v1/share/history?since=0&tenant=nlp",
            "/v1/efficiency?since=0",
            "/v1/apps",
            "/v1/audit",
        ):
            assert CANARY in received(client, "GET", path, headers=secret.headers("olga"))[1], path


def test_without_a_token_only_the_probes_answer(world: World) -> None:
    with served(world) as url, httpx.Client(base_url=url, verify=False) as client:
        for method, path, _ in operations(world):
            for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic eDp5"}):
                status, text = received(client, method, filled(path, "1"), headers=headers)
                if path in OPEN_PATHS:
                    assert status in (200, 503)
                else:
                    assert (status, '"remedy"' in text) == (401, True), (method, path)
        for path in ("/", "/v1", "/v1/none", "/docs", "/v1/jobs/1/../../healthz"):
            assert received(client, "GET", path)[0] == 401


def test_viewers_change_nothing(world: World) -> None:
    """Every change needs another role; a new route is covered by itself."""
    world.add_job("8", "vision", "bob")
    with served(world) as url, httpx.Client(base_url=url, verify=False) as client:
        for person in (name for name, (role, _) in PEOPLE.items() if role == "viewer"):
            for method, path, operation in operations(world):
                if method == "GET" or path in ("/v1/tokens", "/v1/tokens/{token_id}", ONLY_READS):
                    continue
                body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
                sent = {} if body is None else {"json": minimal(body, operation["components"], "8")}
                status, _ = received(client, method, filled(path, "8"), headers=world.headers(person), **sent)
                assert status in (401, 403, 404, 422), (method, path, status)
    assert world.inbox() == []
    assert world.rows(schema.audit) == []
