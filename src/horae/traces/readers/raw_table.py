"""Tables as text: cells as written, each row with its line. Their meaning is left to the readers.

Where no cell is quoted, rows are split by columns, about a million per second; otherwise one by one.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from horae.model.arrays import Ints
from horae.model.errors import InputError, JobError
from horae.model.safe_text import printable
from horae.traces.readers.text_file import COMMENT, LINE_BYTES_MAX, PARQUET, is_content, read_bytes, starts_with
from horae.traces.trace import FAULTS_LISTED_MAX, Fault, no_jobs

LINE = "line"
Where = Mapping[str, str]  # by column: the text that a row's cell must equal


@dataclass(frozen=True)
class RawTable:
    path: Path
    header_line: int
    cells: pl.DataFrame  # text without surrounding spaces, null where empty; and `line`
    faults: tuple[Fault, ...] = ()  # the first of the malformed rows
    fault_count: int = 0
    strange: Mapping[str, str] = field(default_factory=dict)  # by name: the type of a column whose cells are not text

    @property
    def columns(self) -> list[str]:
        return [name for name in self.cells.columns if name != LINE]

    def require(self, *names: str) -> None:
        for name in names:
            if name in self.strange:
                raise self.header_error(name, f"is a column of {self.strange[name]}", "make it numbers, text or dates")
            if name not in self.columns:
                known = printable(", ".join(self.columns))
                raise self.header_error(name, "is missing", f"add a column {name}; there are {known}")

    def column(self, name: str) -> str:
        """The column of this name, in any case if only one has it; the name itself where there is none."""
        alike = [each for each in self.columns if each.casefold() == name.casefold()]
        return alike[0] if name not in self.columns and len(alike) == 1 else name

    def header_error(self, field: str, problem: str, remedy: str) -> JobError:
        return JobError(problem, file=str(self.path), line=self.header_line, field=printable(field), remedy=remedy)

    def where(self, wanted: Where | None) -> RawTable:
        """The rows whose cells equal the wanted texts."""
        if not wanted:
            return self
        wanted = {self.column(name): text for name, text in wanted.items()}
        self.require(*wanted)
        cells = self.cells.filter(*(pl.col(name) == text for name, text in wanted.items()))
        if cells.is_empty():
            rows = printable(", ".join(f"{name}={text}" for name, text in wanted.items()))
            raise JobError(f"has no row where {rows}", file=str(self.path), remedy="choose cells that the file has")
        return replace(self, cells=cells)


def read_raw(path: Path, separator: str = ",", *, quotes: bool = True, names: Sequence[str] = ()) -> RawTable:
    """Reads the table of a file: CSV or similar, or Parquet.

    `names` are those of the columns where the file has no header.
    """
    if starts_with(path, PARQUET):
        return _parquet(path)
    data = read_bytes(path) if names else _without_comments(read_bytes(path))
    in_quotes = quotes and b'"' in data
    raw = _row_by_row(path, data, separator) if in_quotes else _by_columns(path, data, separator, names)
    if raw.cells.is_empty() and not raw.fault_count:
        raise _no_rows(path) if separator == "|" else no_jobs(str(path))
    return raw


def _no_rows(path: Path) -> JobError:
    remedy = "let sacct list more, such as earlier jobs with -S 2026-01-01"
    return JobError("has no rows under its header", file=str(path), remedy=remedy)


def _without_comments(data: bytes) -> bytes:
    """The same text with empty lines in the place of comments before the header."""
    begin = 0
    for line in data.splitlines(keepends=True) if data.lstrip().startswith(COMMENT.encode()) else ():
        if is_content(line.decode()):
            break
        begin += len(line)
    return b"\n" * len(data[:begin].splitlines()) + data[begin:]


def _by_columns(path: Path, data: bytes, separator: str, names: Sequence[str]) -> RawTable:
    """Splits unquoted text: a line is a row, and every separator separates."""
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    if not data.endswith(b"\n"):
        data += b"\n"
    header_line, begin = 0, 0
    if not names:
        header_line, begin, header = _header(data)
        names = _names(path, header_line, header.split(separator))
    layout = lay_out(data, begin, separator)
    blank = layout.blank(data)
    wrong = ~blank & (layout.cells != len(names))
    keep = ~(blank | wrong)
    # Usually there is nothing to remove, and a large file need not be copied.
    whole = bool(keep.all())
    cells = _split(data if whole else only(data, layout, keep), separator, names, header_line if whole else 0)
    if layout.padded or not data.isascii():
        cells = cells.select(_stripped())
    lines = pl.Series(LINE, np.flatnonzero(keep) + header_line + 1, dtype=pl.Int64)
    cells = _not_empty(cells.with_columns(lines))
    faults = [
        _ragged(index + header_line + 1, int(layout.cells[index]), names, separator)
        for index in np.flatnonzero(wrong)[:FAULTS_LISTED_MAX].tolist()
    ]
    return RawTable(path, header_line, cells, tuple(faults), int(wrong.sum()))


def _header(data: bytes) -> tuple[int, int, str]:
    """The first line that is not blank: its number, the start of the next line, and its text."""
    line, begin = 0, 0
    while begin < len(data):
        end = data.index(b"\n", begin)
        line, text, begin = line + 1, data[begin:end].decode(), end + 1
        if text.strip():
            return line, begin, text
    return line, begin, ""


def _names(path: Path, line: int, cells: list[str]) -> list[str]:
    names = [cell.strip() or f"column {number}" for number, cell in enumerate(cells, start=1)]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise JobError(
                "is a column twice", file=str(path), line=line, field=printable(name), remedy="keep one of them"
            )
    # Lines are counted here, so a column of that name would conflict.
    return [name if name != LINE else "line of the file" for name in names]


def _split(data: bytes, separator: str, names: Sequence[str], skip_lines: int) -> pl.DataFrame:
    schema = {name: pl.String() for name in names}
    if data.count(b"\n", 0, LINE_BYTES_MAX) <= skip_lines:
        return pl.DataFrame(schema=schema)
    return pl.read_csv(
        data, separator=separator, has_header=False, quote_char=None, schema=schema, skip_lines=skip_lines
    )


def _not_empty(cells: pl.DataFrame) -> pl.DataFrame:
    """The rows with anything in any cell: spreadsheets export blank rows with their separators."""
    return cells.filter(~pl.all_horizontal(pl.all().exclude(LINE).is_null()))


def _stripped() -> pl.Expr:
    stripped = pl.all().str.strip_chars()
    return pl.when(stripped != "").then(stripped)


def _ragged(line: int, count: int, names: Sequence[str], separator: str) -> Fault:
    mark = {",": "commas", "\t": "tabs"}.get(separator, separator)
    problem = f"{count} cells under {len(names)} columns"
    if count > len(names):
        return Fault(line, names[-1], problem, f"put a cell that has {mark} in quotes")
    return Fault(line, names[count], problem, "give each column a cell, if an empty one")


def _row_by_row(path: Path, data: bytes, separator: str) -> RawTable:
    reader = csv.reader(io.StringIO(data.decode(), newline=""), delimiter=separator, strict=True)
    line, header_line, count = 1, 0, 0
    names: list[str] = []
    rows: list[list[str]] = []
    lines: list[int] = []
    faults: list[Fault] = []
    try:
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                pass  # a blank row
            elif not names:
                header_line, names = line, _names(path, line, cells)
            elif len(cells) != len(names):
                count += 1
                if count <= FAULTS_LISTED_MAX:
                    faults.append(_ragged(line, len(cells), names, separator))
            else:
                rows.append(cells)
                lines.append(line)
            line = reader.line_num + 1  # a quoted cell may span several lines
    except csv.Error as error:
        raise JobError(f"not CSV: {error}", file=str(path), line=line, remedy="fix the quotes of this row") from None
    table = pl.DataFrame(rows, schema={name: pl.String() for name in names}, orient="row").select(_stripped())
    return RawTable(path, header_line, table.with_columns(pl.Series(LINE, lines, pl.Int64)), tuple(faults), count)


def _parquet(path: Path) -> RawTable:
    """A Parquet file as text, so that cell formats are defined once; row numbers stand in for lines."""
    try:
        table = pl.read_parquet(path)
        names = dict(zip(table.columns, _names(path, 0, table.columns), strict=True))
        strange = {names[name]: str(kind) for name, kind in table.schema.items() if _is_strange(kind)}
        cells = table.rename(names).drop(list(strange)).select(pl.all().cast(pl.String))
    except (OSError, pl.exceptions.PolarsError) as error:
        problem = str(error).strip().partition("\n")[0]
        raise InputError(f"not Parquet: {problem}", file=str(path), remedy="fetch or copy the file again") from None
    if table.is_empty():
        raise no_jobs(str(path))
    lines = pl.Series(LINE, np.arange(1, len(table) + 1), dtype=pl.Int64)
    return RawTable(path, 0, cells.select(_stripped()).with_columns(lines), strange=strange)


def _is_strange(kind: pl.DataType) -> bool:
    return kind.is_nested() or kind in (pl.Binary, pl.Duration, pl.Time, pl.Object)


# The layout of text: positions of lines and their numbers of cells, for files of a million lines

_BLOCK_BYTES = 1 << 22  # arrays of the size of the file would be slow to fill
_NEWLINE, _SPACE = 10, 32

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class LineLayout:
    begins: Ints
    ends: Ints
    cells: Ints  # of each line
    padded: bool  # whether a cell may have spaces around it

    def blank(self, data: bytes) -> npt.NDArray[np.bool_]:
        """By line: whether there is nothing on it, or nothing but separators or spaces."""
        blank = self.ends - self.begins == self.cells - 1
        if self.padded:
            for line in np.flatnonzero((self.cells == 1) & ~blank).tolist():
                blank[line] = not data[self.begins[line] : self.ends[line]].strip()
        return blank


def lay_out(data: bytes, begin: int, separator: str) -> LineLayout:
    """The layout of all lines from this byte on; the last one must end with a newline."""
    mark, first = ord(separator), begin
    ends: list[Ints] = [np.empty(0, dtype=np.int64)]
    cells: list[Ints] = [np.empty(0, dtype=np.int64)]
    padded = False
    while begin < len(data):
        end = data.rfind(b"\n", begin, begin + _BLOCK_BYTES) + 1
        block = np.frombuffer(data, dtype=np.uint8, count=end - begin, offset=begin)
        newlines = np.flatnonzero(block == _NEWLINE)
        separators = np.flatnonzero(block == mark)
        ends.append(newlines + begin)
        cells.append(np.diff(np.searchsorted(separators, newlines), prepend=0) + 1)
        padded = padded or _is_padded(block, mark)
        begin = end
    line_ends = np.concatenate(ends)
    begins = np.concatenate([np.array([first] if len(line_ends) else [], dtype=np.int64), line_ends[:-1] + 1])
    return LineLayout(begins, line_ends, np.concatenate(cells), padded)


def _is_padded(block: Bytes, mark: int) -> bool:
    """Whether whitespace is next to a separator or at either end of a line."""
    spaces = np.flatnonzero((block <= _SPACE) & (block != _NEWLINE) & (block != mark))
    if not len(spaces):
        return False
    before = block[np.maximum(spaces - 1, 0)]
    after = block[spaces + 1]  # the last byte of a block ends a line
    beside = (before == mark) | (before == _NEWLINE) | (after == mark) | (after == _NEWLINE) | (spaces == 0)
    return bool(beside.any())


def only(data: bytes, layout: LineLayout, keep: npt.NDArray[np.bool_]) -> bytes:
    """The text without the lines that are not kept."""
    edges = np.diff(np.concatenate([[False], keep, [False]]).astype(np.int8))
    starts, stops = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1) - 1
    return b"".join(
        data[layout.begins[start] : layout.ends[stop] + 1] for start, stop in zip(starts, stops, strict=True)
    )
