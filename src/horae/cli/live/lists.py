"""What all lists share: `-o table|wide|json|csv` and `--watch`."""

from __future__ import annotations

import csv
import io
import json
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Annotated, TypeVar

import typer
from pydantic import BaseModel

from horae.cli.live.plain import cell, plain
from horae.cli.live.tables import Column, table, terminal_width
from horae.model.errors import ServiceError
from horae.model.safe_text import printable

WATCH_SECONDS = 2.0


class ListFormat(Enum):
    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    CSV = "csv"


ListOutput = Annotated[ListFormat, typer.Option("-o", "--output", help="How to print the list.")]
Watch = Annotated[bool, typer.Option("--watch", help="Print it again every 2 seconds, until Ctrl-C.")]
Tenant = Annotated[str | None, typer.Option(help="Of this tenant only.")]

Item = TypeVar("Item", bound=BaseModel)


def print_list(
    read: Callable[[], Sequence[Item]],
    columns: Sequence[Column[Item]],
    output: ListFormat,
    watch: bool,
    empty: str = "none",
    hide_empty: bool = False,
) -> None:
    """Prints a list, once or again and again; `hide_empty` leaves out columns without any text."""

    def text() -> str:
        items = read()
        kept = [column for column in columns if not hide_empty or any(map(column.text, items))]
        return formatted(items, kept, output, empty)

    shown(text, watch)


def formatted(items: Sequence[Item], columns: Sequence[Column[Item]], output: ListFormat, empty: str = "none") -> str:
    """A list as text: for people, or for programs."""
    match output:
        case ListFormat.JSON:
            return json.dumps(plain(list(items)), indent=2)
        case ListFormat.CSV:
            return _csv(items, columns)
    if not items:
        return empty
    if output is ListFormat.WIDE:
        return "\n".join(table(items, columns))
    return "\n".join(table(items, [column for column in columns if not column.is_wide], terminal_width()))


def shown(text: Callable[[], str], watch: bool) -> None:
    """Prints a text; with `watch` again and again, over the last one where the output is a terminal."""
    if not watch:
        print(text())
        return
    try:
        while True:
            _draw(_or_error(text))
            time.sleep(WATCH_SECONDS)
    except KeyboardInterrupt:
        return


def _or_error(text: Callable[[], str]) -> str:
    """While a list is watched, the service may be started anew."""
    try:
        return text()
    except ServiceError as error:
        if error.status and error.status < 500:
            raise
        return printable(str(error))


def _draw(text: str) -> None:
    if sys.stdout.isatty():
        height = max(shutil.get_terminal_size().lines - 1, 1)
        lines = text.splitlines()
        if len(lines) > height:
            lines = [*lines[: height - 1], f"and {len(lines) - height + 1:,} more lines"]
        text = "\x1b[H\x1b[J" + "\n".join(lines)
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _csv(items: Sequence[Item], columns: Sequence[Column[Item]]) -> str:
    """All fields of the items; the headings of the table where there are none to take them from."""
    out = io.StringIO()
    rows = [plain(item) for item in items]
    names = list(rows[0]) if rows and isinstance(rows[0], dict) else [column.heading.lower() for column in columns]
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(names)
    for row in rows:
        if isinstance(row, dict):
            writer.writerow([printable(cell(row[name])) for name in names])
    return out.getvalue().rstrip("\n")
