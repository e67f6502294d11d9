"""Events that the scheduler receives. Every event carries its time; the scheduler has no clock.

Events are tuples because a simulation creates millions of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from horae.model.cluster import Gpu, Node
from horae.model.jobs import Curve, Job
from horae.model.setup import Cadence
from horae.model.shapes import Shape


class Ending(Enum):
    FINISHED = "finished"  # the job did all its work
    FAILED = "failed"  # the job's own failure
    STOPPED = "stopped"  # on command, with its work saved
    LOST = "lost"  # hardware failure


class Health(Enum):
    HEALTHY = "healthy"
    DRAINING = "draining"  # running jobs may finish, no job starts
    FAILED = "failed"


class GpuState(Enum):
    USABLE = "usable"
    FAILED = "failed"
    FOREIGN = "foreign"  # used by processes outside Horae


class Phase(Enum):
    """The phase of a lease at the engine. Before RUNNING it starts up: no work is done, and none is charged."""

    QUEUED = "queued"
    PULLING = "pulling"
    STARTING = "starting"
    RUNNING = "running"
    SAVING = "saving"


TIME_IS_UP = "it ran for its maximum of"  # begins the reason of a cancellation at a job's time limit


class JobSubmitted(NamedTuple):
    at: float
    job: Job


class JobCancelled(NamedTuple):
    """The job ends for good. Given a grace period, it has at most that, even if it was cancelled before."""

    at: float
    job_id: str
    reason: str = ""  # "": its owner wants it
    grace_seconds: float | None = None  # None: its own


class JobHeld(NamedTuple):
    """The owner suspends the job: it saves its work and releases its GPUs."""

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
    """Progress of a start, from an engine whose jobs take time to start."""

    at: float
    job_id: str
    epoch: int
    phase: Phase


class JobProgressed(NamedTuple):
    at: float
    job_id: str
    epoch: int
    steps: float  # saved
    done: float | None = None  # done by then, saved or not; None: not known


class JobEnded(NamedTuple):
    """The job has released its GPUs; `steps` is the work that is saved."""

    at: float
    job_id: str
    epoch: int
    ending: Ending
    steps: float
    message: str = ""


class JobResumable(NamedTuple):
    """The job has shown that it resumes from checkpoints, so that it may be preempted from now on."""

    at: float
    job_id: str


class NodeChanged(NamedTuple):
    at: float
    node: str
    health: Health


class GpuChanged(NamedTuple):
    """One GPU is broken, used by processes outside Horae, or usable again.

    `note` has details, such as a user's name.
    """

    at: float
    gpu: Gpu
    state: GpuState
    note: str = ""


class ClusterChanged(NamedTuple):
    """Nodes that are new or changed, and nodes that are removed;
    nodes in use are removed when their jobs have ended."""

    at: float
    nodes: tuple[Node, ...] = ()
    removed: tuple[str, ...] = ()


class PolicyChanged(NamedTuple):
    """Another policy for a pool, and when it is called; None: as before."""

    at: float
    pool: str
    policy: str
    options: Mapping[str, object] = MappingProxyType({})
    cadence: Cadence | None = None
    round_seconds: float | None = None
    admits_between_rounds: bool | None = None


class TenantChange(NamedTuple):
    """A change of a tenant's settings; None: unchanged."""

    cells: Mapping[str, int] | None = None  # cells that its pool reserves, e.g. {"A100.node": 6}
    weight: float | None = None
    quota: Mapping[str, int] | None = None  # by GPU type: the maximum in use at a time


class TenantsChanged(NamedTuple):
    """New cells, weights or limits, by tenant (or by the name of its pool).

    No job is stopped; jobs no longer covered by a reservation become preemptible.
    """

    at: float
    tenants: Mapping[str, TenantChange]


class BidGiven(NamedTuple):
    """An app's answer to a call for bids: the rho that it reports for each number of GPUs."""

    at: float
    auction: int
    app: str
    gpus: tuple[int, ...]
    rho: tuple[float, ...]


class CurveRevised(NamedTuple):
    """A new estimate of a job's loss curve, from the losses it has reported."""

    at: float
    job_id: str
    curve: Curve


class SpeedRevised(NamedTuple):
    """A new estimate of the speed of a model's jobs in one shape, replacing the one given at submission."""

    at: float
    model: str
    shape: Shape
    steps_per_second: float
    tenant: str = ""  # whose jobs it is about: other tenants' models of this name may differ; "": all


class Running(NamedTuple):
    """One lease of one job, as a survey finds it."""

    job_id: str
    epoch: int
    gpus: tuple[Gpu, ...]
    steps: float  # saved steps
    phase: Phase = Phase.RUNNING
    cells: tuple[str, ...] = ()  # as its `Start` said


class Surveyed(NamedTuple):
    """Everything the engine runs, in answer to `Survey`; it replaces any events that were lost.

    `at` is the time at which the survey was taken, not when it arrives: it says nothing about later starts.
    """

    at: float
    running: tuple[Running, ...]


class LeaseAdopted(NamedTuple):
    """A running lease that the scheduler does not know: it was found after a restart, or another scheduler started it.

    Its job was submitted before.
    """

    at: float
    epoch: int
    job_ids: tuple[str, ...]
    gpus: tuple[Gpu, ...]
    steps: tuple[float, ...]
    guaranteed: bool = True  # it was placed in its tenant's cells; if they do not cover it, it is preemptible
    cells: tuple[str, ...] = ()  # by GPU: the level of the cell that held it, as in `Start`; empty: not known


class SchedulerRestarted(NamedTuple):
    """A new process continues this log, and the cluster may have changed meanwhile.

    Nothing starts before a survey has reported what runs; epochs from now on differ from all that were used before.
    """

    at: float
    incarnation: int


class Tick(NamedTuple):
    """All events of this instant have been delivered: make the decisions that are due."""

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
    | JobResumable
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
    | SchedulerRestarted
    | Tick
)
