"""The log as a list and as a stream that resumes without a gap."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator

import httpx
import pytest
from service.api.harness import Clients, World, refused, served

from horae.service.api.identity import Identity
from horae.service.api.streams import counted


@pytest.fixture
def logged(world: World) -> None:
    world.add_job("1")
    world.add_job("2", "vision", "bob")
    job = {"submitted_at": 0.0, "options": []}
    world.add_event(1, "JobSubmitted", job={"id": "1", **job})
    world.add_event(2, "JobSubmitted", job={"id": "2", **job})
    world.add_event(3, "Tick")
    world.add_event(4, "JobStarted", job_id="1", epoch=7)
    world.add_event(5, "GpuChanged", gpu="a0/1", state="foreign", note="used by mallory")
    world.add_event(6, "LeaseAdopted", epoch=9, job_ids=["2", "1"], gpus=[], steps=[])
    world.add_event(7, "SpeedRevised", model="bert", shape={}, steps_per_second=2.0)
    world.add_event(8, "JobEnded", job_id="1", epoch=7, ending="failed", steps=12.0, message="out of memory")


def test_a_tenant_sees_its_jobs_and_the_hardware(send: Clients, logged: None) -> None:
    page = send("ann", "GET", "/v1/events?since=0").json()
    assert [(each["seq"], each["job_id"], each["text"]) for each in page["items"]] == [
        (1, "1", "submitted"),
        (4, "1", "started, lease 7"),
        (5, None, "GPU a0/1 is foreign"),
        (6, "1", "found running, lease 9"),
        (8, "1", "failed at step 12: out of memory"),
    ]
    assert page["next"] == 8
    assert [each["seq"] for each in send("olga", "GET", "/v1/events").json()["items"]] == [1, 2, 4, 5, 6, 7, 8]
    assert "mallory" in send("olga", "GET", "/v1/events").text


def test_filters_and_pages(send: Clients, logged: None) -> None:
    def seqs(query: str, name: str = "ann") -> list[int]:
        return [each["seq"] for each in send(name, "GET", f"/v1/events?{query}").json()["items"]]

    assert seqs("job=1") == [1, 4, 6, 8]
    assert seqs("job=2") == []
    assert seqs("kind=JobStarted&kind=JobEnded") == [4, 8]
    assert seqs("kind=Tick&since=0", "olga") == [3]
    first = send("ann", "GET", "/v1/events?since=0&limit=2").json()
    assert seqs(f"since={first['next']}") == [5, 6, 8]


def streamed(lines: Iterator[str], count: int) -> list[int]:
    """The numbers of the next events of a stream."""
    found: list[int] = []
    while len(found) < count:
        line = next(lines)
        if line.startswith("data: "):
            found.append(json.loads(line[6:])["seq"])
    return found


def test_a_stream_resumes_without_a_gap(world: World, logged: None) -> None:
    with served(world) as url:
        path, headers = f"{url}/v1/events/stream", world.headers("ann")
        with httpx.stream("GET", path, headers=headers, params={"since": 0}, timeout=10) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            assert streamed(answer.iter_lines(), 3) == [1, 4, 5]
        world.add_event(9, "JobHeld", job_id="1")  # while no client is connected
        with httpx.stream("GET", path, headers={**headers, "Last-Event-ID": "5"}, timeout=10) as answer:
            lines = answer.iter_lines()
            assert streamed(lines, 3) == [6, 8, 9]
            adding = threading.Thread(target=_add_later, args=(world,))
            adding.start()
            assert streamed(lines, 1) == [11], "it is sent as soon as it is there"
            adding.join()


def _add_later(world: World) -> None:
    time.sleep(0.3)
    world.add_event(10, "JobHeld", job_id="2")
    world.add_event(11, "JobReleased", job_id="1")


def test_a_new_stream_begins_now_and_bad_numbers_are_refused(world: World, logged: None, send: Clients) -> None:
    refused(send("ann", "GET", "/v1/events/stream", last_event_id="x"), 422)
    with served(world) as url:
        path, headers = f"{url}/v1/events/stream", world.headers("ann")
        with httpx.stream("GET", path, headers=headers, timeout=10) as answer:
            lines = answer.iter_lines()
            assert next(lines).startswith(":")
            world.add_event(9, "JobHeld", job_id="1")
            assert streamed(lines, 1) == [9]


def test_streams_are_bounded(world: World, send: Clients) -> None:
    context, memory = world.context, send.app.state.services.memory
    memory["streams"] = Counter({("vision", str(number)): 20 for number in range(context.streams_max // 20)})
    refused(send("ann", "GET", "/v1/events/stream"), 429)
    memory["streams"] = Counter({("nlp", "ann"): context.streams_per_user_max})
    assert "of yours" in refused(send("ann", "GET", "/v1/events/stream"), 429)["detail"]
    counted(send.app.state.services, Identity("anton", "user", "nlp"), _items())


def test_a_stream_counts_while_it_is_read(send: Clients) -> None:
    services, who = send.app.state.services, Identity("ann", "user", "nlp")

    async def read() -> None:
        counted(services, who, _items())  # its client has left before the first item
        stream = counted(services, who, _items())
        assert await anext(stream) == "first"
        assert services.memory["streams"] == {("nlp", "ann"): 1}
        assert [item async for item in stream] == ["second"]
        assert services.memory["streams"] == {}

    asyncio.run(read())


async def _items() -> AsyncIterator[str]:
    yield "first"
    yield "second"
