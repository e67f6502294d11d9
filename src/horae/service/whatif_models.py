"""The question of a `whatif` and its answer, for the API, the command line and `horae.Client`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Text = Annotated[str, Field(max_length=200)]
NODE_GROUPS_MAX = 100


class WhatIfPolicy(BaseModel):
    model_config = ConfigDict(extra="forbid")

    policy: Text
    options: dict[str, Any] = {}


class WhatIfRequest(BaseModel):
    """What is different; all that is not said is as it was. Nothing said: the recorded events are decided again."""

    model_config = ConfigDict(extra="forbid")

    since: float | None = None  # Unix time; None: a day before the last event, or the first one
    policies: Annotated[dict[Text, WhatIfPolicy], Field(max_length=1000)] = {}  # by pool; "*": all others
    cadence: Literal["events", "rounds"] | None = None
    round_seconds: Annotated[float, Field(gt=0, le=1e9)] | None = None
    cluster: Annotated[str, Field(max_length=1_000_000)] | None = None  # the text of a cluster file
    nodes: Annotated[list[Text], Field(max_length=NODE_GROUPS_MAX)] = []  # instead of a file: 20x8:A100
    more_nodes: Annotated[list[Text], Field(max_length=NODE_GROUPS_MAX)] = []  # besides those that there were
    cells: Annotated[dict[Text, dict[Text, Annotated[int, Field(ge=0, le=1_000_000)]]], Field(max_length=1000)] = {}
    weights: Annotated[dict[Text, Annotated[float, Field(gt=0, lt=1e9)]], Field(max_length=1000)] = {}


class WhatIfSide(BaseModel):
    """One schedule, over the jobs that are compared."""

    completion_mean_seconds: float | None
    completion_median_seconds: float | None
    utilisation: float | None = None  # of all GPUs from `since` to `until`; only for those who see all tenants
    preemptions: int | None = None


class WhatIfTenantSide(BaseModel):
    completion_mean_seconds: float | None
    completion_median_seconds: float | None
    rho_mean: float | None
    rho_max: float | None
    gpu_hours: float
    preemptions: int
    waited_for_own_cells_seconds: float | None  # None: it reserves no cells
    guarantee: Literal["kept", "broken"] | None


class WhatIfTenant(BaseModel):
    tenant: str
    jobs: int
    sooner: int
    later: int
    recorded: WhatIfTenantSide
    same: WhatIfTenantSide
    changed: WhatIfTenantSide


class WhatIfJob(BaseModel):
    job_id: str
    tenant: str
    seconds: float  # that it ends later; negative: sooner
    recorded_ends_at: float
    same_ends_at: float
    changed_ends_at: float


class WhatIfView(BaseModel):
    """Three schedules: as recorded, the same setup simulated, and the changed one simulated.

    The difference between the first two is the error of the simulation; that between the last two is the change's.
    """

    since: float
    until: float
    is_dated: bool  # times are Unix times; otherwise seconds of a log without dates
    change: list[str]  # in words; empty: nothing, and the recorded events were decided again
    is_replay: bool
    jobs: int  # compared: they ended in all three schedules
    sooner: int
    later: int
    unchanged: int
    never: int  # they ended, and would not have
    believed: int  # had not ended by themselves: their lengths are drawn from those of others
    cut_off_at: float | None  # where the time budget ended the simulation
    recorded: WhatIfSide
    same: WhatIfSide
    changed: WhatIfSide
    tenants: list[WhatIfTenant]
    sooner_jobs: list[WhatIfJob]  # the largest differences first
    later_jobs: list[WhatIfJob]
