"""The log of a run: its jobs and leases as columns. Every metric, bound and plot is a function of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from horae.model.arrays import Bools, Floats, Ints
from horae.reports import array_archive
from horae.reports.groups import sums_by

# The numbers in `JobLog.outcome` and `LeaseLog.ending` point here.
OUTCOMES = ("finished", "failed", "cancelled", "unfinished", "refused")
FINISHED, FAILED, CANCELLED, UNFINISHED, REFUSED = range(len(OUTCOMES))
ENDINGS = ("finished", "failed", "stopped", "lost", "running", "cancelled")
_STOPPED, _RUNNING = ENDINGS.index("stopped"), ENDINGS.index("running")


@dataclass(frozen=True)
class JobLog:
    """One row per job: first those that ended, in the order of their ends,
    then the others in the order of submission."""

    id: tuple[str, ...]
    user: Ints  # user, tenant, app and model are numbers in the names of the log
    tenant: Ints
    app: Ints  # -1: an app of its own
    model: Ints
    pool: Ints  # -1: no pool serves its tenant
    gpus: Ints  # of the reference shape
    outcome: Ints
    submitted_at: Floats
    started_at: Floats  # for the first time; nan: never
    ended_at: Floats  # nan: it has not
    deadline_at: Floats  # inf: none
    ideal_seconds: Floats  # of its work, alone in its reference shape; nan: unknown
    fastest_seconds: Floats  # likewise in its fastest shape
    least_gpu_seconds: Floats  # by job and GPU type: the fewest for its work; inf: it does not run there

    def __len__(self) -> int:
        return len(self.id)


@dataclass(frozen=True)
class LeaseLog:
    """One row per lease, in the order of their ends. Those that still run are last and end with the log."""

    job: Ints  # row of its job
    accelerator: Ints
    started_at: Floats
    ended_at: Floats
    restart_seconds: Floats  # needed to resume; 0 for a first start
    shared_seconds: Floats  # from its start on: beside another job on the same GPUs
    ending: Ints
    offset: Ints  # lease i has the GPUs gpu[offset[i]:offset[i + 1]]
    gpu: Ints

    def __len__(self) -> int:
        return len(self.job)

    @cached_property
    def gpus(self) -> Ints:
        return np.diff(self.offset)

    @cached_property
    def seconds(self) -> Floats:
        return self.ended_at - self.started_at

    @cached_property
    def paid_seconds(self) -> Floats:
        """Charged seconds: two jobs that share GPUs pay half each, so that all together pay for each second once."""
        return self.seconds - self.shared_seconds / 2

    @cached_property
    def gpu_seconds(self) -> Floats:
        return self.paid_seconds * self.gpus

    @cached_property
    def restart_gpu_seconds(self) -> Floats:
        """GPU-seconds lost to resuming; a lease begins with its restart and its shared time."""
        lost = np.minimum(self.restart_seconds, self.seconds)
        return (lost - np.minimum(lost, self.shared_seconds) / 2) * self.gpus

    @cached_property
    def preempted(self) -> Bools:
        """By lease: whether the scheduler ended it with the job's work saved,
        and not because its owner cancelled it."""
        return self.ending == _STOPPED

    @cached_property
    def running(self) -> Bools:
        return self.ending == _RUNNING


@dataclass(frozen=True)
class ClusterLog:
    """One row per GPU."""

    accelerators: tuple[str, ...]
    pools: tuple[str, ...]
    accelerator: Ints  # of each GPU, as are the others
    node: Ints
    pool: Ints  # -1: none
    price_per_hour: Floats
    pool_gpus: Ints  # by pool and GPU type: what it may use at a time; pools with cells or quotas may overlap
    borrows: Bools  # by pool: its jobs may also run on any other GPUs of the cluster

    def __len__(self) -> int:
        return len(self.node)

    @cached_property
    def gpus_by_accelerator(self) -> Ints:
        return np.bincount(self.accelerator, minlength=len(self.accelerators))

    @cached_property
    def gpus_by_pool(self) -> Ints:
        total: Ints = self.pool_gpus.sum(axis=1)
        return total


@dataclass(frozen=True)
class RunLog:
    jobs: JobLog
    leases: LeaseLog
    cluster: ClusterLog
    users: tuple[str, ...]
    tenants: tuple[str, ...]
    apps: tuple[str, ...]
    models: tuple[str, ...]
    until: float  # when the last event of the log happened
    kept_max: float = 1.0  # the largest fraction of its speed that any job keeps beside another
    kept_together_max: float = 1.0  # likewise the sum over two jobs

    @cached_property
    def finished(self) -> Bools:
        return self.jobs.outcome == FINISHED

    @cached_property
    def ended(self) -> Bools:
        return self.jobs.outcome <= CANCELLED

    @property
    def finished_count(self) -> int:
        return int(self.finished.sum())

    @property
    def unfinished_count(self) -> int:
        """Jobs accepted, and not ended."""
        return int((self.jobs.outcome == UNFINISHED).sum())

    @property
    def refused_count(self) -> int:
        """Jobs that can never run."""
        return int((self.jobs.outcome == REFUSED).sum())

    @cached_property
    def run_seconds(self) -> Floats:
        """By job: seconds on GPUs."""
        return sums_by(self.leases.job, self.leases.seconds, len(self.jobs))

    @cached_property
    def gpu_seconds(self) -> Floats:
        return sums_by(self.leases.job, self.leases.gpu_seconds, len(self.jobs))

    @cached_property
    def starts(self) -> Ints:
        return np.bincount(self.leases.job, minlength=len(self.jobs))

    def save(self, path: Path) -> None:
        """Saves into one file of NumPy arrays (.npz); the same log gives the same bytes."""
        array_archive.save(self, path)

    @staticmethod
    def load(path: Path) -> RunLog:
        return array_archive.load(RunLog, path)
