"""Tables as text: aligned, one row per line, cut to the width of the terminal, but never within a number."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from rich.cells import cell_len, set_cell_size

from horae.model.safe_text import printable

Row = TypeVar("Row")
GAP, GAP_MIN = 2, 1  # cells between columns
CUT_MIN = 4  # cells that every column keeps


@dataclass(frozen=True)
class Column(Generic[Row]):
    heading: str
    text: Callable[[Row], str]
    is_number: bool = False  # on the right, and never cut
    is_cut: bool = False  # may be cut to fit the terminal
    is_wide: bool = False  # only in `-o wide`


def table(rows: Sequence[Row], columns: Sequence[Column[Row]], width: int | None = None) -> list[str]:
    """The lines of a table, with headings; columns that may be cut are, where a width is given."""
    cells = [[printable(column.text(row)) for column in columns] for row in rows]
    headings = [column.heading for column in columns]
    widths = [max(map(cell_len, column)) for column in zip(headings, *cells, strict=True)]
    gap = GAP
    if width is not None and sum(widths) + GAP * (len(widths) - 1) > width:
        gap = GAP_MIN
        widths = _cut_widths(widths, columns, width - gap * (len(widths) - 1))
    return [_line(each, columns, widths, " " * gap) for each in (headings, *cells)]


def terminal_width() -> int | None:
    """The columns of the terminal; None where the output is a file or a pipe, in which nothing is cut."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def cut(text: str, width: int) -> str:
    """The beginning of a text; an ellipsis shows that there is more."""
    return text if cell_len(text) <= width else set_cell_size(text, max(width - 1, 0)).rstrip() + "…"


def _cut_widths(widths: Sequence[int], columns: Sequence[Column[Row]], width: int) -> list[int]:
    """Takes from the widest column that may be cut, until all fit or none can give."""
    found = list(widths)
    excess = sum(found) - width
    while excess > 0:
        _, index = max((found[at], at) if columns[at].is_cut else (0, -1) for at in range(len(found)))
        if index < 0 or found[index] <= CUT_MIN:
            break
        found[index] -= 1
        excess -= 1
    return found


def _line(cells: Sequence[str], columns: Sequence[Column[Row]], widths: Sequence[int], gap: str) -> str:
    parts = []
    for cell, column, width in zip(cells, columns, widths, strict=True):
        text = cut(cell, width)
        padding = " " * (width - cell_len(text))
        parts.append(padding + text if column.is_number else text + padding)
    return gap.join(parts).rstrip()
