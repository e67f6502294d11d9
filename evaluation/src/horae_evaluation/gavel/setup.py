"""The setup of Gavel's simulations (OSDI'20, section 7.1), and the parameters in which runs may differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf, isinf
from pathlib import Path

import polars as pl

from horae.experiments.learning import Learning
from horae.model.cluster import CLUSTER, NODE, Cluster, Node
from horae.model.errors import InputError
from horae.model.jobs import Arrival
from horae.model.serialization import to_plain
from horae.model.setup import Cadence, PoolSpec, RoundRules, Setup
from horae.model.speeds import Measurement, Sharing
from horae.speed.table import SpeedBook
from horae.traces.generators.gavel import GavelWorkload, reference_speeds
from horae.traces.jobs import arrivals
from horae.traces.sharing_table import sharing_rows
from horae.traces.speed_tables import read_gavel_colocated, read_gavel_csv

TYPES = ("v100", "p100", "k80")
GPUS_PER_TYPE, GPUS_PER_NODE = 36, 4
ROUND_SECONDS = 360.0
FIRST, LAST = 4000, 5000  # the measured jobs, by their position in the order of arrival
JOBS_AFTER_MAX = 30_000  # after the last of them: longer than any job takes on any GPU, at the rates of the paper
AT_ONCE = inf  # jobs per hour, where all jobs are submitted at the beginning

OURS = RoundRules()
# The rules of the public mechanism: types in a fixed order, new shares at most every 1,920 s, no GPU left idle, and
# no priority for running jobs.
COMPATIBLE = RoundRules(type_order=TYPES, reconsider_seconds=1920.0, fill=True, turn_rounds=0.0)


@dataclass(frozen=True)
class GavelCase:
    """Everything that determines a run, except for the tables."""

    workload: str  # single: gangs of one GPU; multi: of 1, 2, 4 and 8
    jobs_per_hour: float
    policy: str
    options: Mapping[str, object] = field(default_factory=dict)
    seed: int = 0
    first: int = FIRST
    last: int = LAST
    rules: RoundRules = OURS
    round_seconds: float = ROUND_SECONDS
    restart_seconds: float = 0.0
    speed_noise: float = 0.0  # relative error of estimated speeds, drawn by model, gang and GPU type
    learning: Learning | None = None  # speeds are estimated from what was learned; None: they are known
    spread_is_slower: bool = False  # gangs over several nodes run at the speed that was measured there

    def __str__(self) -> str:
        options = "".join(f" {key}={value}" for key, value in self.options.items())
        rate = "all at once" if isinf(self.jobs_per_hour) else f"{self.jobs_per_hour:g} jobs/h"
        unusual = [f"{name} {value}" for name, value in to_plain(self).items() if name in _VARIED]
        return ", ".join([f"{self.policy}{options}", self.workload, rate, *unusual, f"seed {self.seed}"])


_VARIED = frozenset({"rules", "round_seconds", "restart_seconds", "speed_noise", "learning", "spread_is_slower"})


@dataclass(frozen=True)
class Tables:
    """The authors' measured speeds."""

    measurements: tuple[Measurement, ...]
    sharing: tuple[Sharing, ...]

    @cached_property
    def reference(self) -> dict[tuple[str, int], float]:
        return reference_speeds(self.measurements, TYPES[0])

    @cached_property
    def book_anywhere(self) -> SpeedBook:
        """Speeds as in the authors' simulator, where a gang is equally fast wherever its GPUs are."""
        inside = (row for row in self.measurements if row.shape.level == NODE)
        return SpeedBook(tuple(row._replace(shape=row.shape._replace(level=CLUSTER)) for row in inside))

    @cached_property
    def book_by_place(self) -> SpeedBook:
        return SpeedBook(self.measurements)


def read_tables(data: Path) -> Tables:
    measurements = read_gavel_csv(data)
    return Tables(measurements, sharing_rows(read_gavel_colocated(data), measurements))


def setup_of(case: GavelCase, tables: Tables) -> Setup:
    nodes = tuple(
        Node(f"{kind}-{number}", kind, GPUS_PER_NODE)
        for kind in TYPES
        for number in range(GPUS_PER_TYPE // GPUS_PER_NODE)
    )
    pool = PoolSpec("all", case.policy, case.options, Cadence.ROUNDS, case.round_seconds, rules=case.rules)
    cluster = Cluster("gavel", nodes, restart_seconds=case.restart_seconds)
    return Setup(cluster, (pool,), seed=case.seed, sharing=tables.sharing)


def arrivals_of(case: GavelCase, tables: Tables, cluster: Cluster) -> Iterator[Arrival]:
    """The arrivals: more jobs than are measured, so that the last measured ones do not run on an empty cluster."""
    made, count = 0, case.last
    while made < count:
        yield from _first(count, case, tables, cluster)[made:]
        # The first jobs are the same however many are generated after them.
        made, count = count, count if isinf(case.jobs_per_hour) else min(2 * count + 1000, case.last + JOBS_AFTER_MAX)


def _first(count: int, case: GavelCase, tables: Tables, cluster: Cluster) -> list[Arrival]:
    is_at_once = isinf(case.jobs_per_hour)
    generator = GavelWorkload(
        tables.reference,
        jobs=count,
        jobs_per_hour=1.0 if is_at_once else case.jobs_per_hour,
        multi_gpu=case.workload == "multi",
    )
    trace = generator.trace(case.seed)
    table = trace.table.with_columns(level=pl.lit(CLUSTER))
    if is_at_once:
        table = table.with_columns(submit=pl.lit(0.0))
    book = tables.book_by_place if case.spread_is_slower else tables.book_anywhere
    made, faults = arrivals(replace(trace, table=table), cluster, book)
    if faults:
        problem = f"job {faults[0].line}: {faults[0].problem}"
        raise InputError(problem, remedy="fetch gavel/throughputs_isolated.csv again")
    return made
