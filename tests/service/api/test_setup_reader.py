"""The setup that submissions are checked against is read again by one request for all that wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import pytest
from service.api.harness import World
from sqlalchemy import Connection

from horae.service.api.problems import Refused
from horae.service.api.setup_reader import Present, PresentReader, SetupReader

Read = Callable[[Connection], Present]


class Store:
    """Answers when it is told to, and counts its reads."""

    def __init__(self, world: World) -> None:
        self.reads = 0
        self.may_answer = asyncio.Event()
        self._world = world

    async def read(self, query: Read) -> Present:
        self.reads += 1
        await self.may_answer.wait()
        with self._world.engine.connect() as connection:
            return query(connection)


def test_requests_that_come_together_share_one_reading(world: World) -> None:
    async def ask() -> None:
        reader, store = PresentReader(SetupReader()), Store(world)
        waiting = [asyncio.ensure_future(reader.fresh(store.read)) for _ in range(4)]
        await asyncio.sleep(0)
        waiting[0].cancel()  # its client has gone; the others get their answer
        store.may_answer.set()
        _, *answers = await asyncio.gather(*waiting, return_exceptions=True)
        assert store.reads == 1
        assert {cast("Present", each).known.version for each in answers} == {"1"}

    asyncio.run(ask())


def test_a_reading_that_failed_is_repeated(world: World) -> None:
    async def ask() -> None:
        reader, store = PresentReader(SetupReader()), Store(world)
        store.may_answer.set()

        async def fails(query: Read) -> Present:
            raise Refused(503, "not now")

        with pytest.raises(Refused):
            await reader.fresh(fails)
        assert (await reader.fresh(store.read)).known.version == "1"

    asyncio.run(ask())
