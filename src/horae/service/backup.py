"""Copies of the store: made while the service runs, put back while it does not."""

from __future__ import annotations

import fcntl
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path

from horae.model.errors import InputError

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL
_POSTGRESQL = "use pg_dump and pg_restore for a store in PostgreSQL"


def backup(state: Path, target: Path) -> int:
    """Writes a whole copy of the embedded store to a new file; returns its size in bytes."""
    source = _store(state)
    if target.exists():
        raise InputError(f"{target} exists", field="FILE", remedy="name a new file")
    try:
        os.close(os.open(target, _NEW, 0o600))
        read_only = f"file:{source}?mode=ro"
        with closing(sqlite3.connect(read_only, uri=True)) as store, closing(sqlite3.connect(target)) as copy:
            store.backup(copy)
    except (sqlite3.Error, OSError) as error:
        target.unlink(missing_ok=True)
        raise InputError(f"the copy failed: {error}", field="FILE", remedy="make room for it") from None
    return target.stat().st_size


def restore(state: Path, source: Path) -> None:
    """Puts a copy back. The service must be down; jobs that run are adopted when it starts again."""
    _check(source)
    state.mkdir(parents=True, exist_ok=True)
    # Both: while a loop that fails is started again and again, its own lock is free for moments.
    with _locked(state / "lock"), _locked(state / "loop.lock"):
        store = state / "store.db"
        copy = _copy(source, store.with_name("store.db.restored"))
        if store.exists():
            _keep(store)
        for left in ("store.db-wal", "store.db-shm"):
            (state / left).unlink(missing_ok=True)  # of the former store; all of it is in the file that was kept
        copy.rename(store)
        _sync(state)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InputError(f"a service runs in {path.parent}", field="--state", remedy="stop it before") from None
        yield


def _copy(source: Path, target: Path) -> Path:
    """A durable copy that only the service's user can read."""
    target.unlink(missing_ok=True)
    try:
        with source.open("rb") as given, os.fdopen(os.open(target, _NEW, 0o600), "wb") as made:
            shutil.copyfileobj(given, made)
            made.flush()
            os.fsync(made.fileno())
    except OSError as error:
        target.unlink(missing_ok=True)
        raise InputError(f"the copy failed: {error.strerror}", file=str(source), remedy="make room for it") from None
    return target


def _keep(store: Path) -> None:
    """Keeps the present store, whole, under a name of its own; it stays in place until the other one replaces it."""
    numbers = (number for number in count(1) if not store.with_name(f"store.db.before-restore-{number}").exists())
    target = store.with_name(f"store.db.before-restore-{next(numbers)}")
    os.close(os.open(target, _NEW, 0o600))
    try:
        with closing(sqlite3.connect(store)) as present, closing(sqlite3.connect(target)) as kept:
            present.backup(kept)
    except sqlite3.Error:  # it is damaged, which may be why another one is restored: kept as it is
        shutil.copyfile(store, target)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _store(state: Path) -> Path:
    store = state / "store.db"
    if not store.exists():
        raise InputError(f"there is no embedded store in {state}", field="--state", remedy=_POSTGRESQL)
    return store


def _check(source: Path) -> None:
    """A file that is no whole copy of a store is refused before anything is touched."""
    problem = "is no copy of a store"
    try:
        with closing(sqlite3.connect(f"file:{source}?mode=ro", uri=True)) as copy:
            sound = copy.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            tables = {name for (name,) in copy.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if sound and {"events", "jobs", "snapshots", "leader"} <= tables:
            return
    except sqlite3.Error as error:
        problem = str(error)
    raise InputError(problem, file=str(source), remedy="name a file that `horae backup` has written")
