"""What the routes share: the store, the writer, the loop's client."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from anyio import to_thread
from fastapi import Request
from sqlalchemy import Connection, Engine, insert, select

from horae.journal import JournalLines
from horae.model.events import Event
from horae.service.api.context import Context
from horae.service.api.identity import Identity
from horae.service.api.loop_client import LoopClient
from horae.service.api.middleware import TokenCache
from horae.service.api.problems import Refused
from horae.service.api.setup_reader import PresentReader, SetupReader
from horae.service.api.writer import Writer, put_in_inbox
from horae.service.models import Done
from horae.service.store.schema import answers, audit
from horae.service.store.statements import Statement

T = TypeVar("T")
POLL_SECONDS = 0.02
AUDIT = Statement(insert(audit).inline(), ("wall", "user", "role", "action", "target", "detail"))


@dataclass(frozen=True, slots=True)
class Services:
    context: Context
    engine: Engine
    writer: Writer
    loop: LoopClient
    setups: SetupReader
    present: PresentReader
    tokens: TokenCache
    memory: dict[str, Any]  # of routes, e.g. when a model's speed was last reported

    async def read(self, query: Callable[[Connection], T]) -> T:
        """Runs a query in another thread, so that other requests go on."""
        return await to_thread.run_sync(self._read, query)

    def _read(self, query: Callable[[Connection], T]) -> T:
        with self.engine.connect() as connection:
            return query(connection)

    async def write(self, change: Callable[[Connection], T]) -> T:
        """The result of a change, after its commit."""
        written = self.writer.submit(change)
        # Not `asyncio.wrap_future`, which wakes this thread once for each of the requests that shared the commit.
        here = asyncio.get_running_loop().create_future()
        written.add_done_callback(partial(_copy_result, here))
        try:
            return await here
        except asyncio.CancelledError:
            written.cancel()
            raise

    async def send(self, who: Identity, kind: str, payload: str, action: str, target: str, detail: str = "") -> int:
        """Hands an event to the loop and records it in the audit; returns its number in the inbox."""

        def change(connection: Connection) -> int:
            record(connection, who, action, target, detail)
            return put_in_inbox(connection, kind, payload, time.time())

        return await self.write(change)

    async def send_event(self, who: Identity, event: Event, action: str, target: str, detail: str = "") -> int:
        return await self.send(who, type(event).__name__, line(event), action, target, detail)

    async def answer(self, number: int) -> Done:
        """The loop's answer to a request: refused as a conflict, applied, or not applied yet."""
        ends_at = time.monotonic() + self.context.answer_seconds
        while True:
            problem = await self.read(lambda c: c.scalar(select(answers.c.problem).where(answers.c.inbox_id == number)))
            if problem:
                detail, _, remedy = problem.partition("; ")
                raise Refused(409, detail, remedy=remedy or None)
            if problem is not None or time.monotonic() >= ends_at:
                return Done(applied=problem is not None)
            await asyncio.sleep(POLL_SECONDS)


async def services(request: Request) -> Services:  # not a plain function: FastAPI would run it in another thread
    found: Services = request.app.state.services
    return found


def _copy_result(to: asyncio.Future[T], source: Future[T]) -> None:
    if to.done():
        return
    error = source.exception()
    if error is None:
        to.set_result(source.result())
    else:
        to.set_exception(error)


def line(event: Event) -> str:
    """An event's line in the journal."""
    return JournalLines().event(event)


def record(connection: Connection, who: Identity, action: str, target: str, detail: str = "") -> None:
    """Adds a row to the audit, in the transaction of the change."""
    AUDIT.run_all(connection, [audit_row(who, action, target, detail)])


def audit_row(who: Identity, action: str, target: str, detail: str = "") -> dict[str, Any]:
    row = {"wall": time.time(), "user": who.user, "role": who.role, "action": action}
    return {**row, "target": target[:2000], "detail": detail[:2000]}


def compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
