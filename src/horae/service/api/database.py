"""Statements for SQLite and PostgreSQL, and the times of the log."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from sqlalchemy import Connection, Table, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.sql.dml import Insert

from horae.service.store.offsets import Stretch, Stretches, read_offsets, to_log, to_unix
from horae.service.store.schema import leader, meta


def insert_into(connection: Connection, table: Table) -> Any:
    """An insert with `on_conflict_do_update`, which SQLite and PostgreSQL both have."""
    made: Insert = sqlite.insert(table) if connection.dialect.name == "sqlite" else postgresql.insert(table)
    return made


def upsert(connection: Connection, table: Table, row: dict[str, Any]) -> None:
    keys = [column.name for column in table.primary_key]
    changed = {name: value for name, value in row.items() if name not in keys}
    new = insert_into(connection, table).values(row)
    connection.execute(new.on_conflict_do_update(index_elements=keys, set_=changed))


def meta_value(connection: Connection, key: str) -> str | None:
    value: str | None = connection.scalar(select(meta.c.value).where(meta.c.key == key))
    return value


class LogClock(NamedTuple):
    """Converts times of the log to Unix times and back."""

    offset: float  # at present
    former: Stretches = ()  # the last of them is the present one

    def unix(self, at: float) -> float:
        return to_unix(at, self._stretches)

    def unix_or_none(self, at: float | None) -> float | None:
        return None if at is None else self.unix(at)

    def log(self, unix: float) -> float:
        return to_log(unix, self._stretches)

    @property
    def _stretches(self) -> Stretches:
        begins_at = self.former[-1].begins_at if self.former else 0.0
        return (*self.former[:-1], Stretch(begins_at, self.offset))

    @property
    def now(self) -> float:
        """The present time of the log."""
        return time.time() - self.offset


_LEADER = select(leader.c.wall, leader.c.at).order_by(leader.c.id).limit(1)


def clock(connection: Connection) -> LogClock:
    row = connection.execute(_LEADER).first()
    if row is None:
        return LogClock(time.time())
    return LogClock(row.wall - row.at, read_offsets(connection))
