"""Old events leave the log for Parquet files in the state folder. Recovery does not need them: snapshots are younger.

    archive/events-000000000001-000000012345.parquet    numbered by their first and last event

Nothing is deleted from the log before its file is durable. After a crash in between, the file is written once more.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from io import BytesIO
from math import floor
from pathlib import Path
from typing import TYPE_CHECKING

import structlog
from sqlalchemy import Engine, delete, func, select

from horae.journal import JournalEntry
from horae.model.errors import InputError
from horae.service.clock import LogClock
from horae.service.store.database import StoreFull, StoreUnavailable, reading, writing
from horae.service.store.leadership import confirm_lead
from horae.service.store.log import LogRow, entry_of
from horae.service.store.schema import events, snapshots

if TYPE_CHECKING:
    import polars as pl

ROWS_MAX = 100_000  # in one file
DAY_SECONDS = 86400.0
LOOK_SECONDS = 3600.0

log = structlog.get_logger("archive")


class Archive:
    """Moves events that are older than a time, a day at a time."""

    def __init__(self, engine: Engine, folder: Path, term: int, clock: LogClock, keep_seconds: float) -> None:
        self._engine, self._folder, self._term, self._clock = engine, folder, term, clock
        self._keep_seconds = keep_seconds
        self._looks_at = 0.0

    def look(self) -> None:
        """Moves what is old, at most once per hour. A full disk or an absent store is no reason to stop."""
        now = self._clock.now()
        if now < self._looks_at:
            return
        self._looks_at = now + LOOK_SECONDS
        before = floor((now - self._keep_seconds) / DAY_SECONDS) * DAY_SECONDS
        try:
            while (moved := self.move(before)) > 0:
                log.info("events archived", events=moved)
        except (OSError, StoreFull, StoreUnavailable) as error:
            log.error("events cannot be archived", error=str(error))

    def move(self, before: float) -> int:
        """Moves events before this time of the log to one file; returns how many there were."""
        rows = self._old_rows(before)
        if not rows:
            return 0
        self._folder.mkdir(mode=0o700, exist_ok=True)
        name = f"events-{rows[0].seq:012}-{rows[-1].seq:012}.parquet"
        _write_durably(self._folder / name, _parquet(rows))
        with writing(self._engine) as connection:
            confirm_lead(connection, self._term, self._clock.read())
            connection.execute(delete(events).where(events.c.seq <= rows[-1].seq))
        return len(rows)

    def _old_rows(self, before: float) -> list[LogRow]:
        """Older than every snapshot as well, so that each of them can be used with the events since."""
        with reading(self._engine) as connection:
            oldest = connection.execute(select(func.min(snapshots.c.seq))).scalar() or 0
            is_old = (events.c.seq < oldest) & (events.c.at < before)
            found = connection.execute(select(events).where(is_old).order_by(events.c.seq).limit(ROWS_MAX))
            return [LogRow(*row) for row in found]


def archived_entries(folder: Path) -> Iterator[JournalEntry]:
    """The events in the files of an archive, in order."""
    last = 0
    for path in sorted(folder.glob("events-*.parquet")):
        for row in _read(path).iter_rows():
            entry = LogRow(*row)
            if entry.seq > last:
                last = entry.seq
                yield entry_of(entry)


def _read(path: Path) -> pl.DataFrame:
    import polars as pl  # noqa: PLC0415  it takes a moment, and few need it

    try:
        found = pl.read_parquet(path)
    except (OSError, pl.exceptions.PolarsError) as error:
        problem = str(error).strip().partition("\n")[0]
        raise InputError(f"cannot be read: {problem}", file=str(path), remedy="put a whole copy in its place") from None
    if found.schema != pl.Schema(_columns()):
        problem = f"has other columns than this version's archives: {', '.join(found.columns)}"
        raise InputError(problem, file=str(path), remedy="read it with the Horae that wrote it")
    return found


def _parquet(rows: list[LogRow]) -> bytes:
    import polars as pl  # noqa: PLC0415

    page = BytesIO()
    pl.DataFrame(rows, schema=_columns(), orient="row").write_parquet(page)
    return page.getvalue()


def _columns() -> dict[str, pl.DataType]:
    import polars as pl  # noqa: PLC0415

    numbers = {"seq": pl.Int64(), "term": pl.Int64(), "at": pl.Float64(), "wall": pl.Float64()}
    return {**numbers, "kind": pl.String(), "payload": pl.String(), "effects": pl.Binary()}


def _write_durably(path: Path, content: bytes) -> None:
    new = path.with_suffix(".new")
    with new.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    new.rename(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
