"""Why something was decided. A reason is a small value; it becomes words only when somebody asks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from horae.model.shapes import Shape


@dataclass(frozen=True, slots=True)
class Never:
    """No shape that the job accepts can ever fit its pool, even empty."""

    pool: str
    shape: Shape
    largest_gpus: int

    def __str__(self) -> str:
        return (
            f"never: {self.shape} does not exist in pool {self.pool!r} even when it is empty; "
            f"the largest gang of that kind is {self.largest_gpus}"
        )


@dataclass(frozen=True, slots=True)
class NoPool:
    """The tenant has no pool in this cluster."""

    tenant: str

    def __str__(self) -> str:
        return f"never: tenant {self.tenant!r} has no pool in this cluster"


@dataclass(frozen=True, slots=True)
class NoRoom:
    """Not now: what the job accepts is in use by jobs that come before it or may not be preempted."""

    pool: str
    shape: Shape
    free_gpus: int  # of that type, anywhere in the pool

    def __str__(self) -> str:
        return f"not now: no room for {self.shape} in pool {self.pool!r} ({self.free_gpus} GPUs of the type are free)"


@dataclass(frozen=True, slots=True)
class BehindHead:
    """Not now: the policy lets nobody pass the job at the head of the queue."""

    head: str
    because: NoRoom

    def __str__(self) -> str:
        return f"not now: waits behind {self.head}, for which there is {str(self.because).removeprefix('not now: ')}"


@dataclass(frozen=True, slots=True)
class AwaitsDecision:
    """Not now: nothing was decided since the job became ready."""

    at: float

    def __str__(self) -> str:
        return f"not now: the next decision falls at {self.at:g} s"


@dataclass(frozen=True, slots=True)
class AwaitsVictims:
    """Its GPUs are held for it; their present holders are leaving."""

    leaving: tuple[str, ...]

    def __str__(self) -> str:
        return f"soon: its GPUs are held while {', '.join(self.leaving)} leave"


@dataclass(frozen=True, slots=True)
class Unclaimed:
    """Not now: the policy gives it no share at present."""

    policy: str

    def __str__(self) -> str:
        return f"not now: policy {self.policy} gives it no share at present"


@dataclass(frozen=True, slots=True)
class Preempted:
    """It had to leave for a job that comes before it."""

    by: str

    def __str__(self) -> str:
        return f"preempted by {self.by}"


@dataclass(frozen=True, slots=True)
class Moved:
    """It leaves its GPUs for others that were chosen for it."""

    to: Shape

    def __str__(self) -> str:
        return f"moves to {self.to}"


@dataclass(frozen=True, slots=True)
class NodeLost:
    """A node that it ran on failed; a gang runs whole or not at all."""

    node: str

    def __str__(self) -> str:
        return f"node {self.node} failed"


@dataclass(frozen=True, slots=True)
class Cancelled:
    def __str__(self) -> str:
        return "cancelled by its owner"


@dataclass(frozen=True, slots=True)
class Suspended:
    """Its owner wants it to wait."""

    def __str__(self) -> str:
        return "suspended by its owner until it is released"


@dataclass(frozen=True, slots=True)
class Overdue:
    """It did not begin to run in time after it was started."""

    seconds: float

    def __str__(self) -> str:
        return f"did not begin to run within {self.seconds:g} s of its start"


@dataclass(frozen=True, slots=True)
class Won:
    """It came next and fitted."""

    rank: int

    def __str__(self) -> str:
        return f"won as number {self.rank + 1}"


Refusal: TypeAlias = Never | NoPool
Blocker: TypeAlias = NoRoom | BehindHead | AwaitsDecision | AwaitsVictims | Unclaimed | Suspended
StopReason: TypeAlias = Preempted | Moved | NodeLost | Cancelled | Suspended | Overdue
Reason: TypeAlias = Refusal | Blocker | StopReason | Won
