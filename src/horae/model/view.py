"""The view of one pool that a policy decides on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import ClassVar, NamedTuple, Protocol, runtime_checkable

import numpy as np

from horae.model.arrays import Bools, Floats, Ints
from horae.model.decisions import Decision
from horae.model.job_table import JobColumns
from horae.model.shapes import Shape


class AppColumns(NamedTuple):
    """What is known about apps, by the numbers in `jobs.app`, including their past and future work."""

    gpu_seconds: Floats  # of all its jobs so far, in their reference shapes; nan where one is of unknown length
    gpus_max: Ints  # the maximum that its jobs requested at a time
    later_gpu_seconds: Floats  # work that it will submit later
    later_seconds: Floats  # and the least time that takes
    chain_seconds: Floats  # the least time for all of its work, however many GPUs it has; nan: unknown
    closed_until: Floats  # it may win no GPUs before


class View(NamedTuple):
    """All that a policy may know of one pool: its capacity, its jobs as columns, and the estimates of their speeds."""

    now: float  # seconds from the origin of the log
    seed: int  # for policies that draw lots; the only source of chance
    round_seconds: float  # length of a round of this pool
    accelerators: tuple[str, ...]  # the GPU types of the pool
    capacity: Ints  # by accelerator: usable GPUs of the pool
    cpus: float  # of the pool; inf where a node does not specify its CPUs
    memory_bytes: float  # of the pool; inf where a node does not specify its memory
    shapes: tuple[Shape, ...]  # indexed by the numbers in `jobs.shape`
    shape_accelerator: Ints  # by shape: its accelerator
    shape_gpus: Ints  # by shape: the GPUs of the gang
    shape_level: Ints  # by shape: its level, as an index into `levels`
    levels: tuple[str, ...]  # of cells, finest first
    jobs: JobColumns  # the live jobs of the pool, one entry per job in each column
    tenants: tuple[str, ...]  # indexed by the numbers in `jobs.tenant`
    tenant_weight: Floats  # by tenant
    apps: int  # contending now
    app_seconds: float  # integral of the number of apps over time
    fit: Callable[[str, int], str | None]  # the level at which that many GPUs would fit now
    price_per_hour: Floats = np.empty(0)  # by accelerator: of one GPU
    models: tuple[str, ...] = ()  # indexed by the numbers in `jobs.model`
    # By model, partner's model and shape: the fraction of its speed that a job keeps beside the other on the same GPUs.
    # 0: the two do not fit. Without any rows: no jobs may share GPUs.
    kept: Floats = np.empty((0, 0, 0))
    # What is known about apps as a whole, by the numbers in `jobs.app`.
    app: AppColumns = AppColumns(
        np.empty(0), np.empty(0, dtype=np.int64), np.empty(0), np.empty(0), np.empty(0), np.empty(0)
    )
    asked: Ints = np.empty(0, dtype=np.int64)  # apps whose agents were called for bids
    bids: Mapping[int, tuple[tuple[int, ...], tuple[float, ...]]] = MappingProxyType({})  # by such app: GPUs and rho
    # The levels that gangs of a GPU type would get one after the other, if these rows had ended: -1 where none is left.
    trial: Callable[[Bools, str, Ints], Ints] = lambda gone, accelerator, gangs: np.full(len(gangs), -1)
    memory: object = None  # plain data that the last decision stored; None: none yet

    def apps_average(self) -> Floats:
        """By job: the time-average number of apps contending over its app's life so far (Themis, section 4)."""
        jobs = self.jobs
        age = self.now - jobs.app_submitted_at
        grown = self.app_seconds - jobs.app_integral
        young = age <= 0
        average: Floats = grown / (age + young)
        average[young] = self.apps
        return average


@runtime_checkable
class Auctioneer(Protocol):
    """A policy that collects bids of apps before it decides."""

    def ask(self, view: View, apps: Ints) -> Mapping[int, tuple[tuple[int, ...], tuple[float, ...]]]:
        """By number of each app that could win: the numbers of GPUs for which it may bid,
        and the estimated rho for each."""
        ...


class Policy(Protocol):
    """A policy: pure and deterministic, without state of its own."""

    name: ClassVar[str]

    def decide(self, view: View) -> Decision:
        """Which jobs of the pool should have GPUs: a `Ranking`, `Shares` or `Grants` over the rows of the view."""
        ...
