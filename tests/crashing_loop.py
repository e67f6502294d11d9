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


class CrashingStore:
    """One file for many histories: the empty tables and the text of the statements, which cost most, are made once."""

    def __init__(self, path: Path) -> None:
        self.fuse = Fuse()
        self._path = path
        self._engine = open_database(sqlite_url(path))
        event.listen(self._engine, "connect", _without_waiting_for_the_disk)
        migrate(self._engine)
        event.listen(self._engine, "before_cursor_execute", self.fuse.step)
        event.listen(self._engine, "commit", self.fuse.step)
        self._engine.dispose()  # the last connection moves what is in the write-ahead log into the file
        self._empty = path.read_bytes()

    def empty(self) -> Engine:
        """The database without a row."""
        self._engine.dispose()
        for suffix in ("-wal", "-shm"):
            Path(f"{self._path}{suffix}").unlink(missing_ok=True)
        self._path.write_bytes(self._empty)
        return self._engine


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
