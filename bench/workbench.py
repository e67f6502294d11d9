"""The workbench: reading a million rows, measuring a million jobs, comparing eight policies, in seconds of the wall."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from horae_evaluation.philly.data import philly_jobs

from bench.cases import Result, data_folder, loop_seconds
from bench.compare import POLICIES, philly_eight_policies
from bench.metrics import synthetic_log
from bench.sacct import write_sacct
from horae.reports.bounds import bounds
from horae.reports.metrics import measure
from horae.traces.formats import read_trace

MILLION = 1_000_000


def sacct_read() -> Result:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "sacct.txt"
        write_sacct(path, MILLION, seed=0)
        return _fastest(MILLION, lambda: read_trace(path))


def metrics_of_a_million() -> Result:
    log = synthetic_log(MILLION)
    return _fastest(MILLION, lambda: measure(log))


def bounds_of_a_million() -> Result:
    log = synthetic_log(MILLION)
    return _fastest(MILLION, lambda: bounds(log))


def compare_eight_policies() -> Result:
    """Nothing from the cache, two workers; the jobs are those of all policies together."""
    data = data_folder()
    with TemporaryDirectory() as folder:
        waiting = philly_eight_policies(data, Path(folder))
    return _result(len(POLICIES) * len(philly_jobs(data)), waiting.first_seconds)


def _fastest(jobs: int, work: Callable[[], object]) -> Result:
    """Of three, for noise only adds."""
    seconds = []
    for _ in range(3):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return _result(jobs, min(seconds))


def _result(jobs: int, seconds: float) -> Result:
    who = resource.RUSAGE_SELF if jobs == MILLION else resource.RUSAGE_CHILDREN
    return Result(jobs, seconds, resource.getrusage(who).ru_maxrss / 1024, loop_seconds())
