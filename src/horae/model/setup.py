"""Pools: parts of the cluster, each with its own policy, and when that policy is called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from math import ceil, floor, inf

from horae.model.cluster import Cluster
from horae.model.errors import InputError
from horae.model.jobs import Job
from horae.model.speeds import Sharing

LATE_SHARE = 0.02  # of a round: how late it may be and still count as begun at its boundary
ROUNDING_SECONDS = 1e-6


class Cadence(Enum):
    EVENTS = "events"  # after every event
    ROUNDS = "rounds"  # at multiples of round_seconds


@dataclass(frozen=True, slots=True)
class RoundRules:
    """How shares of time are converted into rounds."""

    type_order: tuple[str, ...] = ()  # these GPU types are allocated one after the other; none: all together
    reconsider_seconds: float = 0.0  # shares are kept at least this long, whatever happens
    fill: bool = False  # GPUs that no job claims go to jobs without a share there
    turn_rounds: float = 10.0  # how far ahead of the others a running job may get; 0: Gavel's priorities, no head start
    restart_share_max: float = 0.1  # a turn is long enough that the restart before it is at most this fraction of it

    def __post_init__(self) -> None:
        for name, is_right, remedy in (
            ("reconsider_seconds", 0 <= self.reconsider_seconds < inf, "give 0 or more"),
            ("turn_rounds", 0 <= self.turn_rounds < inf, "give 0 or more"),
            ("restart_share_max", 0 < self.restart_share_max <= 1, "give a number above 0, up to 1"),
            ("type_order", len(set(self.type_order)) == len(self.type_order), "name each GPU type once"),
        ):
            if not is_right:
                raise InputError(f"{name} is {getattr(self, name)}", field=name, remedy=remedy)


@dataclass(frozen=True, slots=True)
class PoolSpec:
    name: str
    policy: str = "fifo"
    options: Mapping[str, object] = field(default_factory=dict)
    cadence: Cadence = Cadence.EVENTS
    round_seconds: float = 360.0  # under EVENTS: the least time between decisions about values that change continuously
    tenants: tuple[str, ...] = ()  # none: all tenants without their own pool
    nodes: tuple[str, ...] = ()  # none: all nodes that belong to no other pool
    rules: RoundRules = RoundRules()
    cells: Mapping[str, int] = field(default_factory=dict)  # cells that its tenant reserves, e.g. {"A100.node": 6}
    quota: Mapping[str, int] = field(default_factory=dict)  # by GPU type: the maximum in use at a time, on any nodes
    spreads: bool = False  # gangs go to the emptiest node that holds them, rather than to the fullest
    borrow: bool = True  # its tenant's jobs may run outside its cells while these are full, without a guarantee
    admits_between_rounds: bool = False  # under ROUNDS: jobs that wait start at once on free GPUs
    pinned: Mapping[str, str] = field(default_factory=dict)  # by name: permanent cells of its tenant, e.g. "n07"

    def __post_init__(self) -> None:
        if not 0 < self.round_seconds < inf:
            raise InputError(
                f"pool {self.name!r} has rounds of {self.round_seconds} seconds",
                field="round_seconds",
                remedy="give a positive number",
            )

    @property
    def reserves(self) -> bool:
        """Whether its tenant reserves cells; its GPUs are then those of a virtual cluster."""
        return bool(self.cells or self.pinned)

    def boundary(self, at: float) -> float:
        """The first round boundary at or after this time; within rounding error counts as on it."""
        return inf if at == inf else ceil(at / self.round_seconds - 1e-9) * self.round_seconds

    def lateness(self, at: float) -> float:
        """By how much a round that is decided at this time is late; 0 between rounds.

        On a real cluster a round begins moments after its boundary. Times that it sets count from the boundary: a lease
        that ended a moment after the next one would last a whole round longer.
        """
        if self.cadence is Cadence.EVENTS:
            return 0.0
        late_seconds = at - floor(at / self.round_seconds) * self.round_seconds
        return late_seconds if ROUNDING_SECONDS < late_seconds <= LATE_SHARE * self.round_seconds else 0.0

    def boundary_after(self, at: float) -> float:
        number = floor(at / self.round_seconds + 1e-9) + 1
        while number * self.round_seconds <= at:  # rounding error, late in a long run of short rounds
            number += 1
        return number * self.round_seconds


class PoolOfJob:
    """Maps a job to its pool: its tenant's, or the one for all tenants without their own pool."""

    def __init__(self, specs: Sequence[PoolSpec]) -> None:
        self._reserves = [spec.reserves for spec in specs]
        self._lost_all = [bool(spec.cells) and not sum(spec.cells.values()) and not spec.pinned for spec in specs]
        self.by_tenant = {tenant: index for index, spec in enumerate(specs) for tenant in spec.tenants}
        self.open_pool = next((index for index, spec in enumerate(specs) if not spec.tenants), None)

    def find(self, job: Job) -> int | None:
        """The job's pool, or None where no pool serves the tenant.

        Jobs without a guarantee do not use reserved cells.
        """
        own = self.by_tenant.get(job.tenant)
        if own is None or (self._reserves[own] and job.priority < 0) or self._lost_all[own]:
            return self.open_pool
        return own


@dataclass(frozen=True)
class Setup:
    """The whole configuration of a scheduler; together with the events, it determines a run to the last bit."""

    cluster: Cluster
    pools: tuple[PoolSpec, ...]
    seed: int = 0
    tenant_weights: Mapping[str, float] = field(default_factory=dict)  # 1 for tenants not named
    acknowledge_seconds: float = 30.0  # a command not acknowledged within this time is sent again
    survey_seconds: float = inf  # how often the engine is surveyed
    bid_seconds: float = 5.0  # how long an auction waits for the agents of its apps
    sharing: tuple[Sharing, ...] = ()  # estimated fractions of their speeds that two jobs on the same GPUs keep
    absent_nodes: tuple[str, ...] = ()  # not present yet: they join when reported as healthy
    static_binding: bool = False  # tenants' cells have permanently the same GPUs, rather than any while they are used
    start_seconds: float = 1800.0  # time limit from a start to the first work, for engines that report phases
    retention_seconds: float = 7 * 86_400.0  # ended jobs are remembered for this long
    incarnation: int = 0  # incremented whenever a log is continued from an older state than the cluster's

    def __post_init__(self) -> None:
        if not 0 <= self.bid_seconds < inf:
            raise InputError(f"bid_seconds is {self.bid_seconds}", field="bid_seconds", remedy="give 0 or more")
        for node in self.absent_nodes:
            if node not in self.cluster.node_index:
                raise InputError(f"there is no node {node!r}", field="absent_nodes", remedy="name nodes of the cluster")
        for tenant, weight in self.tenant_weights.items():
            if not 0 < weight < inf:
                raise InputError(
                    f"tenant {tenant!r} has weight {weight}", field="weight", remedy="give a positive number"
                )
