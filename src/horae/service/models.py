"""What the API takes and gives; the same models are used by the command line and by `horae.Client`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

from horae.traces.units import memory_bytes, seconds

NAME_CHARACTERS_MAX = 200
COMMAND_CHARACTERS_MAX = 100_000
GPUS_MAX = 1_000_000
ARRAY_MAX = 10_000
BULK_MAX = 10_000

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
    "refused",
]
ENDED: frozenset[str] = frozenset({"finished", "failed", "cancelled", "refused"})
Role = Literal["viewer", "user", "tenant-admin", "operator"]
Priority = Literal["opportunistic", "low", "normal", "high", "interactive"]
PRIORITIES: dict[str, int] = {"opportunistic": -1, "low": 0, "normal": 1, "high": 2, "interactive": 2}


def _one_or_many(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _finite(value: object) -> object:
    return seconds(value)


Seconds = Annotated[float, BeforeValidator(_finite), Field(le=3.2e9)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=NAME_CHARACTERS_MAX, pattern=r"^[^\x00-\x1f\x7f/]+$")]
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

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"name": "bert", "tenant": "nlp", "run": "python train.py", "gpus": 2, "gpu_type": ["A100", "V100"]}
            ]
        },
    )

    name: Name = "job"
    tenant: Name | None = None  # None: the submitter's own
    run: Annotated[str, StringConstraints(min_length=1, max_length=COMMAND_CHARACTERS_MAX)]
    workdir: Annotated[str, StringConstraints(max_length=4096)] = ""
    env: dict[Name, Annotated[str, StringConstraints(max_length=COMMAND_CHARACTERS_MAX)]] = {}
    gpus: Count | GpuRange = 1
    gpu_type: Annotated[list[Name], BeforeValidator(_one_or_many)] = []  # in order of preference; none: any
    locality: Locality = Locality()
    priority: Priority = "normal"
    app: Name | None = None  # None: an app of its own
    model: Annotated[str, StringConstraints(max_length=NAME_CHARACTERS_MAX)] = ""
    steps: Positive | None = None  # in all; None: unknown
    speed: dict[Name, Positive] = {}  # steps per second by GPU type
    min_runtime: Seconds = 0.0
    grace: Seconds = 30.0
    checkpoint: Checkpoint | None = None
    max_duration: Annotated[Seconds, Field(gt=0)] | None = None
    deadline: str | None = None  # a date, or a time from now such as 12h
    retries: Annotated[int, Field(ge=0, le=1000, strict=True)] = 0
    processes: Count = 1
    cpus_per_gpu: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    memory_per_gpu: Annotated[float, BeforeValidator(memory_bytes)] = 0.0
    after: Annotated[list[Name], BeforeValidator(_one_or_many)] = []  # jobs that must have finished before
    array: Annotated[int, Field(ge=1, le=ARRAY_MAX, strict=True)] | None = None
    sweep: dict[str, Any] | None = None  # parameters with their values, and `stop:` with the way to search
    bids: bool = False  # its app has an agent of its own, which bids in auctions


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
    kind: str
    gpu_hours: float
    jobs: int


class Progress(Strict):
    """What a job reports of itself."""

    epoch: Annotated[int, Field(ge=0, strict=True)]
    steps: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    saved: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    loss: Annotated[float, Field(allow_inf_nan=False)] | None = None
    diverged: bool = False
    steps_per_second: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    resumable: bool = False


class Bid(Strict):
    """An app's answer to a call for bids: its rho for each number of GPUs offered."""

    app: Name
    gpus: list[Annotated[int, Field(ge=0, strict=True)]]
    rho: list[Annotated[float, Field(ge=0)]]


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


class Problem(BaseModel):
    """An error, as RFC 9457 (problem+json) with the field that is wrong and the remedy."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    field: str | None = None
    remedy: str | None = None


Why.model_rebuild()
