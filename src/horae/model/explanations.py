"""The answer to "why does my job not run?": what stands in its way, who, and what would have to happen."""

from __future__ import annotations

from dataclasses import dataclass

from horae.model.reasons import Reason
from horae.model.shapes import Shape
from horae.model.status import Status


@dataclass(frozen=True, slots=True)
class Holder:
    """Somebody on GPUs that the job could use."""

    job_id: str
    gpus: int
    since: float
    ends_at: float  # as believed; inf: unknown


@dataclass(frozen=True, slots=True)
class Unblocking:
    """What would let it start, if nobody else came before it: these jobs leave, by themselves or not."""

    shape: Shape
    leaving: tuple[Holder, ...]  # none: it would fit right now

    @property
    def at(self) -> float:
        """When all of them are believed to have ended."""
        return max((holder.ends_at for holder in self.leaving), default=0.0)


@dataclass(frozen=True, slots=True)
class Explanation:
    job_id: str
    at: float
    status: Status
    reason: Reason | None = None  # why it waits or was refused; None: it does neither
    pool: str = ""
    policy: str = ""
    ahead: tuple[str, ...] = ()  # who waits as well and came before it in the last decision
    holders: tuple[Holder, ...] = ()  # of GPUs of the types that it accepts, the soonest to end first
    unblocking: Unblocking | None = None  # None: nothing that runs would make room by leaving
    next_decision_at: float = 0.0  # inf: when something happens
