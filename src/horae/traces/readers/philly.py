"""Philly (Jeon et al., ATC'19), `cluster_job_log`: one JSON list, one entry per job, one list of servers per attempt.

A job with several attempts ran for the sum of its attempts and has the GPUs of the last. Attempts without a start or an
end have no known length, and do not count.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import polars as pl

from horae.model.errors import InputError, JobError
from horae.model.safe_text import shown
from horae.traces.readers.raw_table import LINE, RawTable, Where
from horae.traces.readers.row_filter import NEVER_RAN, NO_GPU, NO_TIME, Sieve
from horae.traces.readers.text_file import read_bytes
from horae.traces.readers.timestamps import REMEDY, UNKNOWN, moment
from horae.traces.trace import FAULTS_LISTED_MAX, Fault, Trace, no_jobs

RETRIED = "was tried several times: taken as one run"
INCOMPLETE = "has attempts without a start or an end: these are not counted"
SCHEMA = {
    "id": pl.String(),
    "tenant": pl.String(),
    "user": pl.String(),
    "submit": pl.Float64(),
    "gpus": pl.Int64(),
    "duration": pl.Float64(),
    "attempts": pl.Int64(),
    "incomplete": pl.Int64(),
    LINE: pl.Int64(),
}


def read(path: Path, where: Where | None = None) -> Trace:
    entries = list(_entries(path))
    if not entries:
        raise no_jobs(str(path))
    lines = [line for line, _ in entries]
    if len(set(lines)) < len(lines):
        lines = list(range(1, len(lines) + 1))  # several jobs on one line cannot be told apart by line
    rows: list[dict[str, object]] = []
    faults: list[Fault] = []
    for line, (_, entry) in zip(lines, entries, strict=True):
        try:
            if not where or (
                isinstance(entry, dict) and all(str(entry.get(key)) == text for key, text in where.items())
            ):
                rows.append({**_row(entry), LINE: line})
        except JobError as error:
            faults.append(Fault(line, error.field, error.problem, error.remedy))
    cells = pl.DataFrame(rows, schema=SCHEMA)
    sieve = Sieve(RawTable(path, 0, cells, tuple(faults[:FAULTS_LISTED_MAX]), len(faults)))
    sieve.own(*SCHEMA)
    sieve.leave_out(pl.col("attempts") == 0, NEVER_RAN)
    sieve.leave_out(pl.col("gpus") == 0, NO_GPU)
    sieve.leave_out(pl.col("duration") == 0, NO_TIME)
    sieve.change(pl.col("attempts") > 1, RETRIED)
    sieve.change(pl.col("incomplete") > 0, INCOMPLETE)
    return sieve.trace({"id": "jobid"}, dated=True)


def _entries(path: Path) -> Iterator[tuple[int, object]]:
    """The entries of the list, each with the line on which it begins."""
    text = read_bytes(path, line_bytes_max=None).decode()
    decoder = json.JSONDecoder()
    position, line, counted = _skip(text, 0), 1, 0
    if not text.startswith("[", position):
        raise _broken(path, text, position, "it should begin with [")
    position = _skip(text, position + 1)
    while not text.startswith("]", position):
        line, counted = line + text.count("\n", counted, position), position
        try:
            entry, end = decoder.raw_decode(text, position)
        except json.JSONDecodeError as error:
            raise _broken(path, text, error.pos, error.msg) from None
        except RecursionError:
            raise _broken(path, text, position, "too many brackets inside each other") from None
        yield line, entry
        position = _skip(text, end)
        if text.startswith(",", position):
            position = _skip(text, position + 1)
        elif not text.startswith("]", position):
            raise _broken(path, text, position, "the list goes on without a comma" if text[position:] else "cut short")


def _skip(text: str, position: int) -> int:
    while text[position : position + 1] in (" ", "\n", "\r", "\t"):
        position += 1
    return position


def _broken(path: Path, text: str, position: int, problem: str) -> InputError:
    line = text.count("\n", 0, position) + 1
    return InputError(f"not JSON: {problem}", file=str(path), line=line, remedy="fetch or copy the file again")


def _row(entry: object) -> dict[str, object]:
    if not isinstance(entry, dict):
        raise JobError(f"is {shown(entry)}", field="entry", remedy="give each job as {name: value}")
    submit = _time(entry, "submitted_time")
    if submit is None:
        raise JobError("is missing", field="submitted_time", remedy=REMEDY)
    attempts = [_attempt(attempt, submit) for attempt in _list(entry, "attempts")]
    counted = [(seconds, gpus) for seconds, gpus in attempts if seconds is not None]
    return {
        "id": _name(entry),
        "tenant": _text(entry, "vc"),
        "user": _text(entry, "user"),
        "submit": submit,
        "gpus": counted[-1][1] if counted else 0,
        "duration": sum(seconds for seconds, _ in counted),
        "attempts": len(counted),
        "incomplete": len(attempts) - len(counted),
    }


def _attempt(attempt: object, submit: float) -> tuple[float | None, int]:
    """The seconds an attempt ran, if known, and its number of GPUs."""
    if not isinstance(attempt, dict):
        raise JobError(f"has {shown(attempt)}", field="attempts", remedy="give each attempt as {name: value}")
    gpus = 0
    for server in _list(attempt, "detail"):
        if not isinstance(server, dict):
            raise JobError(f"has {shown(server)}", field="detail", remedy="give each server as {name: value}")
        gpus += len(_list(server, "gpus"))
    start, end = _time(attempt, "start_time"), _time(attempt, "end_time")
    if start is None or end is None:
        return None, gpus
    if start < submit:
        raise JobError(
            f"{attempt['start_time']!r} is before the submission",
            field="start_time",
            remedy="fix one of the two times",
        )
    if end < start:
        raise JobError(
            f"{attempt['end_time']!r} is before the start", field="end_time", remedy="fix one of the two times"
        )
    return end - start, gpus


def _name(entry: dict[str, object]) -> str:
    name = _text(entry, "jobid")
    if name is None:
        raise JobError("is missing", field="jobid", remedy="give each job a name of its own")
    return name


def _text(entry: dict[str, object], key: str) -> str | None:
    value = entry.get(key)
    return None if value is None else str(value).strip() or None


def _list(entry: dict[str, object], key: str) -> list[object]:
    value = entry.get(key)
    if value is None:
        return []
    if not isinstance(value, list):
        raise JobError(f"is {shown(value)}", field=key, remedy="give a list")
    return value


def _time(entry: dict[str, object], key: str) -> float | None:
    value = entry.get(key)
    if value is None or value in UNKNOWN or value == "":
        return None
    seconds = moment(value) if isinstance(value, str) else None
    if seconds is None:
        raise JobError(f"is {shown(value)}", field=key, remedy=REMEDY)
    return seconds
