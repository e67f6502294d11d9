"""Notices to operators: changes that were rejected or postponed, decisions and events that were rejected.

A notice is a value with fields, formatted when shown. Nothing is dropped without one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from horae.model.cluster import Gpu


@dataclass(frozen=True, slots=True)
class DecisionRejected:
    """A policy failed, or its decision broke an invariant: the pool keeps its last plan."""

    pool: str
    policy: str
    error: str
    is_bug: bool = False  # an invariant was broken; otherwise the policy failed

    def __str__(self) -> str:
        return f"pool {self.pool}: the decision of policy {self.policy} was rejected: {self.error}"


@dataclass(frozen=True, slots=True)
class FactRejected:
    """An event broke an invariant: the state is restored to that before the event, and the engine is surveyed."""

    event: str
    error: str

    def __str__(self) -> str:
        return f"{self.event} was rejected: {self.error}"


@dataclass(frozen=True, slots=True)
class ChangeRefused:
    """A change of the cluster, of tenants or of policies that is not possible; nothing was changed."""

    change: str
    problem: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.change} was refused: {self.problem}" + (f"; {self.remedy}" if self.remedy else "")


@dataclass(frozen=True, slots=True)
class NodeInUse:
    """A node is to be removed or changed while jobs run on it:
    it takes no new jobs, and the change waits for their end."""

    node: str
    job_ids: tuple[str, ...]

    def __str__(self) -> str:
        return f"node {self.node} is in use by {', '.join(self.job_ids)}: the change waits until they have ended"


@dataclass(frozen=True, slots=True)
class GuaranteeLost:
    """Jobs no longer covered by their tenants' reservations: they continue, and may be preempted."""

    job_ids: tuple[str, ...]

    def __str__(self) -> str:
        return f"no longer covered by a reservation, so preemptible: {', '.join(self.job_ids)}"


@dataclass(frozen=True, slots=True)
class UnknownRun:
    """The engine runs a job that was never submitted here, or that should have ended: its GPUs are not used."""

    job_id: str
    epoch: int
    gpus: tuple[Gpu, ...]

    def __str__(self) -> str:
        return f"{self.job_id} (lease {self.epoch}) runs on {', '.join(map(str, self.gpus))} and should not"


@dataclass(frozen=True, slots=True)
class AdoptionRefused:
    """A lease that was found running cannot be adopted."""

    epoch: int
    job_ids: tuple[str, ...]
    problem: str

    def __str__(self) -> str:
        return f"lease {self.epoch} of {', '.join(self.job_ids)} cannot be adopted: {self.problem}"


@dataclass(frozen=True, slots=True)
class StartOverdue:
    """A job did not begin to run in time after its start; it is stopped and requeued."""

    job_id: str
    epoch: int

    def __str__(self) -> str:
        return f"{self.job_id} (lease {self.epoch}) did not begin to run in time; it is stopped and waits again"


Notice: TypeAlias = (
    DecisionRejected
    | FactRejected
    | ChangeRefused
    | NodeInUse
    | GuaranteeLost
    | UnknownRun
    | AdoptionRefused
    | StartOverdue
)
