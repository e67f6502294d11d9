"""Tables with the column names of published data sets: `submit_s`, `num_gpu`, `duration_s`, and others.

A model with a batch size is `resnet50 (batch size 128)`, as in speed tables. Where there are both a run time and a
number of iterations, the run time counts, because it was measured. Some files hold several workloads in one table; one
must be selected.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import polars as pl

from horae.model.errors import JobError
from horae.model.safe_text import printable
from horae.traces.readers.mapped_columns import read_columns
from horae.traces.readers.raw_table import RawTable, Where, read_raw
from horae.traces.trace import Trace

# By field: its possible names, the best name first.
VOCABULARY = {
    "id": ("job_id",),
    "submit": ("submit_s", "arrival_s"),
    "gpus": ("num_gpu", "scale_factor"),
    "duration": ("duration_s",),
    "steps": ("total_steps", "iterations"),
    "tenant": ("vc", "cluster"),
    "user": ("user",),
    "model": ("job_type", "model"),
    "deadline": ("deadline_s",),
}
SELECTORS = ("seed", "set", "workload")  # columns of these names distinguish workloads
VALUES_SHOWN = 8
BATCH = "batch_size"


def read(path: Path, where: Where | None = None) -> Trace:
    return read_table(read_raw(path).where(where))


def read_table(raw: RawTable, columns: Mapping[str, str] | None = None) -> Trace:
    """The jobs of a table; `columns` names those outside the vocabulary."""
    found = {name: [column for column in names if column in raw.columns] for name, names in VOCABULARY.items()}
    mapping = {name: names[0] for name, names in found.items() if names} | dict(columns or {})
    for name in ("submit", "gpus"):
        raw.require(mapping.get(name, VOCABULARY[name][0]))
    if not {"duration", "steps"} & set(mapping):
        raise raw.header_error("duration_s", "is missing", "add a column duration_s, total_steps or iterations")
    if "duration" in mapping:
        mapping.pop("steps", None)
    check_chosen(raw)
    return read_columns(_with_batch(raw, mapping), mapping)


def check_chosen(raw: RawTable) -> None:
    columns = [raw.cells[name] for name in SELECTORS if name in raw.columns]
    values = {column.name: column.drop_nulls().unique(maintain_order=True).to_list() for column in columns}
    several = [name for name, texts in values.items() if len(texts) > 1]
    if not several:
        return
    shown = [printable(_some(values[name])) for name in several]
    if len(several) > 1:
        shown = [f"{name} {texts}" for name, texts in zip(several, shown, strict=True)]
    # Earlier selections are shown again, because the option is given as a whole.
    choice = printable(",".join(f"{name}={texts[0]}" for name, texts in values.items() if texts))
    raise JobError(
        f"holds several workloads ({'; '.join(shown)})",
        file=str(raw.path),
        field=", ".join(several),
        remedy=f"choose one: --where {choice}",
    )


def _some(values: list[str]) -> str:
    return ", ".join(values[:VALUES_SHOWN]) + (", ..." if len(values) > VALUES_SHOWN else "")


def _with_batch(raw: RawTable, mapping: dict[str, str]) -> RawTable:
    if mapping.get("model") != "model" or BATCH not in raw.columns:
        return raw
    named = pl.coalesce(pl.format("{} (batch size {})", "model", BATCH), "model").alias("model")
    return replace(raw, cells=raw.cells.with_columns(named))
