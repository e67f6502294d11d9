"""Copies of the store: made while the service runs, put back while it does not."""

from __future__ import annotations

import fcntl
import shutil
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from horae.model.errors import InputError

_POSTGRESQL = "use pg_dump and pg_restore for a store in PostgreSQL"


def backup(state: Path, target: Path) -> int:
    """Writes a whole copy of the embedded store to a new file; returns its size in bytes."""
    source = _store(state)
    if target.exists():
        raise InputError(f"{target} exists", field="FILE", remedy="name a new file")
    try:
        read_only = f"file:{source}?mode=ro"
        with closing(sqlite3.connect(read_only, uri=True)) as store, closing(sqlite3.connect(target)) as copy:
            store.backup(copy)
    except (sqlite3.Error, OSError) as error:
        target.unlink(missing_ok=True)
        raise InputError(f"the copy failed: {error}", field="FILE", remedy="make room for it") from None
    target.chmod(0o600)
    return target.stat().st_size


def restore(state: Path, source: Path) -> None:
    """Puts a copy back. The service must be down; jobs that run are adopted when it starts again."""
    _check(source)
    state.mkdir(parents=True, exist_ok=True)
    with (state / "loop.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InputError(f"a service runs in {state}", field="--state", remedy="stop it before") from None
        store = state / "store.db"
        for old in (store, store.with_name("store.db-wal"), store.with_name("store.db-shm")):
            with suppress(FileNotFoundError):
                old.rename(old.with_name(f"{old.name}.before-restore"))
        shutil.copyfile(source, store)
        store.chmod(0o600)


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
