"""Group commit: one thread writes the requests that wait in one transaction, and answers after the commit.

With SQLite a commit takes as long as the disk needs to make it durable, so that requests share it: those that arrive
during one commit are written by the next.
"""

from __future__ import annotations

import queue
import socket
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import Connection, Engine, insert, select
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError

from horae.service.api.problems import Refused
from horae.service.store.schema import inbox
from horae.service.unix_socket import short_address

T = TypeVar("T")
BATCH_MAX = 256  # requests in one transaction
GATHER_SECONDS = 0.003
WEIGHT_MAX = 10_000  # jobs in one transaction, unless a single request has more
TRIES_MAX = 4  # of a transaction, while another process has the lock


class Write(NamedTuple):
    """A change. It checks first and writes after: raising `Refused` means that it has written nothing.

    A kind of change with a method `together` is written by one call for all that wait.
    """

    apply: Callable[[Connection], Any]
    done: Future[Any]


class Writer:
    def __init__(self, engine: Engine, wake_path: Path) -> None:
        self._engine = engine.execution_options(writes=True)
        self._wake = wake_path
        self._queue: queue.SimpleQueue[Write | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self._awaited = 0  # as many requests as the last transaction had: their clients may send again at once
        self._are_enough = threading.Event()
        self._deliver: Callable[[Callable[[], None]], object] = lambda set_results: set_results()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self.is_open = True

    def start(self, deliver: Callable[[Callable[[], None]], object] | None = None) -> None:
        """`deliver` runs a function elsewhere: the results of a transaction are set there, all together."""
        self._deliver = deliver or self._deliver
        self._thread.start()

    def stop(self) -> None:
        """Writes what waits, then ends the thread."""
        self.is_open = False
        self._queue.put(None)
        self._thread.join()
        self._socket.close()

    def submit(self, apply: Callable[[Connection], T]) -> Future[T]:
        """Queues a change; the future has its result after the commit."""
        done: Future[T] = Future()
        if not self.is_open:
            raise Refused(503, "the service is stopping", remedy="try again", headers={"Retry-After": "2"})
        self._queue.put(Write(apply, done))
        if self._has_enough():
            self._are_enough.set()
        return done

    def _run(self) -> None:
        while True:
            batch, is_last = self._next_batch()
            self._awaited = len(batch)
            # A request whose client has gone before it was begun is left out; from here on it cannot be cancelled.
            batch = [write for write in batch if write.done.set_running_or_notify_cancel()]
            if batch:
                self._write(batch)
                self._wake_loop()
            if is_last:
                return

    def _next_batch(self) -> tuple[list[Write], bool]:
        batch: list[Write] = []
        weight = 0
        write = self._queue.get()
        self._are_enough.clear()
        if not self._has_enough():
            # One commit of all costs less than several of some, which the loop's commits also wait for.
            self._are_enough.wait(GATHER_SECONDS)
        while write is not None:
            batch.append(write)
            weight += getattr(write.apply, "weight", 1)
            if len(batch) == BATCH_MAX or weight >= WEIGHT_MAX:
                return batch, False
            try:
                write = self._queue.get_nowait()
            except queue.Empty:
                return batch, False
        return batch, True

    def _has_enough(self) -> bool:
        """Whether as many wait as the last transaction had, with the one that the thread has taken already."""
        return self._queue.qsize() + 1 >= self._awaited

    def _write(self, batch: Sequence[Write]) -> None:
        """Writes all in one transaction; if one fails, each on its own, so that only that one fails."""
        try:
            results = self._transaction(batch)
        except Exception as error:
            # A connection that broke in the commit: whether it was made is not known, and trying again could double it.
            is_broken = isinstance(error, DBAPIError) and error.connection_invalidated
            if len(batch) == 1 or is_broken:
                self._deliver(partial(_set_results, batch, [error] * len(batch)))
                return
            for write in batch:
                self._write([write])
            return
        self._deliver(partial(_set_results, batch, results))

    def _transaction(self, batch: Sequence[Write]) -> list[Any]:
        for tries in range(TRIES_MAX):
            try:
                with self._engine.begin() as connection:
                    return _apply(connection, batch)
            except (OperationalError, IntegrityError) as error:
                if tries == TRIES_MAX - 1 or not _is_worth_retrying(error, len(batch)):
                    raise
                time.sleep(0.02 * (tries + 1))
        raise AssertionError("the last try returns or raises")

    def _wake_loop(self) -> None:
        # The loop may be away: it reads the inbox when it starts.
        with suppress(OSError), short_address(self._wake) as address:
            self._socket.sendto(b"\0", address)


def _set_results(batch: Sequence[Write], results: Sequence[Any]) -> None:
    for write, result in zip(batch, results, strict=True):
        if isinstance(result, Exception):
            write.done.set_exception(result)
        else:
            write.done.set_result(result)


def _apply(connection: Connection, batch: Sequence[Write]) -> list[Any]:
    """The results of the changes in their order; neighbours of one kind that can be written together are."""
    results: list[Any] = []
    for kind, run in groupby((write.apply for write in batch), key=type):
        changes = list(run)
        if hasattr(kind, "together"):
            results += kind.together(connection, changes)
        else:
            results += [_result(change, connection) for change in changes]
    return results


def _result(change: Callable[[Connection], Any], connection: Connection) -> Any:
    try:
        return change(connection)
    except Refused as refused:
        return refused


def _is_worth_retrying(error: OperationalError | IntegrityError, writes: int) -> bool:
    """Whether another process had the lock, or took the same number or idempotency key at the same time."""
    if isinstance(error, IntegrityError):
        return writes == 1
    if error.connection_invalidated:
        return False
    return "locked" in str(error.orig) or "busy" in str(error.orig)


def put_in_inbox(connection: Connection, kind: str, payload: str, wall: float) -> int:
    """Hands one event to the loop; returns the number under which its answer will be found."""
    number = connection.execute(insert(inbox).values(kind=kind, payload=payload, wall=wall)).inserted_primary_key
    assert number is not None
    return int(number[0])


def has_been_applied(connection: Connection, number: int) -> bool:
    return connection.scalar(select(inbox.c.id).where(inbox.c.id == number)) is None
