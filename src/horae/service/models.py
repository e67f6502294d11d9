"""What the API takes and gives; the same models are used by the command line and by `horae.Client`."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

from horae.service.fairness_models import (  # noqa: F401  given by the API, too
    Efficiency,
    FairnessPoint,
    GpuHoursRow,
    PoolPrices,
    SpeedRow,
    TypePrice,
    TypeUse,
    UsedRow,
)
from horae.service.gpu_map_models import GpuMap, JobColumns, NodeColumns  # noqa: F401  given by the API, too
from horae.traces.units import memory_bytes, seconds

NAME_CHARACTERS_MAX = 200
COMMAND_CHARACTERS_MAX = 100_000
GPUS_MAX = 1_000_000
GRACE_SECONDS_MAX = 3600.0  # unless the configuration has another limit
PROCESSES_PER_GPU_MAX = 8
PROCESSES_MAX = 1024  # of one job
ARRAY_MAX = 10_000
BULK_MAX = 10_000
AFTER_MAX = 1000

State = Literal[
    "submitted",  # accepted and durable; the scheduler has not seen it yet
    "waiting",  # for the jobs after which it shall run
    "pending",
    "holding",
    "starting",
    "running",
    "stopping",
    "cancelling",
    "suspended",
    "finished",
    "failed",
    "cancelled",
    "stopped",  # by its search: other trials are better
    "refused",
]
ENDED: frozenset[str] = frozenset({"finished", "failed", "cancelled", "stopped", "refused"})
LIVE: tuple[str, ...] = tuple(state for state in get_args(State) if state not in ENDED)
STOP, RANDOM = "stop", "random"  # keys of a sweep that are no parameters
TRIAL_REPORTED = "TrialReported"  # a request to the loop: a trial has got to the end of its rung
Role = Literal["viewer", "user", "tenant-admin", "operator"]
Priority = Literal["opportunistic", "low", "normal", "high", "interactive"]
PRIORITY_MIN, PRIORITY_MAX = -1, 1000  # -1: opportunistic
PRIORITIES: dict[str, int] = {"opportunistic": -1, "low": 0, "normal": 1, "high": 2, "interactive": 2}


def _one_or_many(value: object) -> object:
    """A list of names, each once."""
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return list(dict.fromkeys(value))
    return [value] if isinstance(value, str) else value


def _finite(value: object) -> object:
    return seconds(value)


Seconds = Annotated[float, BeforeValidator(_finite), Field(le=3.2e9)]
Name = Annotated[
    str,
    StringConstraints(min_length=1, max_length=NAME_CHARACTERS_MAX, pattern=r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029/]+$"),
]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, le=GPUS_MAX, strict=True)]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class GpuRange(Strict):
    """An elastic job runs with any number of GPUs in this range that is a power of two times the minimum."""

    min: Count
    max: Count


class Locality(Strict):
    require: Name | None = None
    prefer: Name | None = None


class Checkpoint(Strict):
    """The job saves its work when told to leave, and resumes from it."""

    signal: Literal["SIGTERM"] = "SIGTERM"


class JobSpec(Strict):
    """A job file."""

    name: Name = "job"
    tenant: Name | None = None  # None: the submitter's own
    user: Name | None = None  # None: the submitter
    run: Annotated[str, StringConstraints(min_length=1, max_length=COMMAND_CHARACTERS_MAX)]
    workdir: Annotated[str, StringConstraints(max_length=4096)] = ""
    env: dict[Name, Annotated[str, StringConstraints(max_length=COMMAND_CHARACTERS_MAX)]] = Field(default_factory=dict)
    gpus: Count | GpuRange = 1
    member_gpus: Count = 1  # the gang consists of members of so many GPUs; none spans nodes
    members: list[Count] = Field(default_factory=list)  # GPUs of each, where sizes differ; as many as `gpus` together
    pinned: Name | None = None  # the pinned cell of its tenant in which it must run
    nodes: list[Name] = Field(default_factory=list)  # on which it may run; none: all
    lazy: bool = False  # when preempted in its cells, it continues without a guarantee until its GPUs are needed
    # In order of preference; none: any. (Here and below, factories are faster than values, which are copied deeply.)
    gpu_type: Annotated[list[Name], BeforeValidator(_one_or_many)] = Field(default_factory=list)
    locality: Locality = Field(default_factory=Locality)
    priority: Priority | Annotated[int, Field(ge=PRIORITY_MIN, le=PRIORITY_MAX, strict=True)] = "normal"
    app: Name | None = None  # None: an app of its own
    model: Annotated[str, StringConstraints(max_length=NAME_CHARACTERS_MAX)] = ""
    steps: Positive | None = None  # in all; None: unknown
    speed: dict[Name, Positive] = Field(default_factory=dict)  # steps per second by GPU type
    min_runtime: Seconds = 0.0
    grace: Seconds = 30.0
    checkpoint: Checkpoint | None = None
    preemptible: bool | None = None  # whether it may be preempted in its pool; None: if it saves its work
    max_duration: Annotated[Seconds, Field(gt=0)] | None = None  # None: no limit
    deadline: str | None = None  # a date, or a time from now such as 12h
    retries: Annotated[int, Field(ge=0, le=1000, strict=True)] = 0
    processes: Count = 1
    cpus_per_gpu: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    memory_per_gpu: Annotated[float, BeforeValidator(memory_bytes)] = 0.0
    # Jobs that must have finished before.
    after: Annotated[list[Name], BeforeValidator(_one_or_many), Field(max_length=AFTER_MAX)] = Field(
        default_factory=list
    )
    array: Annotated[int, Field(ge=1, le=ARRAY_MAX, strict=True)] | None = None
    sweep: dict[str, Any] | None = None  # parameters with their values, and `stop:` with the way to search
    pty: bool = False  # it has a terminal, to which its user attaches; for interactive jobs
    bids: bool = False  # its app has an agent of its own, which bids in auctions
    # A Job of Kubernetes that it stands for, as namespace/name/uid; the service fills it in.
    workload: Annotated[str, StringConstraints(max_length=600)] = ""


class JobView(BaseModel):
    """One job as the API shows it. Times are Unix times."""

    id: str
    name: str
    app: str
    tenant: str
    user: str
    model: str
    state: State
    reason: str  # in words: why it waits, was refused or failed
    gpus: int  # requested
    held_gpus: int
    gpu_type: str  # held, or requested where it holds none
    places: list[str]
    guaranteed: bool
    resumable: bool
    epoch: int | None
    submitted_at: float
    started_at: float | None  # of its present lease
    first_started_at: float | None
    ended_at: float | None
    wait_seconds: float
    run_seconds: float
    gpu_seconds: float
    preemptions: int
    failures: int
    steps: float
    steps_total: float | None
    steps_per_second: float | None
    loss: float | None
    rho: float | None
    spec: JobSpec | None = None  # in the view of one job


class Page(BaseModel):
    items: list[JobView]
    next: str | None  # pass it as `cursor` for the next page


class Submitted(BaseModel):
    """The jobs that a request has made, in its order: one per element of an array or a sweep."""

    ids: list[str]


class LeaseView(BaseModel):
    job_id: str
    epoch: int
    granted_at: float
    started_at: float | None
    until: float
    ended_at: float | None
    gpu_type: str
    level: str
    gpus: int
    places: list[str]
    guaranteed: bool
    ending: str
    reason: str
    steps: float


class LeasePage(BaseModel):
    items: list[LeaseView]
    other_leases: int  # of tenants whose jobs the requester may not see
    other_gpus: int
    next: str | None


class AppView(BaseModel):
    """The jobs of one app, counted by state."""

    name: str
    tenant: str
    jobs: int
    states: dict[str, int]
    running_gpus: int
    gpu_hours: float
    rho_max: float | None


class AppPage(BaseModel):
    items: list[AppView]
    next: str | None


class TrialView(BaseModel):
    """A job of an app, as one trial beside the others."""

    job_id: str
    name: str
    tenant: str
    app: str
    state: State
    reason: str  # why it was stopped or paused, or has failed
    parameters: dict[str, Any]  # its values in the sweep
    steps: float
    steps_total: float | None
    loss: float | None  # that it reported last
    rung: int | None  # how often it was promoted; None: its search stops no trials
    bracket: int | None
    gpu_hours: float


class Why(BaseModel):
    """Why a job waits, and what would unblock it."""

    job_id: str
    state: State
    reason: str
    pool: str
    policy: str
    ahead: list[str]  # waiting jobs ranked before it; names of other tenants' jobs are shown as the role allows
    holders: list[Holder]
    unblocked_by: list[Holder]
    next_decision_at: float | None
    text: str  # all of it, in words
    story: list[str] = []  # what happened to it so far


class Holder(BaseModel):
    job_id: str
    gpus: int
    since: float
    ends_at: float | None  # estimated


class MomentView(BaseModel):
    """A time that is not certain, as Unix times: nine of ten futures lie between `low` and `high`.

    None: later than a month from now, or not known within the time budget.
    """

    median: float | None
    low: float | None
    high: float | None


class EtaView(BaseModel):
    """When a job starts and ends, over draws of the lengths that are not known and of the jobs that will come."""

    job_id: str
    asked_at: float
    starts: MomentView | None  # None: it runs already
    ends: MomentView
    draws: int
    cut_off: int  # draws that the time budget ended before the job started: they tell nothing
    estimated: int = 0  # draws that were left after the job had started: its end is an estimate


class DelayView(BaseModel):
    job_id: str
    seconds: float  # in the median; negative: it ends sooner


class PlanView(BaseModel):
    """What would happen if a job were submitted now."""

    fits: bool
    refusal: str  # why it could never run, or ""
    asked_at: float
    starts: MomentView | None
    ends: MomentView | None
    shapes: list[str]  # in which it would start, the most frequent first
    delays: list[DelayView]  # the largest first; jobs of other tenants are one entry, as the role allows
    draws: int
    cut_off: int


class NodeView(BaseModel):
    name: str
    gpu_type: str
    gpus: int
    free: int
    health: Literal["healthy", "draining", "failed"]
    reason: str
    drain_at: float | None
    jobs: list[str]
    unusable: dict[str, str]  # by GPU: why


class TenantView(BaseModel):
    name: str
    weight: float
    cells: dict[str, int]
    quota: dict[str, int]
    policy: str
    running_gpus: int
    guaranteed_gpus: int
    pending_jobs: int
    running_jobs: int
    undelivered_notices: int = 0  # that its webhook has not accepted after at least one attempt, or that wait


class TenantChange(Strict):
    weight: Positive | None = None
    cells: dict[Name, Annotated[int, Field(ge=0, strict=True)]] | None = None
    quota: dict[Name, Annotated[int, Field(ge=0, strict=True)]] | None = None


class PoolView(BaseModel):
    name: str
    policy: str
    options: dict[str, Any]
    cadence: str
    round_seconds: float
    tenants: list[str]


class PolicyChoice(Strict):
    policy: Name
    options: dict[str, Any] = {}


class Drain(Strict):
    reason: Annotated[str, StringConstraints(max_length=1000)] = ""
    at: str | None = None  # a date, or a time from now; None: at once


class ShareRow(BaseModel):
    """How an app or a tenant was treated: rho = time taken over the time on its own 1/N of the cluster."""

    name: str
    tenant: str
    jobs: int
    running: int
    finished: int
    gpu_hours: float
    share: float  # of all GPU-hours used
    weight_share: float  # of the weights of all tenants
    rho_mean: float | None
    rho_max: float | None
    guaranteed_gpu_hours: float
    waited_for_own_cells_seconds: float | None


class UsageRow(BaseModel):
    month: str
    tenant: str
    user: str
    gpu_type: str
    kind: str  # guaranteed, borrowed, shared; idle or unusable: held by no job
    gpu_hours: float
    jobs: int
    idle_gpu_hours: float = 0.0  # of these, not used: held by no job, or by one that computed nothing, where known


class Point(BaseModel):
    steps: float
    at: float
    loss: float | None
    steps_per_second: float | None


class ProgressView(BaseModel):
    """The latest report of a job, and its progress and losses over time."""

    job_id: str
    epoch: int | None
    at: float | None
    steps: float
    saved: float
    steps_total: float | None
    loss: float | None
    steps_per_second: float | None
    resumable: bool
    points: list[Point]


class Progress(Strict):
    """What a job reports of itself."""

    epoch: Annotated[int, Field(ge=0, strict=True)]
    steps: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    saved: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    loss: Annotated[float, Field(allow_inf_nan=False)] | None = None
    diverged: bool = False
    steps_per_second: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    resumable: bool = False


class Reservation(BaseModel):
    """The cells that a tenant reserves."""

    tenant: str
    pool: str
    cells: dict[str, int]
    pinned: dict[str, str]


class Reservations(Strict):
    """By tenant: the cells that it reserves from now on. Tenants that are not named keep theirs."""

    tenants: dict[Name, dict[Name, Annotated[int, Field(ge=0, le=GPUS_MAX, strict=True)]]]


class PolicyView(BaseModel):
    name: str
    summary: str
    options: dict[str, Any]  # with their defaults


class OfferView(BaseModel):
    app: str
    gpus: list[int]
    rho: list[float | None]  # None: it would never finish


class AuctionView(BaseModel):
    """An open call for bids, with the offers to the requester's apps."""

    auction: int
    pool: str
    closes_at: float
    offers: list[OfferView]


class AuctionResult(BaseModel):
    """The part of one app in an auction."""

    auction: int
    pool: str
    app: str
    tenant: str
    called_at: float
    closes_at: float
    closed_at: float | None  # None: it is open
    offer: OfferView
    bid: OfferView | None  # None: none came in time
    note: str  # why the scheduler's estimate was its bid
    won_gpus: int  # newly; GPUs that it keeps are not counted
    lease_seconds: float
    payment: float  # the fraction of its lease that it gave up for what it costs others


class Bid(Strict):
    """An app's answer to a call for bids: its rho for each number of GPUs offered."""

    app: Annotated[str, StringConstraints(min_length=1, max_length=2 * NAME_CHARACTERS_MAX + 1)]
    gpus: list[Annotated[int, Field(ge=0, le=GPUS_MAX, strict=True)]]
    rho: list[Annotated[float, Field(ge=0, allow_inf_nan=False)]]


class TokenRequest(Strict):
    name: Name
    role: Role = "user"
    tenant: str = ""
    user: str = ""
    days: Annotated[float, Field(gt=0, le=36500)] | None = None


class TokenView(BaseModel):
    id: str
    name: str
    role: Role
    tenant: str
    user: str
    created_at: float
    expires_at: float | None
    token: str | None = None  # shown once, when it is made


class EventView(BaseModel):
    seq: int
    at: float
    kind: str
    job_id: str | None
    tenant: str | None
    text: str


class EventPage(BaseModel):
    items: list[EventView]
    next: int  # pass it as `since` for what came after


class AuditRow(BaseModel):
    id: int
    at: float
    user: str
    role: str
    action: str
    target: str
    detail: str


class Me(BaseModel):
    user: str
    role: Role
    tenant: str  # "": all tenants
    via: Literal["token", "socket"]


class Health(BaseModel):
    """Whether the parts of the service answer."""

    ready: bool
    store: bool
    scheduler: bool
    configuration: str  # why the configuration file cannot be applied; "": it is in force


class Done(BaseModel):
    """A change was applied, or, with `applied` false, accepted and not applied yet."""

    applied: bool


class Problem(BaseModel):
    """An error, as RFC 9457 (problem+json) with the field that is wrong and the remedy."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    field: str | None = None
    remedy: str | None = None
    example: Any = None  # a value that would have been accepted


Why.model_rebuild()
