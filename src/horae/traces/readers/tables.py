"""Tables in the vocabulary of published data sets: `submit_s`, `num_gpu`, `duration_s`, and what else there may be.

A model with a batch size is `resnet50 (batch size 128)`, as speed tables call it. Where there are both a run time and
a number of iterations, the run time counts, for that is what was measured. Some files hold several workloads, one
beside the other; one must be chosen.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from horae.model.errors import JobError
from horae.traces.readers.mapped import read_columns
from horae.traces.readers.raw import RawTable, Where, read_raw
from horae.traces.trace import Trace

# By field: what it may be called, the best name first.
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
SELECTORS = ("seed", "set", "workload")  # a column of these names tells workloads apart
BATCH = "batch_size"


def read(path: Path, where: Where | None = None) -> Trace:
    raw = read_raw(path).where(where)
    found = {name: [column for column in columns if column in raw.columns] for name, columns in VOCABULARY.items()}
    mapping = {name: columns[0] for name, columns in found.items() if columns}
    for name in ("submit", "gpus"):
        raw.require(mapping.get(name, VOCABULARY[name][0]))
    if "duration" not in mapping and "steps" not in mapping:
        raise raw.header_error("duration_s", *_no_run_times(raw))
    if "duration" in mapping:
        mapping.pop("steps", None)
    _check_chosen(raw)
    return read_columns(_with_batch(raw, mapping), mapping)


def _no_run_times(raw: RawTable) -> tuple[str, str]:
    if set(SELECTORS[1:]) <= set(raw.columns):
        problem = "pollux workloads have no run times"
        return problem, "they are derived from profiles, which is not supported yet"
    return "is missing", "add a column duration_s, total_steps or iterations"


def _check_chosen(raw: RawTable) -> None:
    for name in SELECTORS:
        if name in raw.columns:
            values = raw.cells[name].drop_nulls().unique(maintain_order=True)
            if len(values) > 1:
                some = ", ".join(values.head(5))
                raise JobError(
                    f"holds several workloads ({some}{', ...' if len(values) > 5 else ''})",
                    file=str(raw.path),
                    field=name,
                    remedy=f"choose one: --where {name}={values[0]}",
                )


def _with_batch(raw: RawTable, mapping: dict[str, str]) -> RawTable:
    if mapping.get("model") != "model" or BATCH not in raw.columns:
        return raw
    named = pl.coalesce(pl.format("{} (batch size {})", "model", BATCH), "model").alias("model")
    return RawTable(raw.path, raw.header_line, raw.cells.with_columns(named), raw.faults, raw.fault_count)
