"""Commands from the scheduler to the engine.

Every command may arrive twice; the epoch makes the second one harmless.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from horae.model.cluster import Gpu
from horae.model.shapes import Shape


class Start(NamedTuple):
    """Run this bundle on these GPUs. `shape` is the shape obtained; its level may be finer than the one requested."""

    epoch: int
    job_ids: tuple[str, ...]  # a bundle: one job, or two that share the GPUs
    gpus: tuple[Gpu, ...]
    shape: Shape
    steps_done: tuple[float, ...]  # the step from which each job continues
    resumes: tuple[bool, ...]  # by job: whether it ran before, and therefore loads a checkpoint first
    lease_until: float = 0.0  # the bundle is not preempted before then; a promise, not a timer
    cells: tuple[str, ...] = ()  # by GPU: the level of the tenant's cell that holds it; empty: outside of cells


class Stop(NamedTuple):
    """Let this job save its work and exit; kill it after the grace period."""

    epoch: int
    job_id: str
    grace_seconds: float


class Extend(NamedTuple):
    """The lease is renewed: the bundle is not preempted before the new end.

    A job does not stop when its lease expires.
    """

    epoch: int
    lease_until: float


class Survey(NamedTuple):
    """Report everything that is running (answered by `Surveyed`)."""


class CallForBids(NamedTuple):
    """An auction is open: each app may bid a value for each number of GPUs (answered in time by `BidGiven`)."""

    auction: int
    pool: str
    closes_at: float
    offers: tuple[Offer, ...]


class Offer(NamedTuple):
    """The numbers of GPUs for which an app may bid, and the rho that the scheduler estimates for each of them."""

    app: str
    gpus: tuple[int, ...]
    rho: tuple[float, ...]


Command: TypeAlias = Start | Stop | Extend | Survey | CallForBids
