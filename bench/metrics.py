"""`python -m bench.metrics`: how long the metrics and bounds of a million jobs take, the fastest of three."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from horae.reports.bounds import bounds
from horae.reports.metrics import measure
from horae.reports.run_log import ClusterLog, JobLog, LeaseLog, RunLog

USERS, TENANTS, NODES, NODE_GPUS = 500, 12, 144, 8
PREEMPTED_SHARE = 0.1


def synthetic_log(jobs: int, seed: int = 0) -> RunLog:
    """A log of the right form, though of no schedule that could be: GPUs are drawn at random."""
    random = np.random.default_rng(seed)
    submitted_at = np.cumsum(random.exponential(30.0, jobs))
    started_at = submitted_at + random.exponential(600.0, jobs)
    ideal_seconds = random.lognormal(6.0, 1.5, jobs)
    gpus = random.choice([1, 2, 4, 8], jobs, p=[0.7, 0.1, 0.1, 0.1])
    preempted = random.random(jobs) < PREEMPTED_SHARE
    ended_at = started_at + ideal_seconds + np.where(preempted, 300.0, 0.0)
    job_columns = JobLog(
        id=tuple(f"job-{index}" for index in range(jobs)),
        user=random.integers(USERS, size=jobs),
        tenant=random.integers(TENANTS, size=jobs),
        app=np.where(random.random(jobs) < 0.5, random.integers(jobs // 20, size=jobs), -1),
        model=np.zeros(jobs, dtype=np.int64),
        pool=np.zeros(jobs, dtype=np.int64),
        gpus=gpus,
        outcome=(random.random(jobs) < 0.05).astype(np.int64),
        submitted_at=submitted_at,
        started_at=started_at,
        ended_at=ended_at,
        deadline_at=np.where(random.random(jobs) < 0.2, submitted_at + 1e4, np.inf),
        ideal_seconds=ideal_seconds,
        fastest_seconds=ideal_seconds / 2,
        least_gpu_seconds=np.stack([ideal_seconds * gpus, ideal_seconds * gpus / 2], axis=1),
    )
    names = {"users": USERS, "tenants": TENANTS, "apps": jobs // 20, "models": 1}
    return RunLog(
        jobs=job_columns,
        leases=_leases(job_columns, preempted, random),
        cluster=_cluster(),
        until=float(ended_at.max()),
        **{kind: tuple(f"{kind}-{index}" for index in range(count)) for kind, count in names.items()},  # type: ignore[arg-type]
    )


def _leases(jobs: JobLog, preempted: np.ndarray, random: np.random.Generator) -> LeaseLog:
    """One a job, and two where it was preempted half way."""
    twice = np.flatnonzero(preempted)
    middle = (jobs.started_at + jobs.ended_at)[twice] / 2
    job = np.concatenate((np.arange(len(jobs)), twice))
    started_at, ended_at = jobs.started_at[job], jobs.ended_at[job]
    ended_at[twice], started_at[len(jobs) :] = middle - 150, middle + 150
    restart_seconds = np.where(np.arange(len(job)) < len(jobs), 0.0, 45.0)
    ending = np.where((np.arange(len(job)) < len(jobs)) & preempted[job], 2, 0)
    count = jobs.gpus[job]
    offset = np.concatenate(([0], np.cumsum(count)))
    first = random.integers(NODES * NODE_GPUS // 8, size=len(job)) * 8
    gpu = np.repeat(first, count) + np.arange(offset[-1]) - np.repeat(offset[:-1], count)
    accelerator = (first >= NODES * NODE_GPUS // 2).astype(np.int64)
    alone = np.zeros(len(job))
    return LeaseLog(job, accelerator, started_at, ended_at, restart_seconds, alone, ending, offset, gpu)


def _cluster() -> ClusterLog:
    gpu = np.arange(NODES * NODE_GPUS)
    half = (gpu >= len(gpu) // 2).astype(np.int64)
    price_per_hour = np.where(half, 1.0, 2.0)
    counts = np.bincount(half, minlength=2)[None, :]
    node, pool, borrows = gpu // NODE_GPUS, np.zeros_like(gpu), np.zeros(1, dtype=bool)
    return ClusterLog(("A100", "V100"), ("all",), half, node, pool, price_per_hour, counts, borrows)


def main(jobs: int) -> None:
    log = synthetic_log(jobs)
    print(f"{len(log.jobs):,} jobs, {len(log.leases):,} leases")
    print(f"metrics: {_fastest(lambda: measure(_fresh(log))):.2f} s, wanted under 2 s")
    print(f"bounds: {_fastest(lambda: bounds(_fresh(log))):.2f} s")
    with TemporaryDirectory() as folder:
        path = Path(folder) / "log.npz"
        print(f"save: {_fastest(lambda: log.save(path)):.2f} s, {path.stat().st_size / 2**20:.0f} MiB")
        print(f"load: {_fastest(lambda: RunLog.load(path)):.2f} s")


def _fresh(log: RunLog) -> RunLog:
    """The same log without what it has worked out already."""
    leases = LeaseLog(**{name: getattr(log.leases, name) for name in LeaseLog.__dataclass_fields__})
    return RunLog(log.jobs, leases, log.cluster, log.users, log.tenants, log.apps, log.models, log.until)


def _fastest(work: Callable[[], object]) -> float:
    seconds = []
    for _ in range(3):
        started = time.process_time()
        work()
        seconds.append(time.process_time() - started)
    return min(seconds)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
