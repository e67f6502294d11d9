"""A trace as a file of our own format. The same trace gives the same bytes."""

from __future__ import annotations

import gzip
from pathlib import Path

import polars as pl

from horae.model.errors import InputError
from horae.traces.readers.raw import LINE
from horae.traces.trace import Trace

SUFFIXES = (".csv", ".csv.gz", ".parquet")


def write_trace(trace: Trace, path: Path) -> None:
    """CSV, packed or not, or Parquet, as the name of the file ends."""
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
