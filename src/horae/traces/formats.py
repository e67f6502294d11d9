"""Reads any supported workload file, detecting its format from its content."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import NamedTuple

import polars as pl

from horae.model.errors import InputError
from horae.model.safe_text import printable
from horae.traces.readers import gavel, helios, mapped_columns, native, openb, philly, published_table, slurm
from horae.traces.readers.raw_table import LINE, Where
from horae.traces.readers.text_file import PARQUET, check_head, header_of, read_head
from horae.traces.trace import Trace, no_jobs, too_large

ENTRY_POINTS = "horae.trace_formats"
Reader = Callable[[Path, Where | None], Trace]


class TraceFormat(NamedTuple):
    """How a file format is detected and read.

    Other packages add formats through the entry point `horae.trace_formats`.
    """

    read: Reader
    separator: str  # between the column names; "" where there are none
    columns: tuple[frozenset[str], ...]  # any of these sets of columns identifies the format, in any case
    summary: str


# In the order in which they are tried.
FORMATS: Mapping[str, TraceFormat] = {
    "horae": TraceFormat(native.read, ",", (frozenset({"submit", "gpus"}),), "our own: CSV, YAML or Parquet"),
    "slurm": TraceFormat(slurm.read, "|", (frozenset({"jobid"}),), "sacct -a -X -P"),
    "philly": TraceFormat(philly.read, "", (), "cluster_job_log of Microsoft's Philly (JSON)"),
    "helios": TraceFormat(
        helios.read, ",", (frozenset({"gpu_num", "submit_time"}),), "cluster_log.csv of SenseTime's Helios"
    ),
    "openb": TraceFormat(
        openb.read, ",", (frozenset({"num_gpu", "gpu_milli"}),), "pods of Alibaba's cluster-trace-gpu-v2023"
    ),
    "gavel": TraceFormat(gavel.read, "", (), ".trace of Gavel: ten fields with tabs between them"),
    "shockwave": TraceFormat(gavel.read_shockwave, "", (), ".trace of Shockwave: twelve fields with tabs between them"),
    "table": TraceFormat(
        published_table.read,
        ",",
        (frozenset({"submit_s", "num_gpu"}), frozenset({"arrival_s", "scale_factor"})),
        "published data: submit_s, num_gpu, duration_s",
    ),
}


def known_formats() -> Mapping[str, TraceFormat]:
    """The built-in formats, and those of other packages."""
    return {**FORMATS, **_installed_formats()}


@cache
def _installed_formats() -> Mapping[str, TraceFormat]:
    points = sorted(entry_points(group=ENTRY_POINTS), key=lambda point: point.name)
    found = {point.name: _loaded(point) for point in points if point.name not in FORMATS}
    return {name: known for name, known in found.items() if known is not None}


def _loaded(point: EntryPoint) -> TraceFormat | None:
    """A format of another package; None if it cannot be used, which must not keep other files from being read."""
    try:
        known = point.load()
    except (Exception, SystemExit):  # a foreign module may raise anything when it is imported
        return None
    return known if isinstance(known, TraceFormat) else None


def read_trace(
    path: Path,
    format: str | None = None,
    mapping: Mapping[str, str] | None = None,
    where: Where | None = None,
) -> Trace:
    """Reads the workload of a file.

    A mapping names its columns explicitly; an explicit format is not checked against the file.
    """
    if format is not None and format not in known_formats():
        raise InputError(f"there is no format {format!r}", field="format", remedy=f"use {', '.join(known_formats())}")
    try:
        if mapping is not None:
            return mapped_columns.read(path, mapping, where)
        return known_formats()[format or detect(path)].read(path, where)
    except MemoryError:
        raise too_large(str(path)) from None


def parse_mapping(text: str) -> dict[str, str]:
    """`submit=SubmitTime,gpus=n_gpu` as a mapping."""
    mapping: dict[str, str] = {}
    for part in filter(str.strip, text.split(",")):
        name, equals, column = (word.strip() for word in part.partition("="))
        if not (name and equals and column):
            raise InputError(f"{part.strip()!r} names no column", field="map", remedy="write submit=COLUMN,gpus=COLUMN")
        if name in mapping:
            raise InputError(f"{name!r} is given twice", field="map", remedy="give it once")
        mapping[name] = column
    return mapping


def detect(path: Path) -> str:
    """The name of the format; raises an error that shows the file's columns where it is unknown."""
    head = read_head(path)
    if path.suffix in native.YAML:
        return "horae"
    if head.startswith(PARQUET):
        return _by_columns(path, _parquet_columns(path), ",")
    check_head(path, head)
    header = header_of(head)
    if not header:
        raise no_jobs(str(path))
    if header.lstrip().startswith("["):
        return "philly"
    for name, fields in (("gavel", gavel.FIELDS), ("shockwave", gavel.SHOCKWAVE_FIELDS)):
        if header.count("\t") == len(fields) - 1:
            return name
    separator = "|" if "|" in header else ","
    marks = native.separated_by(header)
    if marks and separator == ",":
        raise InputError(
            f"has {marks} between its cells", file=str(path), line=1, remedy=f"put commas there, or {native.MAP}"
        )
    return _by_columns(path, [cell.strip().strip('"') for cell in header.split(separator)], separator)


def _parquet_columns(path: Path) -> list[str]:
    try:
        return list(pl.read_parquet_schema(path))
    except (OSError, pl.exceptions.PolarsError) as error:
        problem = str(error).strip().partition("\n")[0]
        raise InputError(f"not Parquet: {problem}", file=str(path), remedy="fetch or copy the file again") from None


def _by_columns(path: Path, header: list[str], separator: str) -> str:
    found = {name.lower() for name in header}
    for name, known in (*_installed_formats().items(), *FORMATS.items()):  # installed ones may be more specific
        if known.separator == separator and any(columns <= found for columns in known.columns):
            return name
    if found & {"submit", "gpus"}:
        return "horae"  # which says what is missing
    shown = printable(", ".join(header[:12])[:200]) + (", ..." if len(header) > 12 else "")
    raise InputError(
        f"is of no format that is known; its columns are {shown}",
        file=str(path),
        remedy=f"name them with --map submit=...,gpus=...,duration=..., or use --format {'|'.join(known_formats())}",
    )


# Writing a trace in Horae's own format; the same trace gives the same bytes

SUFFIXES = (".csv", ".csv.gz", ".parquet")


def write_trace(trace: Trace, path: Path) -> None:
    """Writes CSV, compressed or not, or Parquet, by the extension of the file name."""
    table = trace.table.drop(LINE, strict=False)
    if not path.name.endswith(SUFFIXES):
        raise InputError("ends in none of the names that can be written", file=str(path), remedy=_remedy())
    try:
        if path.suffix == ".parquet":
            table.write_parquet(path)
        else:
            data = _csv(table)
            path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
    except OSError as error:
        problem = str(error.strerror or error)
        raise InputError(problem, file=str(path), remedy="name a file that can be written") from None


def _csv(table: pl.DataFrame) -> bytes:
    return table.write_csv(line_terminator="\n").encode()


def _remedy() -> str:
    return f"name a file that ends in {', '.join(SUFFIXES)}"
