"""Notices to the webhooks of tenants: what is told, that it arrives at least once, and that it delays nothing."""

from __future__ import annotations

import hmac
import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from builders import cluster
from live_world import LiveEngine, World, run_until_quiet, start_loop, submit
from patience import wait_until
from service.api.harness import STARTED_WALL
from service.api.harness import World as ApiWorld
from sqlalchemy import Engine, select

from horae.model.errors import InputError
from horae.model.events import Ending
from horae.model.setup import Cadence, PoolSpec, Setup
from horae.service.api.context import Webhook
from horae.service.api.webhooks import Sender
from horae.service.api.writer import Writer
from horae.service.config import configure, load_config
from horae.service.loop.loop import Loop
from horae.service.models import JobSpec
from horae.service.store import schema
from horae.service.store.database import reading

POOL = PoolSpec("all", "las", cadence=Cadence.ROUNDS, round_seconds=20.0)
SETUP = Setup(cluster(1, 1, "A100"), (POOL,), acknowledge_seconds=5.0)
SECRET = "a secret"


class Receiver:
    """A web server that answers as it is told."""

    def __init__(self) -> None:
        self.received: list[tuple[dict[str, str], bytes]] = []
        self.status = 200
        self.hang = threading.Event()
        self.hang.set()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                receiver.received.append((dict(self.headers), self.rfile.read(int(self.headers["Content-Length"]))))
                receiver.hang.wait()
                self.send_response(receiver.status)
                if receiver.status == 302:
                    self.send_header("Location", f"{receiver.url}/elsewhere")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads, self._server.block_on_close = True, False
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/hook"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [json.loads(body) for _, body in self.received]

    def close(self) -> None:
        self.hang.set()
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    made = Receiver()
    yield made
    made.close()


# What is told


def told(database: Engine) -> list[tuple[str, str, dict[str, Any]]]:
    with reading(database) as connection:
        rows = connection.execute(select(schema.notices).order_by(schema.notices.c.id)).all()
    return [(row.job, row.kind, json.loads(row.payload)) for row in rows]


def until(loop: Loop, engine: LiveEngine, is_so: Callable[[], bool]) -> None:
    """Runs on, round by round."""
    for _ in range(60):
        run_until_quiet(loop)
        if is_so():
            return
        engine.world.seconds += 20.0
    raise AssertionError("it does not happen")


def test_preemption_failure_loss_and_limits_are_told(database: Engine, tmp_path: Path) -> None:
    engine = LiveEngine(World())
    loop = start_loop(database, engine, SETUP, tmp_path, webhooks=["nlp"])
    first, second = submit(database, *[JobSpec(run="x", tenant="nlp", retries=1)] * 2)
    submit(database, JobSpec(run="x", tenant="vision"))
    # The least attained service first: they take turns.
    until(loop, engine, lambda: any(kind == "preempted" for _, kind, _ in told(database)))
    notice = next(said for _, kind, said in told(database) if kind == "preempted")
    assert notice["reason"].startswith("preempted by ")
    until(loop, engine, lambda: bool({first, second} & set(engine.running)))
    running = first if first in engine.running else second
    count = len(told(database))
    engine.running[running].steps = 7.0
    engine.end(running, Ending.FAILED, "exit code 1: no disk")
    engine.events *= 2  # the same end is told twice
    run_until_quiet(loop)
    (failure,) = [each for each in told(database)[count:] if each[1] == "failed"]
    assert failure[0] == running and failure[2]["reason"] == "exit code 1: no disk" and failure[2]["steps"] == 7.0
    assert {job for job, _, _ in told(database)} <= {first, second}, "a tenant without a webhook is told nothing"


def test_a_job_that_exceeds_its_time_or_is_lost_is_told(database: Engine, tmp_path: Path) -> None:
    engine = LiveEngine(World())
    loop = start_loop(database, engine, SETUP, tmp_path, webhooks=["nlp"])
    (slow,) = submit(database, JobSpec(run="x", tenant="nlp", max_duration=30.0))
    until(loop, engine, lambda: bool(told(database)))
    assert [(job, kind, said["reason"]) for job, kind, said in told(database)] == [
        (slow, "limit", "it ran for its maximum of 30 s")
    ]
    (other,) = submit(database, JobSpec(run="x", tenant="nlp"))
    until(loop, engine, lambda: other in engine.running)
    engine.end(other, Ending.LOST, "the machine was restarted")
    run_until_quiet(loop)
    assert told(database)[1][:2] == (other, "lost")


# How it is sent


@pytest.fixture
def api(tmp_path: Path) -> Iterator[tuple[ApiWorld, Writer]]:
    world = ApiWorld(tmp_path)
    world.add_job("8", "vision", "bob", steps_total=100.0)
    world.add_job("9", "nlp", name="bert", steps_total=100.0)
    world.insert(
        schema.progress, job_id="9", epoch=1, wall=1.0, steps=20.0, saved=20.0, steps_per_second=2.0, resumable=True
    )
    notice(world, "preempted by 8", steps=20.0)
    writer = Writer(world.engine, tmp_path / "wake")
    writer.start()
    yield world, writer
    writer.stop()


def now() -> float:
    """The time of the log."""
    return time.time() - STARTED_WALL


def notice(world: ApiWorld, reason: str, steps: float = 0.0) -> None:
    payload = json.dumps({"reason": reason, "state": "pending", "steps": steps})
    world.insert(schema.notices, at=now(), tenant="nlp", job="9", kind="preempted", payload=payload)


def test_a_notice_is_signed_names_no_job_of_others_and_is_delivered_once(
    api: tuple[ApiWorld, Writer], receiver: Receiver
) -> None:
    world, writer = api
    sender = Sender(world.engine, writer, "nlp", Webhook(receiver.url, SECRET))
    with httpx.Client() as client:
        assert sender.send_due(client) == 1
        assert sender.send_due(client) == 0
    ((headers, body),) = receiver.received
    said = json.loads(body)
    assert said["reason"] == "preempted by other-tenant job"
    assert (said["job"], said["name"], said["steps"], said["remaining_seconds"]) == ("9", "bert", 20.0, 40.0)
    digest = hmac.new(SECRET.encode(), body, "sha256").hexdigest()
    assert headers["X-Horae-Signature"] == f"sha256={digest}"
    (row,) = world.rows(schema.notices)
    assert row.delivered_at is not None and row.attempts == 1 and row.last_error is None


@pytest.mark.parametrize("status", [302, 404, 500])
def test_an_attempt_that_fails_is_repeated_later(status: int, api: tuple[ApiWorld, Writer], receiver: Receiver) -> None:
    world, writer = api
    receiver.status = status
    sender = Sender(world.engine, writer, "nlp", Webhook(receiver.url))
    with httpx.Client() as client:
        assert sender.send_due(client) == 0
        assert sender.send_due(client) == 0, "not at once"
        (row,) = world.rows(schema.notices)
        assert (row.attempts, row.last_error, row.delivered_at) == (1, f"it answered {status}", None)
        assert len(receiver.received) == 1, "a redirect is not followed"
        with world.engine.begin() as connection:
            connection.execute(schema.notices.update().values(next_attempt_at=0.0))
        receiver.status = 204
        assert sender.send_due(client) == 1
    first, second = (headers["X-Horae-Notice"] for headers, _ in receiver.received)
    assert first == second, "so that a receiver can recognise it"


def test_a_receiver_that_hangs_delays_no_other_tenant_and_an_operator_sees_what_waits(
    tmp_path: Path, receiver: Receiver
) -> None:
    other = Receiver()
    hooks = {"nlp": Webhook(receiver.url), "vision": Webhook(other.url)}
    world = ApiWorld(tmp_path, webhooks=hooks)
    receiver.hang.clear()
    world.add_job("8", "vision", "bob")
    world.add_job("9")
    notice(world, "preempted by 8")
    payload = json.dumps({"reason": "exit code 1", "state": "failed", "steps": 0.0})
    world.insert(schema.notices, at=now(), tenant="vision", job="8", kind="failed", payload=payload)
    with world.app() as send:
        wait_until(lambda: bool(other.received and receiver.received), 0.05)
        wait_until(lambda: any(row.delivered_at is not None for row in world.rows(schema.notices)), 0.05)
        waiting = {row["name"]: row["undelivered_notices"] for row in send("olga", "GET", "/v1/tenants").json()}
        assert (waiting["nlp"], waiting["vision"]) == (1, 0)
        assert "horae_notices_undelivered 1.0" in send("olga", "GET", "/metrics").text
        receiver.hang.set()
        wait_until(lambda: all(row.delivered_at is not None for row in world.rows(schema.notices)), 0.05)
    other.close()


def test_the_configuration_names_webhooks(tmp_path: Path) -> None:
    file = tmp_path / "horae.yaml"
    file.write_text("{tenants: {nlp: {webhook: 'https://example.org/x', webhook_secret: s}}}")
    config = configure(tmp_path, file, ["1x2:A100"], [], None, None)
    config.save(tmp_path / "config.json")
    assert load_config(tmp_path / "config.json").webhooks["nlp"].url == "https://example.org/x"
    for wrong in ("ftp://example.org", "file:///etc/passwd", "https://"):
        file.write_text(f"{{tenants: {{nlp: {{webhook: '{wrong}'}}}}}}")
        with pytest.raises(InputError, match=r"webhook.*https://"):
            configure(tmp_path, file, ["1x2:A100"], [], None, None)
