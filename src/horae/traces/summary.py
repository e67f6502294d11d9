"""Summary statistics of a workload, before any run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from horae.model.arrays import Floats
from horae.traces.trace import Trace

QUANTILES = (0.1, 0.5, 0.9, 0.99, 1.0)


@dataclass(frozen=True)
class GangShare:
    """Gangs of one size: their share of the jobs and of the GPU-hours."""

    gpus: int
    jobs: float
    gpu_hours: float


@dataclass(frozen=True)
class TraceSummary:
    jobs: int
    span_seconds: float  # from the first submission to the last
    gpu_hours: float  # GPUs x run time, of the jobs whose run time is known
    demand_gpus: float  # GPU-hours over the span: busy GPUs on average if nothing ever waited
    jobs_per_hour: float
    run_seconds: dict[str, float]  # by quantile
    gpu_seconds: dict[str, float]  # likewise, of GPUs x run time
    unknown_run_times: int
    gangs: tuple[GangShare, ...]
    tenants: dict[str, int]  # by name: jobs, most first
    users: dict[str, int]
    models: dict[str, int]
    gpu_types: dict[str, int]


def summarise(trace: Trace) -> TraceSummary:
    table = trace.table
    seconds = run_seconds(trace)
    gpus = table["gpus"].to_numpy()
    known = np.isfinite(seconds)
    service = gpus[known] * seconds[known]
    span = float(np.ptp(table["submit"].to_numpy())) if len(table) else 0.0
    gpu_hours = float(service.sum()) / 3600
    return TraceSummary(
        jobs=len(table),
        span_seconds=span,
        gpu_hours=gpu_hours,
        demand_gpus=gpu_hours * 3600 / span if span else float("nan"),
        jobs_per_hour=len(table) / span * 3600 if span else float("nan"),
        run_seconds=_quantiles(seconds[known]),
        gpu_seconds=_quantiles(service),
        unknown_run_times=int((~known).sum()),
        gangs=_gangs(gpus, np.where(known, seconds, 0.0)),
        tenants=_names(table, "tenant"),
        users=_names(table, "user"),
        models=_names(table, "model"),
        gpu_types=_names(table, "gpu_type"),
    )


def run_seconds(trace: Trace) -> Floats:
    """Run times by job; nan where only its steps are known."""
    if "duration" not in trace.table.columns:
        return np.full(len(trace.table), np.nan)
    return trace.table["duration"].fill_null(float("nan")).to_numpy()


def _quantiles(values: Floats) -> dict[str, float]:
    if not len(values):
        return {}
    found = np.quantile(values, QUANTILES)
    names = [f"p{at:.0%}".rstrip("%") if at < 1 else "max" for at in QUANTILES]
    return {**dict(zip(names, found.tolist(), strict=True)), "mean": float(values.mean())}


def _gangs(gpus: Floats, seconds: Floats) -> tuple[GangShare, ...]:
    sizes, index = np.unique(gpus, return_inverse=True)
    jobs = np.bincount(index)
    service = np.bincount(index, gpus * seconds)
    total = max(float(service.sum()), np.finfo(float).tiny)
    return tuple(
        GangShare(int(size), float(count / len(gpus)), float(part / total))
        for size, count, part in zip(sizes, jobs, service, strict=True)
    )


def _names(table: pl.DataFrame, column: str) -> dict[str, int]:
    if column not in table.columns:
        return {}
    counts = table[column].drop_nulls().value_counts().filter(pl.col(column) != "")
    return dict(counts.sort("count", column, descending=[True, False]).iter_rows())
