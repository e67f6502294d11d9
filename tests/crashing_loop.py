"""Crashes of the loop for tests: at any statement, commit or command."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from live_world import LiveEngine
from sqlalchemy import Engine, event

from horae.model.commands import Command
from horae.model.events import Event
from horae.service.store.database import open_database, sqlite_url
from horae.service.store.migrate import migrate


class Crash(BaseException):
    """The process is gone: nothing may catch it."""


class Fuse:
    """Crashes at the n-th step from now on."""

    def __init__(self) -> None:
        self.left = -1

    def step(self, *_: object) -> None:
        if self.left == 0:
            self.left = -1
            raise Crash
        self.left -= self.left > 0


def crashing_database(fuse: Fuse, path: Path) -> Engine:
    engine = open_database(sqlite_url(path))
    event.listen(engine, "connect", _without_waiting_for_the_disk)
    migrate(engine)
    event.listen(engine, "before_cursor_execute", fuse.step)
    event.listen(engine, "commit", fuse.step)
    return engine


def _without_waiting_for_the_disk(connection: sqlite3.Connection, _: object) -> None:
    connection.execute("PRAGMA synchronous = OFF")  # the machine itself does not crash in these tests


class CrashingEngine(LiveEngine):
    """May crash before and after each command, so that some of them are never carried out."""

    fuse: Fuse

    def execute(self, commands: Sequence[Command]) -> Sequence[Event]:
        replies: list[Event] = []
        for command in commands:
            self.fuse.step()
            replies.extend(super().execute([command]))
        self.fuse.step()
        return replies


@contextmanager
def crashing(fuse: Fuse, steps: int) -> Iterator[None]:
    fuse.left = steps
    with suppress(Crash):
        yield
    fuse.left = -1
