"""What the scheduler is told. Every event carries its time; the scheduler has no clock.

Events are tuples because a simulation makes millions of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from horae.model.jobs import Curve, Job
from horae.model.shapes import Shape


class Ending(Enum):
    FINISHED = "finished"  # the job did all its work
    FAILED = "failed"  # the job's own fault
    STOPPED = "stopped"  # as it was told, with its work saved
    LOST = "lost"  # the hardware's fault


class Health(Enum):
    HEALTHY = "healthy"
    DRAINING = "draining"  # what runs may end, nothing starts
    FAILED = "failed"


class JobSubmitted(NamedTuple):
    at: float
    job: Job


class JobCancelled(NamedTuple):
    at: float
    job_id: str


class JobStarted(NamedTuple):
    """The engine confirms a start."""

    at: float
    job_id: str
    epoch: int


class JobProgressed(NamedTuple):
    at: float
    job_id: str
    epoch: int
    steps: float


class JobEnded(NamedTuple):
    """The job has left its GPUs; `steps` is the work that is safe."""

    at: float
    job_id: str
    epoch: int
    ending: Ending
    steps: float
    message: str = ""


class NodeChanged(NamedTuple):
    at: float
    node: str
    health: Health


class PolicyChanged(NamedTuple):
    at: float
    pool: str
    policy: str
    options: Mapping[str, object] = MappingProxyType({})


class ReservationsChanged(NamedTuple):
    """Other cells for some tenants, by pool; who is covered no more goes on without a guarantee."""

    at: float
    cells: Mapping[str, Mapping[str, int]]


class BidGiven(NamedTuple):
    """An app's answer to a call: the rho that it would have with each number of GPUs, by what it says."""

    at: float
    auction: int
    app: str
    gpus: tuple[int, ...]
    rho: tuple[float, ...]


class CurveRevised(NamedTuple):
    """A job's loss is believed to fall otherwise than was thought, by what it has reported."""

    at: float
    job_id: str
    curve: Curve


class SpeedRevised(NamedTuple):
    """Jobs of a model are believed to have another speed in a shape than when they were submitted."""

    at: float
    model: str
    shape: Shape
    steps_per_second: float


class Surveyed(NamedTuple):
    """Everything the engine runs right now, in answer to `Survey`: it mends whatever events were lost."""

    at: float
    running: tuple[tuple[str, int, float], ...]  # job id, epoch, steps that are safe


class Tick(NamedTuple):
    """All that is known of this instant has been told: decide what is due."""

    at: float


Event: TypeAlias = (
    JobSubmitted
    | JobCancelled
    | JobStarted
    | JobProgressed
    | JobEnded
    | NodeChanged
    | PolicyChanged
    | ReservationsChanged
    | BidGiven
    | CurveRevised
    | SpeedRevised
    | Surveyed
    | Tick
)
