"""The fractions of their speeds that two jobs on the same GPUs keep:
a CSV file with one row per pair of models, GPU type and gang."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import NamedTuple

from horae.model.errors import InputError
from horae.model.safe_text import quoted
from horae.model.speeds import Measurement, PairMeasurement, Sharing
from horae.traces.readers.text_file import read_bytes

COLUMNS = ("model_a", "model_b", "gpu", "gpus", "kept_a", "kept_b")
GPUS_MAX = 1_000_000
KEPT_MAX = 2.0  # a measurement may be a little above 1; a percentage is a mistake


class _Row(NamedTuple):
    path: Path
    line: int
    cells: Mapping[str, str]

    def wrong(self, field: str, remedy: str, problem: str = "") -> InputError:
        said = problem or (f"is {quoted(self.cells[field])}" if self.cells[field] else "is empty")
        return InputError(said, file=str(self.path), line=self.line, field=field, remedy=remedy)

    def name(self, field: str) -> str:
        if not self.cells[field]:
            raise self.wrong(field, "give a name")
        return self.cells[field]

    def gpus(self, field: str) -> int:
        text = self.cells[field]
        number = int(text) if text.isascii() and text.isdigit() and len(text) <= len(str(GPUS_MAX)) else 0
        if not 1 <= number <= GPUS_MAX:
            raise self.wrong(field, f"give a whole number from 1 to {GPUS_MAX}")
        return number

    def part(self, field: str) -> float:
        try:
            value = float(self.cells[field])
        except ValueError:
            value = -1.0
        if not (isfinite(value) and 0 <= value <= KEPT_MAX):
            raise self.wrong(field, "give the part of its speed that it keeps, as 0.85; 0: the two do not fit")
        return value

    def sharing(self) -> Sharing:
        kept = self.part("kept_a"), self.part("kept_b")
        models = self.name("model_a"), self.name("model_b")
        if models[0] == models[1] and kept[0] != kept[1]:
            raise self.wrong("kept_b", f"two jobs of one model keep the same: give {self.cells['kept_a']}")
        return Sharing(models, self.name("gpu"), self.gpus("gpus"), kept)


def read_sharing(path: Path) -> tuple[Sharing, ...]:
    """Reads all rows; each pair counts once, in either order."""
    found: dict[tuple[frozenset[str], str, int], tuple[int, Sharing]] = {}
    for row in _rows(path):
        sharing = row.sharing()
        key = frozenset(sharing.models), sharing.accelerator.casefold(), sharing.gpus
        if key in found:
            raise row.wrong(
                "model_b", "give each pair once, in either order", f"the pair is on line {found[key][0]} too"
            )
        found[key] = row.line, sharing
    return tuple(sharing for _, sharing in found.values())


def on_types(rows: Iterable[Sharing], accelerators: Sequence[str], path: Path) -> tuple[Sharing, ...]:
    """The rows about these GPU types, compared case-insensitively."""
    spelling = {name.casefold(): name for name in reversed(accelerators)}
    here = [(spelling.get(row.accelerator.casefold()), row) for row in rows]
    if not here:
        remedy = "give a row for each two models that may share GPUs"
        raise InputError("has no pairs", file=str(path), remedy=remedy)
    found = tuple(row._replace(accelerator=name) for name, row in here if name is not None)
    if not found:
        known = ", ".join(accelerators)
        raise InputError("has no row for a GPU type of the cluster", file=str(path), field="gpu", remedy=f"use {known}")
    return found


def _rows(path: Path) -> Iterator[_Row]:
    lines = csv.reader(io.StringIO(read_bytes(path).decode(), newline=""), skipinitialspace=True, strict=True)
    header: list[str] = []
    try:
        for cells in lines:
            stripped = [cell.strip() for cell in cells]
            if not any(stripped):
                continue
            if not header:
                header = stripped
                _check_header(path, header, lines.line_num)
                continue
            if len(stripped) != len(header):
                problem = f"has {len(stripped)} cells under {len(header)} columns"
                raise InputError(problem, file=str(path), line=lines.line_num, remedy="give one cell for each column")
            yield _Row(path, lines.line_num, dict(zip(header, stripped, strict=True)))
    except csv.Error as error:
        raise InputError(f"not CSV: {error}", file=str(path), line=lines.line_num, remedy="fix it") from None
    if not header:
        raise InputError("is empty", file=str(path), remedy=f"give the columns {', '.join(COLUMNS)}")


def _check_header(path: Path, header: list[str], line: int) -> None:
    for column in COLUMNS:
        if header.count(column) != 1:
            problem = "is missing" if column not in header else "is there twice"
            remedy = f"give the columns {', '.join(COLUMNS)}"
            raise InputError(problem, file=str(path), line=line, field=column, remedy=remedy)


def sharing_rows(pairs: Iterable[PairMeasurement], measurements: Iterable[Measurement]) -> tuple[Sharing, ...]:
    """The fraction of its speed alone that each of two keeps; a pair measured in both orders counts once."""
    alone = {(row.model, row.shape): row.steps_per_second for row in measurements if row.steps_per_second > 0}
    found: dict[tuple[frozenset[str], str, int], Sharing] = {}
    for pair in pairs:
        key = (frozenset(pair.models), pair.shape.accelerator, pair.shape.gpus)
        speeds = [alone.get((model, pair.shape)) for model in pair.models]
        if key in found or None in speeds:
            continue  # a job that does not run alone does not run with a partner either
        kept = [
            0.0 if speed is None else both / speed for both, speed in zip(pair.steps_per_second, speeds, strict=True)
        ]
        fits = all(part > 0 for part in kept)
        found[key] = Sharing(pair.models, *pair.shape[:2], (kept[0], kept[1]) if fits else (0.0, 0.0))
    return tuple(found.values())
