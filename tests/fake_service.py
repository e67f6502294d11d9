"""A small service with the real models and routes, in this process, on a Unix socket, to test the client.

It keeps what it was asked, and can be told to fail: each fault is used up by one request.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI, Query, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from patience import wait_until
from pydantic import BaseModel

from horae.service.models import (
    EventView,
    JobSpec,
    JobView,
    LeaseView,
    Me,
    NodeView,
    PoolView,
    Problem,
    ShareRow,
    TenantView,
    TokenView,
    UsageRow,
    Why,
)

Fault = Callable[["Answer"], Awaitable[None]]
PAGE = 3


@dataclass
class Asked:
    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: Any = None


@dataclass
class World:
    """What the service knows."""

    jobs: dict[str, JobView] = field(default_factory=dict)
    whys: dict[str, Why] = field(default_factory=dict)
    leases: dict[str, list[LeaseView]] = field(default_factory=dict)
    output: dict[str, bytes] = field(default_factory=dict)
    nodes: list[NodeView] = field(default_factory=list)
    tenants: list[TenantView] = field(default_factory=list)
    pools: list[PoolView] = field(default_factory=list)
    shares: list[ShareRow] = field(default_factory=list)
    usage: list[UsageRow] = field(default_factory=list)
    events: list[EventView] = field(default_factory=list)
    tokens: list[TokenView] = field(default_factory=list)
    me: Me = field(default_factory=lambda: Me(user="ada", tenant="nlp", role="user", via="socket"))
    submitted: dict[str, list[str]] = field(default_factory=dict)  # ids by idempotency key
    asked: list[Asked] = field(default_factory=list)
    faults: deque[Fault] = field(default_factory=deque)
    outcome: str = "finished"  # of a job, once it was looked at twice
    looks: dict[str, int] = field(default_factory=dict)

    def add(self, **fields: object) -> JobView:
        made = job(**fields)
        self.jobs[made.id] = made
        return made

    def requests(self, method: str, path: str) -> list[Asked]:
        return [each for each in self.asked if (each.method, each.path) == (method, path)]


def job(**fields: Any) -> JobView:
    """A job that waits, with other values for some fields."""
    number = fields.pop("number", 1)
    plain = {
        "id": str(number), "name": "bert", "app": "bert", "tenant": "nlp", "user": "ada", "model": "",
        "state": "pending",
        "reason": "not now: 8 GPUs are held", "gpus": 8, "held_gpus": 0, "gpu_type": "A100", "places": [],
        "guaranteed": False, "resumable": True, "epoch": None, "submitted_at": 1_700_000_000.0 + number,
        "started_at": None, "first_started_at": None, "ended_at": None, "wait_seconds": 7500.0, "run_seconds": 0.0,
        "gpu_seconds": 0.0, "preemptions": 0, "failures": 0, "steps": 0.0, "steps_total": None,
        "steps_per_second": None, "loss": None, "rho": None,
    }  # fmt: skip
    return JobView.model_validate({**plain, **fields})


class FakeService:
    """The service on a socket; `world` is replaced for every test."""

    def __init__(self, socket: Path) -> None:
        self.world = World()
        self.socket = socket
        config = uvicorn.Config(Faulty(self), uds=str(socket), log_level="critical", lifespan="off", ws="none")
        self._server = uvicorn.Server(config)
        self._app = application(self)
        self._thread = threading.Thread(target=self._server.run, daemon=True)

    def start(self) -> None:
        self._thread.start()
        wait_until(lambda: self._server.started)

    def stop(self) -> None:
        self._server.should_exit = self._server.force_exit = True
        self._thread.join()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self._app(scope, receive, send)


@contextmanager
def serving(folder: Path) -> Iterator[FakeService]:
    service = FakeService(folder / "api.sock")
    service.start()
    try:
        yield service
    finally:
        service.stop()


# Faults


@dataclass
class Answer:
    """One request, which a fault answers in its own way."""

    scope: Any
    receive: Any
    send: Any
    service: FakeService


async def dropped(answer: Answer) -> None:
    """The request is carried out, and the connection is closed before its answer is complete."""

    async def nowhere(message: Any) -> None:
        del message

    await answer.service(answer.scope, answer.receive, nowhere)
    headers = [(b"content-length", b"1000")]
    await answer.send({"type": "http.response.start", "status": 200, "headers": headers})


def status(code: int, body: bytes = b"<h1>oops</h1>", retry_after: str = "") -> Fault:
    headers = {"Retry-After": retry_after} if retry_after else {}

    async def fault(answer: Answer) -> None:
        await Response(body, code, headers, "text/html")(answer.scope, answer.receive, answer.send)

    return fault


def problem(code: int, detail: str, **fields: str) -> Fault:
    made = Problem(title="Problem", status=code, detail=detail, **fields)
    return status(code, made.model_dump_json().encode())


class Faulty:
    """Notes each request, and lets the next fault answer it, if there is one."""

    def __init__(self, service: FakeService) -> None:
        self._service = service

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        world = self._service.world
        message = await receive()
        body = message["body"]
        assert not message.get("more_body"), "requests of tests are small"
        asked = Asked(
            scope["method"],
            scope["path"].removeprefix("/v1"),
            scope["query_string"].decode(),
            {name.decode(): value.decode() for name, value in scope["headers"]},
            json.loads(body) if body else None,
        )
        world.asked.append(asked)
        messages = deque([message])

        async def again() -> Any:
            return messages.popleft() if messages else await receive()

        if world.faults:
            await world.faults.popleft()(Answer(scope, again, send, self._service))
        else:
            await self._service(scope, again, send)


# Routes


def page(items: list[Any], cursor: str | None = None) -> dict[str, Any]:
    first = int(cursor or 0)
    following = str(first + PAGE) if first + PAGE < len(items) else None
    return {"items": [plain(each) for each in items[first : first + PAGE]], "next": following}


def plain(model: BaseModel) -> Any:
    """As it is in JSON, which has no infinity."""
    return json.loads(model.model_dump_json())


def missing(what: str) -> Response:
    made = Problem(
        title="Not found",
        status=404,
        detail=f"there is no {what}",
        remedy=f"list them with GET /v1/{what.split(maxsplit=1)[0]}s",
    )
    return JSONResponse(made.model_dump(), 404, media_type="application/problem+json")


def application(service: FakeService) -> FastAPI:
    app = FastAPI(openapi_url=None)
    _job_routes(app, service)
    _detail_routes(app, service)
    _cluster_routes(app, service)
    _account_routes(app, service)
    return app


def _job_routes(app: FastAPI, service: FakeService) -> None:
    @app.post("/v1/jobs", status_code=201)
    async def submit(request: Request) -> Any:
        world, body = service.world, await request.json()
        key = request.headers["Idempotency-Key"]
        if key not in world.submitted:
            specs = [JobSpec.model_validate(each) for each in (body if isinstance(body, list) else [body])]
            ids = []
            for spec in specs:
                for _ in range(spec.array or 1):
                    number = len(world.jobs) + 1
                    gpus = spec.gpus if isinstance(spec.gpus, int) else spec.gpus.max
                    made = world.add(number=number, name=spec.name, gpus=gpus, spec=spec, tenant=spec.tenant or "nlp")
                    ids.append(made.id)
            world.submitted[key] = ids
        return {"ids": world.submitted[key]}

    @app.get("/v1/jobs")
    async def jobs(
        state: list[str] = Query([]),  # noqa: B008
        tenant: str | None = None,
        user: str | None = None,
        name: str | None = None,
        app: str | None = None,
        cursor: str | None = None,
    ) -> Any:
        wanted = {"tenant": tenant, "user": user, "name": name, "app": app}
        found = [
            each
            for each in reversed(service.world.jobs.values())
            if (not state or each.state in state)
            and all(value in (None, getattr(each, key)) for key, value in wanted.items())
        ]
        return page(found, cursor)

    @app.get("/v1/jobs/{job_id}")
    async def show(job_id: str) -> Any:
        world = service.world
        if job_id not in world.jobs:
            return missing(f"job {job_id!r}")
        world.looks[job_id] = world.looks.get(job_id, 0) + 1
        found = world.jobs[job_id]
        if world.looks[job_id] > 1 and found.state == "pending" and found.spec is not None:
            world.jobs[job_id] = found.model_copy(update={"state": world.outcome, "reason": "", "run_seconds": 65.0})
        return JSONResponse(plain(found))

    def change(job_id: str, state: str) -> Any:
        if job_id not in service.world.jobs:
            return missing(f"job {job_id!r}")
        changed = service.world.jobs[job_id].model_copy(update={"state": state})
        service.world.jobs[job_id] = changed
        return JSONResponse(plain(changed), 202)

    @app.delete("/v1/jobs/{job_id}")
    async def stop(job_id: str) -> Any:
        return change(job_id, "cancelled")

    @app.post("/v1/jobs/{job_id}/{verb}")
    async def hold(job_id: str, verb: str) -> Any:
        return change(job_id, {"hold": "suspended", "release": "pending"}[verb])


def _detail_routes(app: FastAPI, service: FakeService) -> None:
    @app.get("/v1/jobs/{job_id}/why")
    async def why(job_id: str) -> Why:
        return service.world.whys[job_id]

    @app.get("/v1/jobs/{job_id}/leases")
    async def leases(job_id: str) -> list[LeaseView]:
        return service.world.leases.get(job_id, [])

    @app.get("/v1/jobs/{job_id}/logs")
    async def logs(job_id: str, tail: int = 10, offset: int | None = None, follow: bool = False) -> Response:
        whole = service.world.output.get(job_id, b"")
        start = max(len(whole) - tail, 0) if offset is None else offset
        if follow:
            return StreamingResponse(_pieces(whole[start:]), media_type="text/plain")
        part = whole[start : start + 10_000]
        return Response(part, headers={"Horae-Log-Next": str(start + len(part)), "Horae-Log-Epoch": "0"})


async def _pieces(text: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(text), 7):
        yield text[start : start + 7]


def _cluster_routes(app: FastAPI, service: FakeService) -> None:
    @app.get("/v1/{kind}")
    async def lists(kind: str, cursor: str | None = None, since: int | None = None, job: str | None = None) -> Any:
        world = service.world
        if kind == "me":
            return world.me
        if kind == "events":
            later = [each for each in world.events if each.seq > (since or 0)][:PAGE]
            found = [plain(each) for each in later if job in (None, each.job_id)]
            return {"items": found, "next": later[-1].seq if later else since or 0}
        items: dict[str, list[Any]] = {
            "nodes": world.nodes, "tenants": world.tenants, "pools": world.pools, "share": world.shares,
            "usage": world.usage, "tokens": world.tokens,
            "history": [each for each in world.jobs.values() if each.ended_at is not None],
        }  # fmt: skip
        return page(items[kind], cursor) if kind == "history" else [plain(each) for each in items[kind]]

    @app.get("/v1/events/stream")
    async def stream(request: Request) -> Response:
        last = int(request.headers.get("Last-Event-ID", "0"))

        async def lines() -> AsyncIterator[str]:
            yield ": keep-alive\n\n"
            for event in service.world.events:
                if event.seq > last:
                    yield f"id: {event.seq}\nevent: {event.kind}\ndata: {event.model_dump_json()}\n\n"
            yield f"id: {service.world.events[-1].seq}\n\n"

        return StreamingResponse(lines(), media_type="text/event-stream")

    @app.post("/v1/nodes/{name}/{verb}")
    async def node(name: str, verb: str) -> Any:
        if name not in [each.name for each in service.world.nodes]:
            return missing(f"node {name!r}")
        return {"applied": verb == "drain"}


def _account_routes(app: FastAPI, service: FakeService) -> None:
    @app.put("/v1/reservations")
    async def reserve() -> dict[str, bool]:
        return {"applied": True}

    @app.patch("/v1/tenants/{name}")
    @app.put("/v1/pools/{name}/policy")
    async def change(name: str) -> dict[str, bool]:
        return {"applied": name != "slow"}

    @app.post("/v1/tokens", status_code=201)
    async def create(request: Request) -> TokenView:
        asked = await request.json()
        made = TokenView(
            id="t1", name=asked["name"], role=asked["role"], tenant=asked["tenant"], user=asked["user"],
            created_at=1_700_000_000.0, expires_at=None, token="secret",
        )  # fmt: skip
        service.world.tokens.append(made.model_copy(update={"token": None}))
        return made

    @app.delete("/v1/tokens/{token_id}", status_code=204)
    async def revoke(token_id: str) -> Response:
        if token_id not in [each.id for each in service.world.tokens]:
            return missing(f"token {token_id!r}")
        return Response(status_code=204)
