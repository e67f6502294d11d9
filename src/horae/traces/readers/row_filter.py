"""Parses columns of text as numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

import polars as pl

from horae.model.safe_text import quoted as quoted_text
from horae.traces.readers.raw_table import LINE, RawTable
from horae.traces.trace import FAULTS_LISTED_MAX, SCHEMA, Fault, Trace


def whole(text: pl.Expr) -> pl.Expr:
    """Whole numbers, including those written as fractions (`4.0`, `1e3`); null for other text."""
    number = text.cast(pl.Float64, strict=False)
    as_fraction = pl.when(number == number.floor()).then(number).cast(pl.Int64, strict=False)
    return pl.coalesce(text.cast(pl.Int64, strict=False), as_fraction)


# Filters the rows of a file on their way to jobs; each dropped row is counted, and the first ones are listed

EPOCH_SECONDS_MIN = 3e8  # 1979: larger numbers are calendar times
ROW = "row-"  # prefix of a row's number, where another job has that number as its name
_NUMBER = "number of the row"
NO_GPU, NEVER_RAN, NO_TIME = "asks for no GPU", "never ran", "ran for no time"


def quoted(text: pl.Expr) -> pl.Expr:
    """A value as shown in messages about a row; slow, so only for those."""
    return text.map_elements(quoted_text, return_dtype=pl.String)


def is_text(text: pl.Expr) -> pl.Expr:
    return pl.format("is {}", quoted(text))


class Sieve:
    def __init__(self, raw: RawTable) -> None:
        self.source = str(raw.path)
        self.table = raw.cells.with_row_index(_NUMBER, offset=1)
        self._foreign = set(raw.columns)  # their names may coincide with fields of ours
        self._faults = list(raw.faults)
        self._fault_count = raw.fault_count
        self._left_out: dict[str, int] = {}
        self._left_out_gpu_hours: dict[str, float] = {}
        self._changed: dict[str, int] = {}

    def add(self, *columns: pl.Expr | pl.Series) -> None:
        self.table = self.table.with_columns(*columns)
        self.own(*(item.name if isinstance(item, pl.Series) else item.meta.output_name() for item in columns))

    def own(self, *names: str) -> None:
        """Declares that these columns now have the meaning of Horae's own format."""
        self._foreign -= set(names)

    def fault(self, wrong: pl.Expr, field: str, problem: pl.Expr | str, remedy: str) -> None:
        """Drops rows that cannot be jobs, as faults."""
        dropped = self._drop(wrong)
        if dropped is not None:
            said = pl.lit(problem) if isinstance(problem, str) else problem
            listed = dropped.head(FAULTS_LISTED_MAX).select(LINE, said.alias("problem"))
            self.faults((Fault(line, field, text, remedy) for line, text in listed.iter_rows()), len(dropped))

    def faults(self, faults: Iterable[Fault], count: int) -> None:
        """Counts faulty rows that are no longer in the table."""
        self._faults.extend(faults)
        self._fault_count += count

    def leave_out(self, rows: pl.Expr, reason: str, gpu_seconds: pl.Expr | None = None) -> None:
        """Drops rows that are valid but not jobs for Horae, and adds up what they have used, where that is known."""
        dropped = self._drop(rows)
        if dropped is not None:
            self._left_out[reason] = self._left_out.get(reason, 0) + len(dropped)
            if gpu_seconds is not None:
                hours = float(dropped.select(gpu_seconds.sum()).item() or 0.0) / 3600
                self._left_out_gpu_hours[reason] = self._left_out_gpu_hours.get(reason, 0.0) + hours

    def change(self, rows: pl.Expr, reason: str) -> None:
        """Counts rows that are taken with a change."""
        count = int(self.table.select(rows.fill_null(False).sum()).item())
        if count:
            self._changed[reason] = self._changed.get(reason, 0) + count

    def trace(self, fields: Mapping[str, str], *, dated: bool = False, counted: bool = False) -> Trace:
        """The remaining rows as a trace. `fields` maps columns to the file's names, for messages.

        `dated`: times come from dates; `counted`: they are seconds since the start, however large.
        """
        self._name(fields)
        origin = "" if counted or self.table.is_empty() else self._count_from_first(dated)
        known = self._known()
        columns = [pl.col(name).cast(kind) for name, kind in SCHEMA.items() if name in known]
        table = self.table.select(columns)
        if not table["submit"].is_sorted():
            table = table.sort("submit", maintain_order=True)
        faults = tuple(sorted(self._faults)[:FAULTS_LISTED_MAX])
        return Trace(
            self.source,
            table,
            faults,
            self._fault_count,
            self._left_out,
            self._changed,
            origin,
            left_out_gpu_hours=self._left_out_gpu_hours,
        )

    def _known(self) -> set[str]:
        return set(self.table.columns) - self._foreign

    def _drop(self, rows: pl.Expr) -> pl.DataFrame | None:
        """Removes the rows for which this is true from the table, and returns them."""
        mask = self.table.select(rows.fill_null(False)).to_series()
        if not mask.any():
            return None
        dropped = self.table.filter(mask)
        self.table = self.table.filter(~mask)
        return dropped

    def _name(self, fields: Mapping[str, str]) -> None:
        """Gives each row a unique id; the row's number where the file has none."""
        number = self.table[_NUMBER].cast(pl.String)
        self.add((self._filled(number) if "id" in self._known() else number).alias("id"))
        if self.table["id"].n_unique() == len(self.table):
            return
        by_row = pl.col(_NUMBER, LINE).sort_by(_NUMBER).first().name.prefix("first ")
        first = self.table.group_by("id").agg(by_row)
        self.table = self.table.join(first, on="id", how="left", maintain_order="left")
        self.fault(
            pl.col(_NUMBER) != pl.col(f"first {_NUMBER}"),
            fields.get("id", "id"),
            pl.format("{} is taken (line {})", quoted(pl.col("id")), f"first {LINE}"),
            "give each job a name of its own",
        )

    def _filled(self, number: pl.Series) -> pl.Series:
        """The ids of the file, and where it has none the row's number, in a form that no other row has."""
        given = self.table["id"].cast(pl.String)
        if not given.null_count():
            return given
        names = number.zip_with(given.is_null(), given)
        while (taken := given.is_null() & names.is_in(given.drop_nulls().implode())).any():
            names = (ROW + names).zip_with(taken, names)
        return names

    def _count_from_first(self, dated: bool) -> str:
        """Converts calendar times to seconds since the first submission; returns the date of that."""
        first = float(self.table.select(pl.col("submit").min()).item())
        if not dated and first <= EPOCH_SECONDS_MIN:
            return ""
        names = [name for name in ("submit", "deadline", "start") if name in self._known()]
        self.add(*(pl.col(name) - first for name in names))
        return datetime.fromtimestamp(first, UTC).replace(tzinfo=None).isoformat(sep=" ")
