"""Statements that run many times per second: their text is made once per database.

SQLAlchemy looks a statement up and converts its values one by one in each execution, which takes several times as long
as SQLite needs for it. The values here need no conversion.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import Connection, CursorResult
from sqlalchemy.sql.dml import UpdateBase
from sqlalchemy.sql.selectable import Select

if TYPE_CHECKING:
    pass


class _Text(NamedTuple):
    sql: str
    names: tuple[str, ...] | None  # of the values in their order; None: they are given by name


class Statement:
    """An insert, update, delete or select whose values are all parameters. `names`: the columns that an insert sets."""

    def __init__(self, clause: UpdateBase | Select[Any], names: Sequence[str] | None = None) -> None:
        self._clause = clause
        self._names = None if names is None else list(names)
        self._texts: dict[str, _Text] = {}  # by kind of database

    def run(self, connection: Connection, values: Mapping[str, Any]) -> CursorResult[Any]:
        text = self._text(connection)
        given: Any = values if text.names is None else tuple([values[name] for name in text.names])
        return connection.exec_driver_sql(text.sql, given)

    def run_all(self, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
        """Runs the statement once for each row."""
        if rows:
            text = self._text(connection)
            names = text.names
            given: Any = rows if names is None else [tuple([row[name] for name in names]) for row in rows]
            connection.exec_driver_sql(text.sql, given)

    def _text(self, connection: Connection) -> _Text:
        dialect = connection.dialect
        text = self._texts.get(dialect.name)
        if text is None:
            compiled = self._clause.compile(dialect=dialect, column_keys=self._names)
            names = None if compiled.positiontup is None else tuple(compiled.positiontup)
            text = self._texts[dialect.name] = _Text(str(compiled), names)
        return text
