"""What the scheduler tells the engine. Every command may arrive twice; the epoch makes the second one harmless."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from horae.model.cluster import Gpu
from horae.model.shapes import Shape


class Start(NamedTuple):
    """Run this bundle on these GPUs. `shape` is what was obtained: its level may be finer than what was asked for."""

    epoch: int
    job_ids: tuple[str, ...]  # a bundle: one job, or two that share the GPUs
    gpus: tuple[Gpu, ...]
    shape: Shape
    steps_done: tuple[float, ...]  # from where each job goes on
    resumes: tuple[bool, ...]  # by job: whether it ran before, so that it loads a checkpoint first
    lease_until: float = 0.0  # until then the bundle is not displaced; a promise, not a timer
    cells: tuple[str, ...] = ()  # by GPU: the level of the tenant's cell that it is in; empty: outside of cells


class Stop(NamedTuple):
    """Let this job save its work and leave; kill it after the grace period."""

    epoch: int
    job_id: str
    grace_seconds: float


class Extend(NamedTuple):
    """The lease is renewed: the bundle is not displaced until then. Nothing ends when a lease does."""

    epoch: int
    lease_until: float


class Survey(NamedTuple):
    """Tell what is running (answered by `Surveyed`)."""


class CallForBids(NamedTuple):
    """An auction is open: each app may say what so many GPUs would be worth to it (answered by `BidGiven`, in time)."""

    auction: int
    pool: str
    closes_at: float
    offers: tuple[Offer, ...]


class Offer(NamedTuple):
    """The numbers of GPUs for which an app may bid, and the rho that it is believed to have with each of them."""

    app: str
    gpus: tuple[int, ...]
    rho: tuple[float, ...]


Command: TypeAlias = Start | Stop | Extend | Survey | CallForBids
