"""From a decision to its execution: claims, leases, and the plan of one round. Tuples, because millions are created."""

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
    """Every kind of decision in one form: rows and the options they claim, best first.

    A row may claim several options in turn.
    """

    row: Ints
    option: Ints | None  # None: any of the job's options, in its order of preference
    lease_seconds: Floats | None  # how long a winner cannot be contested; None: it always can be
    preemptive: bool
    blocking: bool
    allowed: Bools | None = None  # by row and option, where `option` is None
    partner: Ints | None = None  # the row with which it shares GPUs, NONE: with none; None: no claim is shared
    partner_option: Ints | None = None
    moves: Bools | None = None  # its job would leave its GPUs for this, though the claim that keeps it ranks higher

    @property
    def is_by_turns(self) -> bool:
        """Whether each claim names its option, any holder may be contested, and no claim has a partner."""
        return self.option is not None and self.preemptive and self.lease_seconds is None and self.partner is None


class Spot(NamedTuple):
    """GPUs for a gang, and the level of the smallest cell that holds them all."""

    gpus: Ints
    level: int
    leaving: tuple[int, ...] = ()  # epochs that must end first: on these GPUs, or with CPUs that the gang needs


class Riders(NamedTuple):
    """CPUs and memory allocated with each GPU; they constrain placement only where a node specifies its amounts."""

    cpus: Floats
    memory_bytes: Floats


class Contest(NamedTuple):
    """By GPU: whether it is free, whether its holder may be preempted, which lease holds it, and the holders' order."""

    free: Bools
    yielding: Bools
    holder: Ints  # epoch of the lease
    rank: Ints  # the higher the rank, the sooner it is preempted


class Turns(NamedTuple):
    """Claims that name their options, where no jobs share GPUs, and the state of the GPUs for a pass.

    The pass changes `waiting` and the last two fields.
    """

    row: Ints
    option: Ints
    waiting: Bools  # by claim: it asks for GPUs that its job does not hold
    demand: Ints  # by job
    epoch: Ints  # by job
    holder: Ints
    free: Bools
    standing: Ints  # by GPU: the claim under which its holder keeps it


class Settlement(NamedTuple):
    """The result of a pass."""

    wins: list[tuple[int, Spot]]  # by position
    departures: list[tuple[int, int]]  # row, and the position for which it is preempted: its own if it moves
    refused: list[tuple[int, int, int]]  # demand, the first position that was rejected, GPUs that were free


class Placement(NamedTuple):
    """A winner and its GPUs. Leases still on them end first."""

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
    """The changes of one round; jobs not named keep their GPUs, or wait for the reason given for their demand."""

    placements: tuple[Placement, ...] = ()
    departures: tuple[Departure, ...] = ()
    extensions: tuple[tuple[int, float], ...] = ()  # (serial, lease seconds) of holders that won again
    blocked: Mapping[int, NoRoom] = MappingProxyType({})  # by demand
    head: BehindHead | None = None  # for all others, where the policy lets no job overtake
    declined: tuple[int, ...] = ()  # serials of jobs on borrowed GPUs that won cells and decline them


class Lease(NamedTuple):
    """GPUs in use by a bundle. Epochs number leases over the whole run; no epoch is used twice."""

    epoch: int
    bundle: Bundle
    gpus: Ints
    shape: Shape


class Hold(NamedTuple):
    """GPUs held for a job until the leases that are still on them have ended.

    A job that moves has a hold while it is still STOPPING on its former GPUs; it is HOLDING once it has left them.
    """

    placement: Placement
    awaited: frozenset[int]  # epochs
    expires_at: float


class Round(NamedTuple):
    """One decision of one pool and the resulting plan, for the journal and for explanations."""

    at: float
    pool: str
    decision: Decision
    plan: RoundPlan
    rows: Ints  # that the decision refers to
    job_ids: tuple[str, ...]  # of these rows, in this order
    serials: Ints  # likewise
    cluster: Cluster  # in which the plan's GPUs have their positions
    is_new: bool = True  # the policy was called; otherwise its last decision still stands
    unsolved: str = ""  # why the policy failed, so that its last decision was carried over


class Reaction(NamedTuple):
    """The result of one event: commands for the engine, the rounds behind them for the record,
    notices for operators."""

    commands: tuple[Command, ...]
    rounds: tuple[Round, ...]
    notices: tuple[Notice, ...] = ()
