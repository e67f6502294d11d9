"""What the scheduler is told. Every event carries its time; the scheduler has no clock.

Events are tuples because a simulation makes millions of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from horae.model.cluster import Gpu, Node
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


class GpuState(Enum):
    USABLE = "usable"
    FAILED = "failed"
    FOREIGN = "foreign"  # processes of others use it


class Phase(Enum):
    """What a lease is doing at the engine. Before RUNNING it starts up: no work is done, and none is charged."""

    QUEUED = "queued"
    PULLING = "pulling"
    STARTING = "starting"
    RUNNING = "running"
    SAVING = "saving"


class JobSubmitted(NamedTuple):
    at: float
    job: Job


class JobCancelled(NamedTuple):
    at: float
    job_id: str


class JobHeld(NamedTuple):
    """The owner wants the job to wait: it leaves its GPUs with its work saved, and is suspended."""

    at: float
    job_id: str


class JobReleased(NamedTuple):
    """A suspended job may run again."""

    at: float
    job_id: str


class JobStarted(NamedTuple):
    """The engine confirms a start."""

    at: float
    job_id: str
    epoch: int


class JobPhase(NamedTuple):
    """An engine whose jobs take time to start tells how far one has come."""

    at: float
    job_id: str
    epoch: int
    phase: Phase


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


class GpuChanged(NamedTuple):
    """One GPU is broken, used by processes of others, or usable again. `note` says more, such as a user's name."""

    at: float
    gpu: Gpu
    state: GpuState
    note: str = ""


class ClusterChanged(NamedTuple):
    """Nodes that are new or have changed, and nodes that are gone; those in use go when their jobs have ended."""

    at: float
    nodes: tuple[Node, ...] = ()
    removed: tuple[str, ...] = ()


class PolicyChanged(NamedTuple):
    at: float
    pool: str
    policy: str
    options: Mapping[str, object] = MappingProxyType({})


class TenantChange(NamedTuple):
    """What is new for a tenant; None: as before."""

    cells: Mapping[str, int] | None = None  # what its pool reserves, e.g. {"A100.node": 6}
    weight: float | None = None
    quota: Mapping[str, int] | None = None  # by GPU type: at most so many at a time


class TenantsChanged(NamedTuple):
    """Other cells, weights or limits, by tenant (or by the name of its pool). No job is stopped; jobs that are no
    longer covered by a reservation become preemptible."""

    at: float
    tenants: Mapping[str, TenantChange]


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


class Running(NamedTuple):
    """One lease of one job, as a survey finds it."""

    job_id: str
    epoch: int
    gpus: tuple[Gpu, ...]
    steps: float  # that are safe
    phase: Phase = Phase.RUNNING
    cells: tuple[str, ...] = ()  # as its `Start` said


class Surveyed(NamedTuple):
    """Everything the engine runs, in answer to `Survey`; it replaces whatever events were lost.

    `at` is the moment when it was taken, not when it arrives: it says nothing of what began later.
    """

    at: float
    running: tuple[Running, ...]


class LeaseAdopted(NamedTuple):
    """A lease that runs and that the scheduler does not know: it was found after a restart, or another scheduler
    started it. Its job was submitted before."""

    at: float
    epoch: int
    job_ids: tuple[str, ...]
    gpus: tuple[Gpu, ...]
    steps: tuple[float, ...]
    guaranteed: bool = True  # it was placed in its tenant's cells; if they do not cover it, it is preemptible
    cells: tuple[str, ...] = ()  # by GPU: the level of the cell that it was in, as `Start` said; empty: not known


class Tick(NamedTuple):
    """All that is known of this instant has been told: decide what is due."""

    at: float


Event: TypeAlias = (
    JobSubmitted
    | JobCancelled
    | JobHeld
    | JobReleased
    | JobStarted
    | JobPhase
    | JobProgressed
    | JobEnded
    | NodeChanged
    | GpuChanged
    | ClusterChanged
    | PolicyChanged
    | TenantsChanged
    | LeaseAdopted
    | BidGiven
    | CurveRevised
    | SpeedRevised
    | Surveyed
    | Tick
)
