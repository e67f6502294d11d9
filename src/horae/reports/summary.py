"""A run in a few numbers, each defined here."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from horae.model.arrays import Floats
from horae.reports.records import Recorder


@dataclass(frozen=True, slots=True)
class Summary:
    """Of the jobs that finished; seconds."""

    jobs: int
    finished: int
    refused: int  # those that can never run
    completion_mean_seconds: float  # from submission to end
    completion_median_seconds: float
    completion_p99_seconds: float
    queueing_mean_seconds: float  # from submission to first start
    makespan_seconds: float  # from the first submission to the last end, of all jobs
    utilisation: float  # GPU-seconds held / (GPUs x makespan)
    restarts: int  # starts beyond the first


def summarise(recorder: Recorder, gpu_count: int, refused: int = 0) -> Summary:
    records = recorder.records()
    submitted = recorder.column("submitted_at")
    completion = recorder.column("ended_at") - submitted
    queueing = recorder.column("started_at") - submitted
    first = min((record.submitted_at for record in records), default=0.0)
    last = max((record.ended_at for record in records), default=0.0)
    makespan = last - first
    held = sum(record.gpu_seconds for record in records)
    return Summary(
        jobs=len(records) + len(recorder.live),
        finished=len(completion),
        refused=refused,
        completion_mean_seconds=_mean(completion),
        completion_median_seconds=_quantile(completion, 0.5),
        completion_p99_seconds=_quantile(completion, 0.99),
        queueing_mean_seconds=_mean(queueing),
        makespan_seconds=makespan,
        utilisation=held / (gpu_count * makespan) if makespan else 0.0,
        restarts=sum(max(record.starts - 1, 0) for record in records),
    )


def _mean(values: Floats) -> float:
    return float(values.mean()) if len(values) else float("nan")


def _quantile(values: Floats, at: float) -> float:
    return float(np.quantile(values, at)) if len(values) else float("nan")
