"""A pool: part of the cluster with a policy of its own, and when that policy is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from math import ceil, floor, inf

from horae.model.cluster import Cluster
from horae.model.errors import InputError
from horae.model.jobs import Job
from horae.model.speeds import Sharing


class Cadence(Enum):
    EVENTS = "events"  # whenever something has happened
    ROUNDS = "rounds"  # at multiples of round_seconds


@dataclass(frozen=True, slots=True)
class RoundRules:
    """How shares of time are turned into rounds."""

    type_order: tuple[str, ...] = ()  # these GPU types are given out one after the other; none: all together
    reconsider_seconds: float = 0.0  # shares stand at least so long, whatever happens
    fill: bool = False  # GPUs that nobody has a claim to go to jobs without a share there
    turn_rounds: float = 10.0  # how far ahead of the others whoever runs may get; 0: Gavel's priorities, no head start
    restart_share_max: float = 0.1  # a turn is so long that the restart before it is no more than this part of it

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
    round_seconds: float = 360.0  # under EVENTS: the least time between two looks at something that changes by itself
    tenants: tuple[str, ...] = ()  # none: all tenants without a pool of their own
    nodes: tuple[str, ...] = ()  # none: all nodes without a pool of their own
    rules: RoundRules = RoundRules()
    cells: Mapping[str, int] = field(default_factory=dict)  # what its tenant reserves, e.g. {"A100.node": 6}
    quota: Mapping[str, int] = field(default_factory=dict)  # by GPU type: so many at a time, wherever they are
    spreads: bool = False  # gangs go to the emptiest node that holds them, rather than to the fullest
    borrow: bool = True  # its tenant's jobs may run outside its cells while these have no room, without a guarantee
    admits_between_rounds: bool = False  # under ROUNDS: jobs that have just come start at once on free GPUs
    pinned: Mapping[str, str] = field(default_factory=dict)  # by name: cells that are its tenant's for good, e.g. "n07"

    def __post_init__(self) -> None:
        if not 0 < self.round_seconds < inf:
            raise InputError(
                f"pool {self.name!r} has rounds of {self.round_seconds} seconds",
                field="round_seconds",
                remedy="give a positive number",
            )

    @property
    def reserves(self) -> bool:
        """Whether its tenant has cells: its GPUs are then those of a virtual cluster."""
        return bool(self.cells or self.pinned)

    def boundary(self, at: float) -> float:
        """The first round boundary at or after this time; a hair later counts as on it."""
        return inf if at == inf else ceil(at / self.round_seconds - 1e-9) * self.round_seconds

    def boundary_after(self, at: float) -> float:
        number = floor(at / self.round_seconds + 1e-9) + 1
        while number * self.round_seconds <= at:  # rounding, late in a long run of short rounds
            number += 1
        return number * self.round_seconds


class PoolOfJob:
    """Which pool a job belongs to: its tenant's, or the one for all tenants without a pool of their own."""

    def __init__(self, specs: Sequence[PoolSpec]) -> None:
        self._reserves = [spec.reserves for spec in specs]
        self._lost_all = [bool(spec.cells) and not sum(spec.cells.values()) and not spec.pinned for spec in specs]
        self.by_tenant = {tenant: index for index, spec in enumerate(specs) for tenant in spec.tenants}
        self.open_pool = next((index for index, spec in enumerate(specs) if not spec.tenants), None)

    def find(self, job: Job) -> int | None:
        """None where no pool serves the tenant. Work without a guarantee is not for reserved cells."""
        own = self.by_tenant.get(job.tenant)
        if own is None or (self._reserves[own] and job.priority < 0) or self._lost_all[own]:
            return self.open_pool
        return own


@dataclass(frozen=True)
class Setup:
    """All that a scheduler is made of; with the events, it determines a run to the last bit."""

    cluster: Cluster
    pools: tuple[PoolSpec, ...]
    seed: int = 0
    tenant_weights: Mapping[str, float] = field(default_factory=dict)  # 1 for those not named
    acknowledge_seconds: float = 30.0  # a command unanswered for so long is sent again
    survey_seconds: float = inf  # how often the engine is asked for everything it runs
    bid_seconds: float = 5.0  # how long an auction waits for agents of its apps
    sharing: tuple[Sharing, ...] = ()  # what two jobs on the same GPUs are believed to keep of their speeds
    absent_nodes: tuple[str, ...] = ()  # not there yet: they join when they are told to be healthy
    static_binding: bool = False  # tenants' cells have the same GPUs for good, rather than any while they are used
    start_seconds: float = 1800.0  # an engine that tells phases has so long from a start to the first work
    retention_seconds: float = 7 * 86_400.0  # ended jobs are remembered for so long
    incarnation: int = 0  # raised whenever a log is continued from an older state than the cluster's

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
