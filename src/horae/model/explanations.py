"""The answer to "why does my job not run?": what stands in its way, who, and what would have to happen."""

from __future__ import annotations

from dataclasses import dataclass

from horae.model.cluster import Gpu
from horae.model.decisions import Limit
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
class ShapeShare:
    """A job's part of the time in one of its shapes, alone or in company, and what became of it so far."""

    shape: Shape
    fraction: float  # of time, under the shares in force
    received_seconds: float  # in all
    owed_seconds: float  # promised but not received, as far back as debts count; negative: it is ahead


@dataclass(frozen=True, slots=True)
class TypeWorth:
    """What a GPU type is worth to the pool."""

    accelerator: str
    is_full: bool
    price: float  # by how much one more GPU would better the value of the objective
    relative: float  # to the type that is worth most; 0 where none is worth anything


@dataclass(frozen=True, slots=True)
class Solve:
    """The evidence of the solve that the shares in force come from, as far as it concerns one job."""

    objective: str  # in words, with its unit
    value: float
    bound: float  # no shares have a better value
    limit: Limit | None  # what keeps the job from a larger share; None: it came later
    types: tuple[TypeWorth, ...]  # that the pool has, dearest first


@dataclass(frozen=True, slots=True)
class ShareExplanation:
    """How things stand for a job in a pool that works by shares of time."""

    counted_at: float  # up to when times were received and are owed
    shared_at: float  # when the shares in force were computed
    shapes: tuple[ShapeShare, ...]  # as the job prefers them
    solve: Solve | None = None  # None: they come from no solver, or from one before the last look
    unsolved: str = ""  # why the last solve failed, if it did: then older shares stand


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
    share: ShareExplanation | None = None  # None: the pool does not work by shares


# What would become of a job if it were submitted now.


@dataclass(frozen=True)
class Prospect:
    """Would this job start now, and at whose cost?"""

    starts: bool  # at once; otherwise see `victims` and `reason`
    guaranteed: bool = False  # in its tenant's cells, or in a pool that reserves none
    gpus: tuple[Gpu, ...] = ()  # that it has, or that are held for it
    shape: Shape | None = None
    victims: tuple[str, ...] = ()  # jobs that would be stopped for it
    downgraded: tuple[str, ...] = ()  # jobs that would go on without a guarantee
    reason: Reason | None = None  # why it would wait or be refused
