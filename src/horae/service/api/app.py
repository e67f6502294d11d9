"""The application: all routes over one store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI

from horae.service.api import problems
from horae.service.api.context import Context
from horae.service.api.examples import add_examples
from horae.service.api.limits import QueuedJobs
from horae.service.api.loop_client import LoopClient
from horae.service.api.middleware import Authentication, TokenCache
from horae.service.api.quick_submission import QuickSubmission
from horae.service.api.reports import Reports
from horae.service.api.room import Room
from horae.service.api.routes import (
    access,
    accounts,
    auctions,
    cluster,
    events,
    fairness,
    futures,
    gpu_map,
    health,
    job_details,
    jobs,
    metrics,
    progress,
    tenants,
    terminals,
    whatif,
)
from horae.service.api.services import Services
from horae.service.api.setup_reader import PresentReader, SetupReader
from horae.service.api.webhooks import Webhooks
from horae.service.api.writer import Writer
from horae.service.dashboard.routes import mount
from horae.service.models import Problem
from horae.service.store.database import open_database

WAKE, SOCKET = "loop-wake", "loop.sock"
_PROBLEMS: dict[int | str, dict[str, Any]] = {
    "default": {"model": Problem, "description": "an error, with the field that is wrong and the remedy"}
}


def create_app(context: Context) -> FastAPI:
    """The API over the store of this context. Its writer runs from start-up to shutdown."""
    engine, setups = open_database(context.url), SetupReader()
    services = Services(
        context=context,
        engine=engine,
        writer=Writer(engine, context.state / WAKE),
        loop=LoopClient(context.state / SOCKET, context.loop_seconds),
        setups=setups,
        present=PresentReader(setups),
        tokens=TokenCache(engine),
        memory={"room": Room(context.state), "queued": QueuedJobs(context), "reports": Reports()},
    )
    app = FastAPI(
        title="Horae",
        version="1",
        description="Shares one GPU cluster between teams.",
        lifespan=_lifespan(services),
        docs_url=None,
        redoc_url=None,
        responses=_PROBLEMS,
    )
    app.state.services = services
    problems.install(app)
    app.add_middleware(QuickSubmission, all_=services)
    app.add_middleware(Authentication, context=context, cache=services.tokens)
    for resource in (
        jobs,
        job_details,
        futures,
        whatif,
        terminals,
        progress,
        cluster,
        gpu_map,
        tenants,
        auctions,
        events,
        accounts,
        fairness,
        access,
        health,
    ):
        app.include_router(resource.router, prefix="/v1")
    app.include_router(health.probes)
    app.include_router(metrics.router)
    mount(app)
    describe = app.openapi
    app.openapi = lambda: add_examples(describe())  # type: ignore[method-assign]
    return app


def _lifespan(services: Services) -> Callable[[FastAPI], Any]:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        services.writer.start(asyncio.get_running_loop().call_soon_threadsafe)
        webhooks = Webhooks(services.engine, services.writer, services.context.webhooks)
        webhooks.start()
        try:
            yield
        finally:
            webhooks.stop()
            services.writer.stop()
            services.engine.dispose()

    return lifespan
