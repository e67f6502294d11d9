"""What was answered is in the store: after a crash, on a full disk, under a lock, and beside requests that fail."""

from __future__ import annotations

import queue
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import httpx
import pytest
from service.api.harness import Clients, World, refused
from sqlalchemy import Connection, event, insert, text

from horae.service.api.problems import Refused
from horae.service.api.writer import Writer
from horae.service.store import schema

# A service that is killed within a commit: after the statements, before the transaction is durable.
KILLED = """
import os, signal, sys
from pathlib import Path
from sqlalchemy import event
from horae.service.api import app, server
from horae.service.api.context import Context
made = app.create_app
commits = 0
def create_app(context):
    built = made(context)
    engine = built.state.services.writer._engine
    @event.listens_for(engine, "commit")
    def count(connection):
        global commits
        commits += 1
        if commits == int(sys.argv[3]):
            os.kill(os.getpid(), signal.SIGKILL)
    return built
server.create_app = create_app
server.serve(Context(sys.argv[1], Path(sys.argv[2])), port=0)
"""


def test_what_was_answered_before_a_crash_is_there(world: World) -> None:
    command = [sys.executable, "-c", KILLED, world.url, str(world.state), "25"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as service:
        assert service.stderr is not None
        line = service.stderr.readline()
        port = line.partition("127.0.0.1:")[2].split('"')[0]
        answered: list[str] = []

        def post(client: httpx.Client, number: int) -> None:
            try:
                url = f"http://127.0.0.1:{port}/v1/jobs"
                answer = client.post(url, json={"run": f"job {number}"}, headers=world.headers("ann"))
                answered.extend(answer.json()["ids"])
            except httpx.HTTPError:
                pass

        with httpx.Client(verify=False, timeout=20) as client, ThreadPoolExecutor(4) as threads:
            list(threads.map(partial(post, client), range(120)))
        assert service.wait(20) == -signal.SIGKILL
    stored = {row.id for row in world.rows(schema.jobs)}
    handed_over = {event["job"]["id"] for _, event in world.inbox()}
    assert len(answered) >= 20
    assert set(answered) <= stored
    assert stored == handed_over, "a job and its event are one transaction"


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_a_full_disk_refuses_changes_and_serves_reads(world: World, send: Clients) -> None:
    send.submit()
    engine = send.app.state.services.engine
    limit = {"pages": 0}

    @event.listens_for(engine, "begin", insert=True)
    def bound(connection: Connection) -> None:
        dbapi: Any = connection.connection
        dbapi.execute(f"PRAGMA max_page_count = {limit['pages'] or 1 << 30}")

    with world.engine.connect() as connection:
        limit["pages"] = int(connection.scalar(text("PRAGMA page_count")) or 0) + 2
    full = send("ann", "POST", "/v1/jobs", [{"run": "x" * 5000}] * 50)
    assert "full" in refused(full, 507)["detail"]
    assert send("ann", "GET", "/v1/jobs").status_code == 200
    assert len(world.rows(schema.jobs)) == 1
    limit["pages"] = 0
    assert send.submit() == "2"


@pytest.fixture
def writer(world: World) -> Any:
    made = Writer(world.engine, world.state / "loop-wake")
    made.start()
    yield made
    made.stop()


def add(name: str) -> Any:
    def change(connection: Connection) -> str:
        connection.execute(insert(schema.counters).values(name=name, value=1))
        return name

    return change


def test_requests_that_wait_share_one_commit(world: World, writer: Writer) -> None:
    commits: list[Connection] = []
    event.listen(writer._engine, "commit", commits.append)
    with world.engine.execution_options(writes=True).begin():  # another process has the lock
        futures: list[Future[str]] = [writer.submit(add(f"n{number}")) for number in range(50)]
        assert not any(future.done() for future in futures)
    assert [future.result(10) for future in futures] == [f"n{number}" for number in range(50)]
    assert len(commits) <= 3


def test_results_of_a_transaction_are_delivered_together(world: World) -> None:
    """Each delivery wakes the thread of requests."""
    deliveries: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
    writer = Writer(world.engine, world.state / "loop-wake")
    with world.engine.execution_options(writes=True).begin():
        futures = [writer.submit(add(f"n{number}")) for number in range(50)]
        writer.start(deliveries.put)
    deliveries.get(timeout=20)()
    assert [future.result(0) for future in futures] == [f"n{number}" for number in range(50)]
    writer.stop()
    assert deliveries.empty()


def test_a_request_does_not_wait_for_clients_that_have_gone(world: World, writer: Writer) -> None:
    with world.engine.execution_options(writes=True).begin():
        together = [writer.submit(add(f"n{number}")) for number in range(9)]
    assert all(future.result(20) for future in together)
    assert writer.submit(add("alone")).result(20) == "alone", "eight of nine send nothing any more"


def test_one_request_that_fails_fails_alone(world: World, writer: Writer) -> None:
    def refuse(connection: Connection) -> None:
        raise Refused(409, "no")

    def fail(connection: Connection) -> None:
        connection.execute(insert(schema.counters).values(name="half", value=1))
        raise ZeroDivisionError

    with world.engine.execution_options(writes=True).begin():
        futures: list[Future[Any]] = [
            writer.submit(each) for each in (add("a"), refuse, add("b"), fail, add("c"), add("a"))
        ]
    errors = [type(future.exception(20)).__name__ for future in futures]
    assert errors == ["NoneType", "Refused", "NoneType", "ZeroDivisionError", "NoneType", "IntegrityError"]
    assert sorted(row.name for row in world.rows(schema.counters)) == ["a", "b", "c"]


def test_a_request_whose_client_is_gone_does_not_stop_the_others(world: World, writer: Writer) -> None:
    with world.engine.execution_options(writes=True).begin():
        first, gone, last = (writer.submit(add(name)) for name in ("first", "gone", "last"))
        gone.cancel()
    assert (first.result(10), last.result(10)) == ("first", "last")
    assert writer.submit(add("later")).result(10) == "later"


def test_the_loop_is_woken_after_the_commit(world: World, send: Clients) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as wake:
        wake.bind(str(world.state / "loop-wake"))
        wake.settimeout(10)
        send.submit()
        assert wake.recv(8) == b"\0"
        assert len(world.inbox()) == 1


def test_two_processes_take_different_numbers(world: World) -> None:
    with world.app() as one, world.app() as two:
        made: list[str] = []
        threads = [
            threading.Thread(target=lambda send=send: made.extend(send.submit() for _ in range(10)))
            for send in (one, two)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(made, key=int) == [str(number) for number in range(1, 21)]
