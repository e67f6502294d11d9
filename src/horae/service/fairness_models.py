"""What the API tells about fairness and efficiency over time."""

from __future__ import annotations

from pydantic import BaseModel


class FairnessPoint(BaseModel):
    """How a tenant or one of its apps was treated at one moment."""

    at: float
    tenant: str
    app: str  # "": the tenant as a whole
    rho_mean: float | None  # over its live apps, if they ended at that moment; None: none has one
    rho_max: float | None
    gpus: int  # held
    guaranteed_gpus: int
    waiting_jobs: int
    waited_for_own_cells_seconds: float  # of all its jobs, since the point before


class GpuHoursRow(BaseModel):
    """GPU-hours of one type in one hour."""

    at: float  # the beginning of the hour
    gpu_type: str
    held: float
    idle: float  # held by no job
    unusable: float
    unused: float | None  # held and not used; None: not measured, or not the requester's to see


class TypePrice(BaseModel):
    gpu_type: str
    price: float | None  # what one more GPU would add to the value; None: not defined
    is_full: bool


class PoolPrices(BaseModel):
    """Value and prices of the program that a policy by shares has solved for its pool."""

    pool: str
    policy: str
    decided_at: float | None
    objective: str  # in words, with its unit; "": the policy solves none, or has not yet
    value: float | None
    bound: float | None  # no shares have a better value
    types: list[TypePrice]


class UsedRow(BaseModel):
    """GPU-hours of a job or a tenant, held and used."""

    job_id: str  # "": the tenant as a whole
    name: str
    tenant: str
    user: str
    state: str
    gpu_type: str
    held_gpus: int
    gpu_hours: float
    measured_gpu_hours: float  # of these, of jobs whose use was measured
    used_gpu_hours: float | None  # of the measured ones; None: none was measured
    steps_per_second: float | None


class TypeUse(BaseModel):
    """The GPUs of one type now."""

    gpu_type: str
    gpus: int
    held: int
    unusable: int
    running_jobs: int  # that the requester may see
    steps_per_second: float | None  # of these, in all; None: none reports it


class SpeedRow(BaseModel):
    """The measured speed of a tenant's model on a GPU type."""

    tenant: str
    model: str
    gpu_type: str
    gpus: int
    steps_per_second: float
    reports: int


class Efficiency(BaseModel):
    types: list[TypeUse]
    tenants: list[UsedRow]
    jobs: list[UsedRow]  # those with the most GPU-hours
    more_jobs: int  # that are not listed
    speeds: list[SpeedRow]
