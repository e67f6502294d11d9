"""The scheduler's present setup, as the loop publishes it in the table `meta`."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from sqlalchemy import Connection, select

from horae.model.serialization import from_plain
from horae.model.setup import Setup
from horae.service.api.database import LogClock, clock
from horae.service.api.problems import Refused
from horae.service.store.schema import meta

FRESH_SECONDS = 0.05


class Known(NamedTuple):
    version: str
    setup: Setup


_VERSION = select(meta.c.value).where(meta.c.key == "setup_version")


class SetupReader:
    """Reads the setup again only when its version has changed."""

    def __init__(self) -> None:
        self._known: Known | None = None
        self._lock = threading.Lock()

    def find(self, connection: Connection) -> Known | None:
        version = connection.scalar(_VERSION)
        known = self._known
        if known is not None and known.version == version:
            return known
        with self._lock:
            rows = connection.execute(
                select(meta.c.key, meta.c.value).where(meta.c.key.in_(("setup", "setup_version")))
            )
            values = {row.key: row.value for row in rows}
            if "setup" not in values:
                return None
            self._known = Known(values.get("setup_version", ""), from_plain(Setup, json.loads(values["setup"])))
            return self._known

    def read(self, connection: Connection) -> Known:
        known = self.find(connection)
        if known is None:
            raise Refused(
                503, "the scheduler has not started yet", remedy="try again shortly", headers={"Retry-After": "1"}
            )
        return known


class Present(NamedTuple):
    """What submissions are checked against."""

    known: Known
    clock: LogClock


class PresentReader:
    """Keeps the setup and the clock for a moment, because each of many submissions per second needs them."""

    def __init__(self, setups: SetupReader) -> None:
        self._setups = setups
        self._last: tuple[float, Present] | None = None
        self._reading: asyncio.Future[Present] | None = None

    async def fresh(self, in_thread: Callable[[Callable[[Connection], Present]], Awaitable[Present]]) -> Present:
        """What is kept or, once it is too old, what is read again: by one request for all that come meanwhile."""
        present = self.if_fresh()
        if present is not None:
            return present
        if self._reading is None or self._reading.done():
            self._reading = asyncio.ensure_future(in_thread(self.read))
        return await asyncio.shield(self._reading)  # a client that goes away does not take it from the others

    def if_fresh(self) -> Present | None:
        last = self._last
        return last[1] if last is not None and time.monotonic() - last[0] < FRESH_SECONDS else None

    def read(self, connection: Connection) -> Present:
        present = Present(self._setups.read(connection), clock(connection))
        self._last = time.monotonic(), present
        return present
