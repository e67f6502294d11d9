"""Nothing of one tenant is sent to another, by any route that the API describes; and nothing without a token."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from service.api.canaries import CANARY, ID, SECRET_ID, answer, mark
from service.api.harness import PEOPLE, FakeLoop, World, served

from horae.service.api.app import create_app
from horae.service.api.middleware import OPEN_PATHS
from horae.service.store import schema

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
def secret(world: World, request: pytest.FixtureRequest) -> Iterator[World]:
    """A store in which everything of tenant nlp is marked, and a loop that names its jobs, or none."""
    mark(world)
    if request.param == "the loop is away":
        yield world
        return
    with FakeLoop(world) as loop:
        answer(loop)
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
