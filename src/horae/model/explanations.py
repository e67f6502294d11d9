"""The answer to "why does my job not run?": what blocks it, which jobs hold its GPUs, and what would unblock it."""

from __future__ import annotations

from dataclasses import dataclass

from horae.model.cluster import Gpu
from horae.model.decisions import Limit
from horae.model.reasons import Reason
from horae.model.shapes import Shape
from horae.model.status import Status


@dataclass(frozen=True, slots=True)
class Holder:
    """A job on GPUs that the waiting job could use."""

    job_id: str
    gpus: int
    since: float
    ends_at: float  # estimated; inf: unknown


@dataclass(frozen=True, slots=True)
class Unblocking:
    """The jobs whose end, by themselves or by preemption, would let this one start if no other job came before it."""

    shape: Shape
    leaving: tuple[Holder, ...]  # none: it would fit now

    @property
    def at(self) -> float:
        """When all of them are estimated to have ended."""
        return max((holder.ends_at for holder in self.leaving), default=0.0)


@dataclass(frozen=True, slots=True)
class ShapeShare:
    """A job's share of time in one of its shapes, alone or with a partner, and what it has received so far."""

    shape: Shape
    fraction: float  # of time, under the shares in force
    received_seconds: float  # in all
    owed_seconds: float  # promised but not received, as far back as debts count; negative: more than promised


@dataclass(frozen=True, slots=True)
class TypeWorth:
    """The value of a GPU type to the pool."""

    accelerator: str
    is_full: bool
    price: float  # how much one more GPU would improve the objective
    relative: float  # relative to the most valuable type; 0 where none has a value


@dataclass(frozen=True, slots=True)
class Solve:
    """The evidence of the solve behind the shares in force, restricted to one job."""

    objective: str  # in words, with its unit
    value: float
    bound: float  # no shares have a better value
    limit: Limit | None  # what keeps the job from a larger share; None: it was submitted later
    types: tuple[TypeWorth, ...]  # of the pool, most valuable first


@dataclass(frozen=True, slots=True)
class ShareExplanation:
    """The state of a job in a pool that works by shares of time."""

    counted_at: float  # the time up to which received and owed seconds are counted
    shared_at: float  # when the shares in force were computed
    shapes: tuple[ShapeShare, ...]  # in the job's order of preference
    solve: Solve | None = None  # None: not from a solver, or from one before the last decision
    unsolved: str = ""  # why the last solve failed, if it did; older shares are then kept


@dataclass(frozen=True, slots=True)
class Explanation:
    job_id: str
    at: float
    status: Status
    reason: Reason | None = None  # why it waits or was rejected; None: neither
    pool: str = ""
    policy: str = ""
    ahead: tuple[str, ...] = ()  # waiting jobs ranked before it in the last decision
    holders: tuple[Holder, ...] = ()  # of GPUs of the types that it accepts, earliest end first
    unblocking: Unblocking | None = None  # None: no running job would make room by ending
    next_decision_at: float = 0.0  # inf: at the next event
    share: ShareExplanation | None = None  # None: the pool does not work by shares


# Dry run: what would happen to a job if it were submitted now.


@dataclass(frozen=True)
class Prospect:
    """Whether a job would start now, and which jobs would be stopped or downgraded for it."""

    starts: bool  # immediately; otherwise see `victims` and `reason`
    guaranteed: bool = False  # in its tenant's cells, or in a pool that reserves none
    gpus: tuple[Gpu, ...] = ()  # that it has, or that are held for it
    shape: Shape | None = None
    victims: tuple[str, ...] = ()  # jobs that would be stopped for it
    downgraded: tuple[str, ...] = ()  # jobs that would continue without a guarantee
    reason: Reason | None = None  # why it would wait or be rejected
