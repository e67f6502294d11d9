"""Reasons of decisions. A reason is a small value; it is formatted as text only on request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from horae.model.safe_text import counted
from horae.model.shapes import Shape


@dataclass(frozen=True, slots=True)
class Never:
    """No shape that the job accepts can ever fit its pool, even empty."""

    pool: str
    shape: Shape
    largest_gpus: int
    spare: str = ""  # the pool for jobs without a guarantee, if that could hold it

    @property
    def way_out(self) -> str:
        return f"it then runs on idle GPUs in pool {self.spare!r}, without a guarantee"

    def __str__(self) -> str:
        more = f"; with a negative priority it runs on idle GPUs in pool {self.spare!r}" if self.spare else ""
        return (
            f"never: {self.shape} does not exist in pool {self.pool!r} even when it is empty; "
            f"the largest gang of that kind is {self.largest_gpus}{more}"
        )


@dataclass(frozen=True, slots=True)
class NoPool:
    """The tenant has no pool in this cluster."""

    tenant: str

    def __str__(self) -> str:
        return f"never: tenant {self.tenant!r} has no pool in this cluster"


@dataclass(frozen=True, slots=True)
class NoRoom:
    """Not now: the shapes that the job accepts are in use by jobs that rank higher or may not be preempted."""

    pool: str
    shape: Shape
    free_gpus: int  # of that type, anywhere in the pool

    def __str__(self) -> str:
        return f"not now: no room for {self.shape} in pool {self.pool!r} ({_free(self.free_gpus)})"


def _free(gpus: int) -> str:
    return f"{counted(gpus, 'GPU')} of the type {'is' if gpus == 1 else 'are'} free"


@dataclass(frozen=True, slots=True)
class BehindHead:
    """Not now: the policy lets no job overtake the one at the head of the queue."""

    head: str
    because: NoRoom

    def __str__(self) -> str:
        return f"not now: waits behind {self.head}, for which there is {str(self.because).removeprefix('not now: ')}"


@dataclass(frozen=True, slots=True)
class AwaitsDecision:
    """Not now: no decision was made since the job became ready."""

    at: float

    def __str__(self) -> str:
        return f"not now: the next decision falls at {self.at:g} s"


@dataclass(frozen=True, slots=True)
class AwaitsVictims:
    """GPUs are held for it; their present holders are leaving."""

    leaving: tuple[str, ...]

    def __str__(self) -> str:
        return f"soon: its GPUs are held while {', '.join(self.leaving)} leave"


@dataclass(frozen=True, slots=True)
class Unclaimed:
    """Not now: the policy allocates it no share at present."""

    policy: str

    def __str__(self) -> str:
        return f"not now: policy {self.policy} gives it no share at present"


@dataclass(frozen=True, slots=True)
class Preempted:
    """It was preempted by a job that ranks higher."""

    by: str

    def __str__(self) -> str:
        return f"preempted by {self.by}"


@dataclass(frozen=True, slots=True)
class Moved:
    """It leaves its GPUs for other ones that were allocated to it."""

    to: Shape

    def __str__(self) -> str:
        return f"moves to {self.to}"


@dataclass(frozen=True, slots=True)
class NodeLost:
    """A node that it ran on failed; a gang runs as a whole or not at all."""

    node: str

    def __str__(self) -> str:
        return f"node {self.node} failed"


@dataclass(frozen=True, slots=True)
class Cancelled:
    def __str__(self) -> str:
        return "cancelled by its owner"


@dataclass(frozen=True, slots=True)
class Suspended:
    """Its owner has suspended it."""

    def __str__(self) -> str:
        return "suspended by its owner until it is released"


@dataclass(frozen=True, slots=True)
class Overdue:
    """It did not begin to run in time after its start."""

    seconds: float

    def __str__(self) -> str:
        return f"did not begin to run within {self.seconds:g} s of its start"


@dataclass(frozen=True, slots=True)
class Won:
    """It was next in rank and fitted."""

    rank: int

    def __str__(self) -> str:
        return f"won as number {self.rank + 1}"


Refusal: TypeAlias = Never | NoPool
Blocker: TypeAlias = NoRoom | BehindHead | AwaitsDecision | AwaitsVictims | Unclaimed | Suspended
StopReason: TypeAlias = Preempted | Moved | NodeLost | Cancelled | Suspended | Overdue
Reason: TypeAlias = Refusal | Blocker | StopReason | Won
