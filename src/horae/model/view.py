"""All that a policy may know of one pool."""

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
    """What is known of apps, by the numbers in `jobs.app`: also of what they have done and what is yet to come."""

    gpu_seconds: Floats  # of all its jobs so far, in their reference shapes; nan where one is of unknown length
    gpus_max: Ints  # the most that its jobs asked for at a time
    later_gpu_seconds: Floats  # what it will bring along yet
    later_seconds: Floats  # and how long that takes at least
    chain_seconds: Floats  # what the whole takes at least, however many GPUs it has; nan: unknown
    closed_until: Floats  # it may win nothing before


class View(NamedTuple):
    now: float
    seed: int
    round_seconds: float
    accelerators: tuple[str, ...]
    capacity: Ints  # by accelerator: usable GPUs of the pool
    cpus: float  # of the pool; endless where a node does not say how many it has, as is the memory
    memory_bytes: float
    shapes: tuple[Shape, ...]  # the numbers in `jobs.shape` point here
    shape_accelerator: Ints  # by shape: its accelerator
    shape_gpus: Ints
    shape_level: Ints  # the numbers point into `levels`
    levels: tuple[str, ...]  # of cells, finest first
    jobs: JobColumns
    tenants: tuple[str, ...]  # the numbers in `jobs.tenant` point here
    tenant_weight: Floats
    apps: int  # contending now
    app_seconds: float  # integral of the number of apps over time
    fit: Callable[[str, int], str | None]  # the level at which that many GPUs would fit right now
    price_per_hour: Floats = np.empty(0)  # by accelerator: of one GPU
    models: tuple[str, ...] = ()  # the numbers in `jobs.model` point here
    # By model, partner's model and shape: the part of its speed that a job keeps beside the other on the same GPUs.
    # 0: the two do not fit. Without any rows: nobody may share.
    kept: Floats = np.empty((0, 0, 0))
    app: AppColumns = AppColumns(
        np.empty(0), np.empty(0, dtype=np.int64), np.empty(0), np.empty(0), np.empty(0), np.empty(0)
    )
    asked: Ints = np.empty(0, dtype=np.int64)  # apps whose agents were called for bids,
    bids: Mapping[int, tuple[tuple[int, ...], tuple[float, ...]]] = MappingProxyType({})  # and what came: GPUs and rho
    # The levels that gangs of a GPU type would get one after the other, if these rows were gone: -1 where none is left.
    trial: Callable[[Bools, str, Ints], Ints] = lambda gone, accelerator, gangs: np.full(len(gangs), -1)
    memory: object = None  # what the last decision asked to remember: plain data; None: nothing yet

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
    """A policy that would hear apps before it decides."""

    def ask(self, view: View, apps: Ints) -> Mapping[int, tuple[tuple[int, ...], tuple[float, ...]]]:
        """By number of those apps that could win anything: for how many GPUs they may bid, and the rho believed."""
        ...


class Policy(Protocol):
    """Pure and deterministic; keeps no history of its own."""

    name: ClassVar[str]

    def decide(self, view: View) -> Decision: ...
