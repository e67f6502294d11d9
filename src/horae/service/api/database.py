"""Statements for SQLite and PostgreSQL, and the times of the log."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, Table, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.sql.dml import Insert

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

    offset: float

    def unix(self, at: float) -> float:
        return at + self.offset

    def unix_or_none(self, at: float | None) -> float | None:
        return None if at is None else at + self.offset

    def log(self, unix: float) -> float:
        return unix - self.offset

    @property
    def now(self) -> float:
        """The present time of the log."""
        return time.time() - self.offset


_LEADER = select(leader.c.wall, leader.c.at).order_by(leader.c.id).limit(1)


def clock(connection: Connection) -> LogClock:
    row = connection.execute(_LEADER).first()
    return LogClock(time.time() if row is None else row.wall - row.at)


Rows = Sequence[Any]
