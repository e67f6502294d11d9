"""Jobs and apps, as submitted."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf, isfinite, isnan
from typing import NamedTuple

from horae.model.errors import JobError
from horae.model.shapes import Demand, Option, cut

_NOT_NEGATIVE = (
    "restart_seconds",
    "min_runtime_seconds",
    "preemptions_max",
    "grace_seconds",
    "retries_max",
    "cpus_per_gpu",
    "memory_bytes_per_gpu",
    "later_gpu_seconds",
    "later_seconds",
)


class Curve(NamedTuple):
    """The estimated loss curve of a job: 1 / (rate x step + start) + floor (Optimus, EuroSys'18)."""

    rate: float
    start: float
    floor: float

    @property
    def is_sound(self) -> bool:
        return self.rate >= 0 and self.start > 0 and all(map(isfinite, self))


@dataclass(frozen=True, slots=True)
class Job:
    id: str
    submitted_at: float
    options: tuple[Option, ...]  # acceptable shapes, in order of preference
    app: str = ""  # "" means an app of its own
    tenant: str = "default"
    user: str = ""  # the submitting user; "" means the tenant as a whole
    model: str = ""  # what it trains, as named in speed tables; "" means unknown
    weight: float = 1.0
    priority: int = 0
    steps_total: float | None = None  # None: unknown
    deadline_at: float = inf
    restart_seconds: float = 0.0  # lost whenever the job resumes from a checkpoint
    min_runtime_seconds: float = 0.0  # it is not preempted before
    preemptions_max: float = inf  # it is not preempted more often
    grace_seconds: float = 0.0  # from the signal to the kill
    retries_max: int = 0  # how often it is retried after a failure
    member_gpus: int = 1  # see Demand; where a shape may span nodes, no member does
    members: tuple[int, ...] = ()  # GPUs of each member of the gang, where sizes differ; empty: `member_gpus` each
    nodes: tuple[str, ...] = ()  # the names of the nodes on which it may run; empty: all
    pinned: str = ""  # the pinned cell of its tenant in which it must run; "": none
    lazy: bool = False  # when preempted in its cells, it continues without a guarantee until its GPUs are needed
    cpus_per_gpu: float = 0.0
    memory_bytes_per_gpu: float = 0.0
    command: str = ""  # for engines that run real processes
    workdir: str = ""
    later_gpu_seconds: float = 0.0  # work that its app will submit after this job, where known
    later_seconds: float = 0.0  # the least time that takes, with as many GPUs as it can use
    curve: Curve | None = None  # None: unknown
    bids: bool = False  # its app has its own agent, which is called for bids in auctions
    continues: str = ""  # the id of the job whose work it continues; for engines that run real processes
    limit_seconds: float = inf  # the run time that its user asked for at most; what uses it is said by policies
    borrows: bool = True  # it may run outside its tenant's cells, without a guarantee

    def __post_init__(self) -> None:  # noqa: PLR0912  one branch per field
        if not self.id:
            raise JobError("the job has no id", field="id", remedy="give each job a name of its own")
        if not self.options:
            raise JobError(f"job {self.id!r} accepts no shape", field="gpus", remedy="name at least one GPU type")
        for option in self.options:
            if option.shape.gpus < 1:
                raise JobError(
                    f"job {self.id!r} asks for {option.shape.gpus} GPUs", field="gpus", remedy="ask for 1 or more"
                )
            if not (option.steps_per_second > 0 and isfinite(option.steps_per_second)):
                raise JobError(
                    f"job {self.id!r} has speed {option.steps_per_second} on {option.shape.accelerator}",
                    field="speed",
                    remedy="give a positive number of steps a second, or leave the type out",
                )
        if not isfinite(self.submitted_at):
            raise JobError(
                f"job {self.id!r} was submitted at {self.submitted_at}", field="submit", remedy="give seconds"
            )
        if self.steps_total is not None and not (self.steps_total > 0 and isfinite(self.steps_total)):
            raise JobError(
                f"job {self.id!r} has {self.steps_total} steps", field="steps", remedy="give a positive number"
            )
        if self.member_gpus < 1:
            raise JobError(
                f"job {self.id!r} has members of {self.member_gpus} GPUs", field="member_gpus", remedy="give 1 or more"
            )
        if self.members:
            _check_members(self)
        if "" in self.nodes:
            raise JobError(
                f"job {self.id!r} may run on a node without a name", field="nodes", remedy="give names of nodes"
            )
        for name in _NOT_NEGATIVE:
            if not getattr(self, name) >= 0:
                raise JobError(f"job {self.id!r} has {name} {getattr(self, name)}", field=name, remedy="give 0 or more")
        if not (self.curve is None or self.curve.is_sound):
            raise JobError(
                f"job {self.id!r} has loss curve {tuple(self.curve)}",
                field="curve",
                remedy="give a rate of 0 or more, a start above 0 and a floor",
            )
        if not self.limit_seconds > 0:
            raise JobError(
                f"job {self.id!r} has a time limit of {self.limit_seconds} s",
                field="limit",
                remedy="give a time above 0, or leave it out",
            )
        if isnan(self.deadline_at):
            raise JobError(
                f"job {self.id!r} has deadline nan", field="deadline", remedy="give seconds, or leave it out"
            )
        if not (self.weight > 0 and isfinite(self.weight)):
            raise JobError(f"job {self.id!r} has weight {self.weight}", field="weight", remedy="give a positive number")

    @property
    def app_id(self) -> str:
        return self.app or self.id

    @property
    def owner(self) -> str:
        return self.user or self.tenant

    @property
    def gpus(self) -> int:
        """GPUs of the reference shape, for formulas that need one number."""
        return self.options[0].shape.gpus

    @property
    def demand(self) -> Demand:
        shapes = tuple([option.shape for option in self.options])
        needs = self.cpus_per_gpu, self.memory_bytes_per_gpu
        if not (self.members or self.nodes or self.pinned):
            return Demand(shapes, self.member_gpus, *needs)
        member_gpus, members = cut(self.members) if self.members else (self.member_gpus, ())
        return Demand(shapes, member_gpus, *needs, members, tuple(sorted({*self.nodes})), self.pinned)


def _check_members(job: Job) -> None:
    if min(job.members) < 1:
        raise JobError(
            f"job {job.id!r} has a member of {min(job.members)} GPUs", field="members", remedy="give each 1 or more"
        )
    total = sum(job.members)
    for option in job.options:
        if option.shape.gpus != total:
            raise JobError(
                f"job {job.id!r} asks for {option.shape.gpus} GPUs, and its members have {total}",
                field="members",
                remedy="give members with as many GPUs in all as the gang",
            )


@dataclass(frozen=True, slots=True)
class Truth:
    """What only the engine knows about a job: its true amount of work and its true speeds."""

    steps_total: float
    options: tuple[Option, ...]
    fails_at_step: float = inf
    leaving_seconds: float = 0.0  # time it takes to save its work when told to stop
    startup_seconds: float = 0.0  # from its first start to its first step
    resume_seconds: float | None = None  # likewise from a later start; None: the job's restart_seconds
    closing_seconds: float = 0.0  # from its last step to its end


@dataclass(frozen=True, slots=True)
class Arrival:
    """One row of a workload: the job as submitted, and its true properties."""

    job: Job
    truth: Truth = field(repr=False)
