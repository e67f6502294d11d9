"""From a decision to what will be done: claims, leases, and the plan of one round. Tuples, for there are millions."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from horae.model.arrays import Bools, Floats, Ints
from horae.model.cluster import Cluster
from horae.model.commands import Command
from horae.model.decisions import Decision
from horae.model.notices import Notice
from horae.model.reasons import BehindHead, NoRoom, StopReason, Won
from horae.model.shapes import Shape

Bundle: TypeAlias = tuple[int, ...]  # serials: one job, or two that share GPUs


class Claims(NamedTuple):
    """Every kind of decision in one form: who may have what, best first. A row may claim several options in turn."""

    row: Ints
    option: Ints | None  # None: any of the job's options, in its order of preference
    lease_seconds: Floats | None  # for how long a winner cannot be contested; None: it always can be
    preemptive: bool
    blocking: bool
    allowed: Bools | None = None  # by row and option, where `option` is None
    partner: Ints | None = None  # the row with which it shares GPUs, NONE: with none; None: nobody shares
    partner_option: Ints | None = None
    moves: Bools | None = None  # its job would leave what it has for this, though the claim that keeps it ranks higher

    @property
    def is_by_turns(self) -> bool:
        """Each names its option, any holder may be contested, and nobody wants a partner."""
        return self.option is not None and self.preemptive and self.lease_seconds is None and self.partner is None


class Spot(NamedTuple):
    """GPUs for a gang, and the level of the smallest cell that holds them all."""

    gpus: Ints
    level: int
    leaving: tuple[int, ...] = ()  # epochs that must end first: on these GPUs, or with CPUs that the gang needs


class Riders(NamedTuple):
    """CPUs and memory held along with each GPU; they bind only where a node says how much it has."""

    cpus: Floats
    memory_bytes: Floats


class Contest(NamedTuple):
    """By GPU: whether it is free, whether its holder would yield, who that is, and in what order holders go."""

    free: Bools
    yielding: Bools
    holder: Ints  # epoch of the lease
    rank: Ints  # the later, the sooner it goes


class Turns(NamedTuple):
    """Claims that name their options, where no jobs share GPUs, and the GPUs as a pass finds them.

    What is to be tried and the last two change.
    """

    row: Ints
    option: Ints
    waiting: Bools  # by claim: it asks for something new
    demand: Ints  # by job
    epoch: Ints  # by job
    holder: Ints
    free: Bools
    standing: Ints  # by GPU: the claim that keeps its holder there


class Settlement(NamedTuple):
    """What comes of a pass."""

    wins: list[tuple[int, Spot]]  # by position
    departures: list[tuple[int, int]]  # row, and the position for which it leaves: its own if it moves
    refused: list[tuple[int, int, int]]  # demand, the first position that was refused, GPUs that were free


class Placement(NamedTuple):
    """A winner and its GPUs. Where others still hold some of them, they leave first."""

    serial: int
    option: int
    shape: Shape  # as obtained
    gpus: Ints
    leaving: tuple[int, ...]  # epochs of the leases that must end first
    lease_seconds: float
    reason: Won
    partner: int = -1  # serial of the job that shares the GPUs; -1: none
    partner_option: int = -1

    @property
    def bundle(self) -> Bundle:
        return (self.serial,) if self.partner < 0 else (self.serial, self.partner)


class Departure(NamedTuple):
    serial: int
    reason: StopReason


class RoundPlan(NamedTuple):
    """What changes; who is not named keeps what it has, or waits for the reason given for its demand."""

    placements: tuple[Placement, ...] = ()
    departures: tuple[Departure, ...] = ()
    extensions: tuple[tuple[int, float], ...] = ()  # (serial, lease seconds) of holders that won again
    blocked: Mapping[int, NoRoom] = MappingProxyType({})  # by demand
    head: BehindHead | None = None  # for all others, where the policy lets nobody pass
    declined: tuple[int, ...] = ()  # serials of jobs on borrowed GPUs that have won cells and stay where they are


class Lease(NamedTuple):
    """GPUs in use by a bundle. The epoch numbers leases over the whole run; no epoch is used twice."""

    epoch: int
    bundle: Bundle
    gpus: Ints
    shape: Shape


class Hold(NamedTuple):
    """GPUs kept for a job until the leases that are still on them have ended.

    A job that moves has one while it is still STOPPING on its former GPUs; it is HOLDING once it has left them.
    """

    placement: Placement
    awaited: frozenset[int]  # epochs
    expires_at: float


class Round(NamedTuple):
    """One decision of one pool and the plan it led to, for the journal and for those who ask why."""

    at: float
    pool: str
    decision: Decision
    plan: RoundPlan
    rows: Ints  # that the decision speaks of
    job_ids: tuple[str, ...]  # of these rows, in this order
    serials: Ints  # likewise
    cluster: Cluster  # in which the plan's GPUs have their positions
    is_new: bool = True  # the policy was asked; otherwise its last decision still stands
    unsolved: str = ""  # why the policy could not answer, so that its last decision was carried over


class Reaction(NamedTuple):
    """What one event led to: commands for the engine, the rounds behind them for the record, notices for operators."""

    commands: tuple[Command, ...]
    rounds: tuple[Round, ...]
    notices: tuple[Notice, ...] = ()
