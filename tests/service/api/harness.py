"""A store with two tenants, the API over it, and a loop that answers as it is told."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from anyio.from_thread import BlockingPortal, start_blocking_portal
from fastapi import FastAPI
from sqlalchemy import delete, insert, select

from horae.model.cluster import Cluster, Node
from horae.model.serialization import to_plain
from horae.model.setup import PoolSpec, Setup
from horae.service.api.app import create_app
from horae.service.api.context import Context, User
from horae.service.api.tokens import make_token
from horae.service.api.unix_peer import PeerProtocol
from horae.service.models import TokenRequest
from horae.service.store import schema
from horae.service.store.database import open_database, sqlite_url

NODES = (Node("a0", "A100", 8, rack="r0"), Node("a1", "A100", 8, rack="r0"), Node("v0", "V100", 4, rack="r1"))
SETUP = Setup(
    Cluster("lab", NODES, restart_seconds=45.0),
    (PoolSpec("nlp", tenants=("nlp",), cells={"A100.node": 1}), PoolSpec("spare")),
    tenant_weights={"nlp": 2.0},
)
# By name: role and tenant. Ann and Adam are of one tenant, Bob of another.
PEOPLE = {
    "olga": ("operator", ""),
    "vera": ("viewer", ""),
    "adam": ("tenant-admin", "nlp"),
    "ann": ("user", "nlp"),
    "anton": ("user", "nlp"),
    "bob": ("user", "vision"),
    "vic": ("viewer", "vision"),
}
# Users of the machine that the configuration lists.
LISTED = {"anton": User("nlp"), "oskar": User("nlp", "operator"), "bob": User("vision"), "root": User("nlp")}
OWN_UID = os.getuid() or 4242  # not root: jobs run as the service's user
STARTED_WALL = 1_000_000_000.0  # the Unix time of second 0 of the log


class World:
    """The store of a test, with a token for each of the people."""

    def __init__(self, folder: Path, url: str = "", *, has_loop: bool = False, **settings: Any) -> None:
        self.state = folder
        self.url = url or sqlite_url(folder / "store.db")
        self.engine = open_database(self.url)
        schema.metadata.create_all(self.engine)
        self.context = Context(self.url, folder, **{"users": LISTED, "own_uid": OWN_UID, **settings})
        self.tokens: dict[str, str] = {}
        with self.engine.begin() as connection:
            for name, (role, tenant) in PEOPLE.items():
                request = TokenRequest.model_validate({"name": "test", "role": role, "tenant": tenant, "user": name})
                self.tokens[name] = str(make_token(connection, request).token)
        self.insert(schema.meta, key="secret", value="a secret")
        if has_loop:  # it writes these rows itself
            return
        self.set_setup(SETUP)
        self.insert(
            schema.leader, id=1, term=1, incarnation=1, holder="test", expires_at=0.0, url="", at=0.0, boot_id="",
            boot_seconds=0.0, wall=STARTED_WALL,
        )  # fmt: skip

    def set_setup(self, setup: Setup, version: str = "1") -> None:
        with self.engine.begin() as connection:
            connection.execute(delete(schema.meta).where(schema.meta.c.key.in_(("setup", "setup_version"))))
            rows = {"setup": json.dumps(to_plain(setup)), "setup_version": version}
            connection.execute(insert(schema.meta), [{"key": key, "value": value} for key, value in rows.items()])

    def insert(self, table: Any, **values: Any) -> None:
        with self.engine.begin() as connection:
            connection.execute(insert(table).values(**values))

    def rows(self, table: Any) -> list[Any]:
        with self.engine.connect() as connection:
            return list(connection.execute(select(table)).all())

    def inbox(self) -> list[tuple[str, dict[str, Any]]]:
        return [(row.kind, json.loads(row.payload)) for row in self.rows(schema.inbox)]

    def add_job(
        self, job_id: str, tenant: str = "nlp", user: str = "ann", state: str = "pending", **values: Any
    ) -> None:
        row = {
            "id": job_id, "number": int(job_id.partition("_")[0]), "name": f"name-{job_id}", "app": job_id, "model": "",
            "tenant": tenant, "user": user, "state": state, "reason": "", "gpus": 1, "gpu_type": "", "held_gpus": 0,
            "held_type": "", "places": "", "guaranteed": False, "epoch": None, "submitted_at": float(len(job_id)),
            "spec": json.dumps({"run": "train", "tenant": tenant, "user": user}), "first_started_at": None,
            "started_at": None, "ended_at": None, "run_seconds": 0.0, "gpu_seconds": 0.0, "preemptions": 0,
            "failures": 0, "steps": 0.0, "steps_total": None, "resumable": False, "rho": None, "changed_seq": 0,
        }  # fmt: skip
        self.insert(schema.jobs, **{**row, **values})

    def add_running(self, job_id: str, epoch: int, places: str, **values: Any) -> None:
        """A job with a lease that runs on these A100."""
        gpus = len(places.split())
        held = {"epoch": epoch, "held_gpus": gpus, "held_type": "A100", "places": places, "gpus": gpus}
        started = {"started_at": 10.0, "first_started_at": 10.0}
        self.add_job(job_id, state="running", **{**held, **started, **values})
        self.add_lease(job_id, epoch, gpus=gpus, places=places)

    def add_lease(self, job_id: str, epoch: int, **values: Any) -> None:
        row = {
            "job_id": job_id, "epoch": epoch, "granted_at": 5.0, "started_at": 10.0, "until": 100.0, "ended_at": None,
            "gpu_type": "A100", "level": "node", "gpus": 1, "places": "a0/0", "guaranteed": False, "ending": "",
            "reason": "", "steps": 0.0,
        }  # fmt: skip
        self.insert(schema.leases, **{**row, **values})

    def add_event(self, seq: int, kind: str, **payload: Any) -> None:
        text = json.dumps({"event": kind, "at": float(seq), **payload})
        self.insert(schema.events, seq=seq, term=1, at=float(seq), wall=STARTED_WALL + seq, kind=kind, payload=text)

    def headers(self, name: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.tokens[name]}"}

    @contextmanager
    def app(self) -> Iterator[Clients]:
        """The API within this process."""
        app = create_app(self.context)
        with start_blocking_portal() as portal, portal.wrap_async_context_manager(app.router.lifespan_context(app)):
            client = httpx.AsyncClient(transport=httpx.ASGITransport(app, False), base_url="http://horae")
            yield Clients(self, client, portal, app)
            portal.call(client.aclose)


class Clients:
    """Sends requests in the name of a person."""

    def __init__(self, world: World, client: httpx.AsyncClient, portal: BlockingPortal, app: FastAPI) -> None:
        self.world = world
        self.app = app
        self._client = client
        self._portal = portal

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Sends a request as it is."""
        return self._portal.call(partial(self._client.request, method, path, **options))

    def __call__(self, name: str, method: str, path: str, body: Any = None, **headers: str) -> httpx.Response:
        given = {key.replace("_", "-"): value for key, value in headers.items()}
        sent = {} if body is None else {"json": body}
        return self.request(method, path, headers={**self.world.headers(name), **given}, **sent)

    def submit(self, user: str = "ann", /, **spec: Any) -> str:
        answer = self(user, "POST", "/v1/jobs", {"run": "train", **spec})
        assert answer.status_code == 201, answer.text
        return str(answer.json()["ids"][0])


def refused(answer: Any, status: int) -> dict[str, Any]:
    """The problem of an answer that must be refused."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = answer.json()
    assert problem["status"] == status
    assert problem["detail"]
    return problem


class FakeLoop:
    """Answers requests and questions as the loop does; `problem` and `answer` say how."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.problem: Callable[[str, dict[str, Any]], str] = lambda kind, payload: ""
        self.answers: dict[str, Any] = {"term": 1, "decision_seconds": 0.25}
        self.applied: list[tuple[str, dict[str, Any]]] = []
        self.asked: list[dict[str, Any]] = []
        self._is_stopping = threading.Event()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(world.state / "loop.sock"))
        self._listener.listen()
        self._listener.settimeout(0.05)
        self._threads = [threading.Thread(target=work) for work in (self._drain, self._talk)]

    def __enter__(self) -> FakeLoop:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_stopping.set()
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def _drain(self) -> None:
        while not self._is_stopping.wait(0.01):
            for row in self.world.rows(schema.inbox):
                payload = json.loads(row.payload)
                self.applied.append((row.kind, payload))
                with self.world.engine.begin() as connection:
                    problem = self.problem(row.kind, payload)
                    connection.execute(insert(schema.answers).values(inbox_id=row.id, at=0.0, problem=problem))
                    connection.execute(delete(schema.inbox).where(schema.inbox.c.id == row.id))

    def _talk(self) -> None:
        while not self._is_stopping.is_set():
            try:
                client, _ = self._listener.accept()
            except TimeoutError:
                continue
            with client, client.makefile("rwb") as stream:
                question = json.loads(stream.readline())
                self.asked.append(question)
                found = next((self.answers[key] for key in question if key in self.answers), None)
                answer = {"term": 1, "decision_seconds": 0.25} if found is None else found
                stream.write(json.dumps(answer).encode() + b"\n")
                stream.flush()


@contextmanager
def served(world: World, uds: Path | None = None, *, is_stopping: bool = False) -> Iterator[str]:
    """The API on a real port; gives its address. `is_stopping`: streams end at once, and nothing waits."""
    listening = [socket.create_server(("127.0.0.1", 0))]
    if uds is not None:
        unix = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        unix.bind(str(uds))
        unix.listen()
        listening.append(unix)
    app = create_app(world.context)
    app.state.services.memory["stopping"] = is_stopping
    config = uvicorn.Config(app, http=PeerProtocol, ws="none", log_config=None, access_log=False)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": listening})
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{listening[0].getsockname()[1]}"
    finally:
        app.state.services.memory["stopping"] = True
        server.should_exit = True
        thread.join()
