"""Opens the database of the store, in SQLite or PostgreSQL, with the settings that durability depends on."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, OperationalError

from horae.model.errors import HoraeError, InputError
from horae.model.safe_text import brief
from horae.service.store.postgresql import ANSWER_SECONDS, open_postgresql

_BUSY_SECONDS = 10
# A writer looks so often, so many times, whether another's transaction has ended. SQLite itself, which waits after it,
# looks after 1, 3, 8, 18 ms and so on, where a transaction takes about three.
_LOOK_SECONDS, _LOOKS_MAX = 0.0005, 500
# Network file systems: their locks and their idea of what is on disk do not hold for SQLite's log.
_NETWORK = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "fuse.sshfs", "glusterfs", "ceph", "lustre"})


class StoreFull(HoraeError):
    """There is no room on the store's disk. Nothing of the transaction was written."""


class StoreUnavailable(HoraeError):
    """The database does not answer. Whether the last transaction was written is not known."""


class TermEnded(HoraeError):
    """Another process leads now: this one may not write."""


def sqlite_url(path: Path) -> str:
    return f"sqlite:///{path}"


def open_database(url: str, answer_seconds: float = ANSWER_SECONDS) -> Engine:
    """Connects lazily. A database on a network file system, or of a kind that is not supported, is an `InputError`.

    A server that does not answer a statement in time is away.
    """
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise InputError(f"{brief(url)} is no database", field="--store", remedy=_REMEDY) from None
    if parsed.get_backend_name() == "sqlite":
        return _open_sqlite(Path(parsed.database or ""))
    if parsed.get_backend_name() != "postgresql":
        raise InputError(f"{parsed.get_backend_name()} is not supported", field="--store", remedy=_REMEDY)
    try:
        return open_postgresql(parsed, answer_seconds)
    except (NoSuchModuleError, ImportError):
        remedy = "install it: pip install 'horae[postgresql]'"
        raise InputError("the driver psycopg is not installed", field="--store", remedy=remedy) from None


_BLOCKED = ("database is locked", "disk I/O error", "unable to open database file")
_REMEDY = "give a PostgreSQL address, postgresql://user@host/name, or leave it out for a file in the state folder"


def _open_sqlite(path: Path) -> Engine:
    refuse_network(path.parent)
    with suppress(OSError):
        # It holds secrets, and its log inherits the mode. One that exists is not opened: closing any descriptor of it
        # would drop the locks that SQLite holds for this process.
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    engine = create_engine(sqlite_url(path), connect_args={"timeout": _BUSY_SECONDS, "check_same_thread": False})
    event.listen(engine, "connect", _configure_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _configure_sqlite(connection: sqlite3.Connection, _: object) -> None:
    connection.isolation_level = None  # transactions begin where we say, not where the driver guesses
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA wal_autocheckpoint = 4000")


def _begin_sqlite(connection: Connection) -> None:
    if not connection.get_execution_options().get("writes", False):
        connection.exec_driver_sql("BEGIN")
        return
    # A writer that begins by reading could fail when it comes to write; it takes the lock at once.
    raw = connection.connection.dbapi_connection
    assert isinstance(raw, sqlite3.Connection)
    if not _begins_soon(raw):
        connection.exec_driver_sql("BEGIN IMMEDIATE")


def _begins_soon(connection: sqlite3.Connection) -> bool:
    """Begins a transaction that writes, unless the lock is held for longer than transactions take, or it fails."""
    connection.execute("PRAGMA busy_timeout = 0")
    try:
        for _ in range(_LOOKS_MAX):
            try:
                connection.execute("BEGIN IMMEDIATE")
                return True
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                    return False  # it will fail again, with an error that SQLAlchemy has typed
            time.sleep(_LOOK_SECONDS)
        return False
    finally:
        connection.execute(f"PRAGMA busy_timeout = {1000 * _BUSY_SECONDS}")


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """A transaction that writes; it is durable when this returns. Errors of the disk and the network are typed."""
    try:
        with engine.connect().execution_options(writes=True) as connection, connection.begin():
            yield connection
    except DBAPIError as error:
        raise _typed(error) from error


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    try:
        with engine.connect() as connection, connection.begin():
            yield connection
    except DBAPIError as error:
        raise _typed(error) from error


def _typed(error: DBAPIError) -> HoraeError | DBAPIError:
    text = str(error.orig)
    if (
        "disk is full" in text
        or "No space left" in text
        or "disk full" in text
        or "DiskFull" in type(error.orig).__name__
    ):
        return StoreFull(f"the disk of the store is full: {brief(text)}")
    is_broken = isinstance(error, OperationalError) and not isinstance(error.orig, sqlite3.Error)
    is_broken |= "IdleInTransaction" in type(error.orig).__name__  # this process got no processor for seconds
    if is_broken or error.connection_invalidated or any(words in text for words in _BLOCKED):
        return StoreUnavailable(brief(text))
    return error


def refuse_network(folder: Path, mounts: Path = Path("/proc/mounts")) -> None:
    """Raises an `InputError` if a folder is on a network file system."""
    kind = file_system(folder.resolve(), mounts)
    if kind in _NETWORK:
        remedy = "put the state folder on a local disk, or use --store postgresql://..."
        raise InputError(f"{folder} is on a network file system ({kind})", field="--state", remedy=remedy)


def file_system(path: Path, mounts: Path) -> str:
    """The kind of the file system that holds a path; "" where that is not known."""
    best, kind = "", ""
    try:
        lines = mounts.read_text().splitlines()
    except OSError:
        return ""
    for line in lines:
        _, point, found, *_ = line.split()
        point = point.replace("\\040", " ")
        if (path == Path(point) or Path(point) in path.parents) and len(point) >= len(best):
            best, kind = point, found
    return kind


def is_writable(folder: Path) -> bool:
    return os.access(folder, os.W_OK | os.X_OK)
