"""A comparison in numbers: one row per policy, and how each differs from the baseline on the same jobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from math import nan

import numpy as np

from horae.experiments.compare.baseline_difference import (
    Common,
    Means,
    Versus,
    common,
    over_days,
    over_draws,
    over_seeds,
)
from horae.experiments.compare.run import ComparedRun
from horae.policies.registry import uses_lengths
from horae.reports import UNFAIR_ABOVE
from horae.reports.bounds import bounds
from horae.reports.metrics import GroupMetrics, Metrics, measure
from horae.reports.run_log import RunLog

DRAWS_NEEDED = 2  # fewer have no spread; the days of the trace itself say more
Numbers = Mapping[str, float]  # by name of the metric, with dots: rho_paper.max; nan where there is none


@dataclass(frozen=True)
class ComparisonRow:
    label: str
    estimate: Numbers
    groups: Mapping[str, Numbers]  # by tenant or user, where requested
    by_seed: tuple[Numbers, ...]
    groups_by_seed: tuple[Mapping[str, Numbers], ...]
    versus: Versus | None  # None for the baseline itself
    uses_lengths: bool = False  # the policy knows run times in advance


@dataclass(frozen=True)
class Comparison:
    rows: tuple[ComparisonRow, ...]
    baseline: str
    by: str  # "", "tenants" or "users"
    lower_bound: Numbers  # of each metric that has one; no policy can do better on these jobs
    is_recorded: bool  # estimates are of the trace as it is, which is seed 0; otherwise they are means over seeds
    logs: Mapping[str, RunLog]  # of seed 0
    unfair_above: float = UNFAIR_ABOVE
    other_bounds: Mapping[str, Numbers] = field(default_factory=dict)  # by name of another cluster: its lower bound

    def without_groups(self) -> Comparison:
        """The same without the numbers of tenants or users."""
        rows = (replace(row, groups={}, groups_by_seed=tuple({} for _ in row.by_seed)) for row in self.rows)
        return replace(self, by="", rows=tuple(rows))


@dataclass(frozen=True)
class TableOptions:
    """What is measured besides the metrics of each run."""

    by: str = ""  # "tenants" or "users": the metrics of each of these as well
    unfair_above: float = UNFAIR_ABOVE  # an app with a larger rho counts as treated unfairly
    weights: Mapping[str, float] = field(default_factory=dict)  # of tenants; 1 for those not named
    has_limits: bool = False  # all jobs have time limits, which some policies use instead of run times
    others: Mapping[str, str] = field(default_factory=dict)  # by name of another cluster: the label of a run on it


PLAIN = TableOptions()


class Tally:
    """What is kept of the runs, of which there may be ten thousand: numbers, and the logs of seed 0.

    A log is kept until all policies have run on its draw; draws are run one after the other.
    """

    def __init__(self, labels: Sequence[str], baseline: str, options: TableOptions) -> None:
        self.labels, self.baseline, self.options = labels, baseline, options
        self.numbers: dict[tuple[str, int], Numbers] = {}
        self.groups: dict[tuple[str, int], Mapping[str, Numbers]] = {}
        self.means: dict[tuple[str, int], Means] = {}
        self.bounds: dict[int, Numbers] = {}
        self.other_bounds: dict[tuple[str, int], Numbers] = {}
        self.first: dict[str, RunLog] = {}
        self.uses_lengths: dict[str, bool] = {}
        self.pairs: dict[str, Common] = {}  # of seed 0
        self._open: dict[int, dict[str, RunLog]] = {}

    @property
    def seeds(self) -> list[int]:
        return sorted(self.bounds)

    def add(self, outcome: ComparedRun) -> None:
        seed, label = outcome.task.seed, outcome.task.label
        if label not in self.uses_lengths:
            names = [pool.policy for pool in outcome.task.setup.pools]
            self.uses_lengths[label] = any(uses_lengths(name, has_limits=self.options.has_limits) for name in names)
        logs = self._open.setdefault(seed, {})
        logs[label] = outcome.log
        if len(logs) == len(self.labels):
            self._close(seed, self._open.pop(seed))

    def _close(self, seed: int, logs: Mapping[str, RunLog]) -> None:
        self.bounds[seed] = _bounds(logs[self.baseline])
        for name, label in self.options.others.items():
            self.other_bounds[name, seed] = _bounds(logs[label])
        for label in self.labels:
            measured = measure(logs[label], self.options.unfair_above)
            self.numbers[label, seed] = numbers(measured)
            self.groups[label, seed] = _groups(measured, self.options)
            if label != self.baseline:
                pair = common(logs[self.baseline], logs[label])
                self.means[label, seed] = pair.means
                if seed == 0:
                    self.pairs[label] = pair
        if seed == 0:
            self.first = {label: logs[label] for label in self.labels}


def tabulate(
    outcomes: Iterable[ComparedRun],
    labels: Sequence[str],
    baseline: str,
    options: TableOptions = PLAIN,
    *,
    is_recorded: bool,
) -> Comparison:
    """Tabulates outcomes in any order; each is released as soon as it is counted."""
    tally = Tally(labels, baseline, options)
    for outcome in outcomes:
        tally.add(outcome)
    shown = [0] if is_recorded else tally.seeds
    rows = tuple(_row(tally, label, shown, is_recorded) for label in labels)
    bound = mean([tally.bounds[seed] for seed in shown])
    others = {name: mean([tally.other_bounds[name, seed] for seed in shown]) for name in options.others}
    return Comparison(rows, baseline, options.by, bound, is_recorded, tally.first, options.unfair_above, others)


def _row(tally: Tally, label: str, shown: Sequence[int], is_recorded: bool) -> ComparisonRow:
    return ComparisonRow(
        label,
        mean([tally.numbers[label, seed] for seed in shown]),
        _group_means([tally.groups[label, seed] for seed in shown]),
        tuple(tally.numbers[label, seed] for seed in tally.seeds),
        tuple(tally.groups[label, seed] for seed in tally.seeds),
        None if label == tally.baseline else _versus(tally, label, is_recorded),
        tally.uses_lengths[label],
    )


def _versus(tally: Tally, label: str, is_recorded: bool) -> Versus:
    means = [tally.means[label, seed] for seed in tally.seeds]
    if len(means) == 1 or (is_recorded and len(means) <= DRAWS_NEEDED):
        return over_days(tally.pairs[label])
    return over_draws(means) if is_recorded else over_seeds(means)


def mean(rows: Sequence[Numbers]) -> Numbers:
    if len(rows) == 1:
        return rows[0]
    return {name: float(np.mean([row.get(name, nan) for row in rows])) for name in rows[0]}


def _group_means(by_seed: Sequence[Mapping[str, Numbers]]) -> Mapping[str, Numbers]:
    """Means over the seeds in which the group has jobs."""
    names = sorted({name for groups in by_seed for name in groups})
    return {name: mean([groups[name] for groups in by_seed if name in groups]) for name in names}


def numbers(metrics: object) -> Numbers:
    """All numbers of one run or group, flat, without those of the groups within it."""
    assert is_dataclass(metrics)
    found: dict[str, float] = {}
    for each in fields(metrics):
        value = getattr(metrics, each.name)
        inner: Mapping[str, object] = {}
        if is_dataclass(value):
            inner = numbers(value)
        elif isinstance(value, Mapping):
            inner = value
        else:
            found[each.name] = value
        found |= {f"{each.name}.{name}": item for name, item in inner.items() if isinstance(item, int | float)}
    return found


def _groups(metrics: Metrics, options: TableOptions) -> Mapping[str, Numbers]:
    """The metrics of each group that has jobs, with its share of the GPU-hours and, for tenants, of the weights."""
    groups: Mapping[str, GroupMetrics] = getattr(metrics, options.by) if options.by else {}
    present = {name: group for name, group in groups.items() if group.jobs}
    weights = {name: options.weights.get(name, 1.0) for name in present} if options.by == "tenants" else {}
    return {
        name: {
            **numbers(group),
            "gpu_hours_share": group.gpu_hours / metrics.gpu_hours if metrics.gpu_hours else nan,
            **({"weight_share": weights[name] / sum(weights.values())} if weights else {}),
        }
        for name, group in present.items()
    }


def _bounds(log: RunLog) -> Numbers:
    found = bounds(log)
    return {
        "completion_mean_seconds": found.completion_mean_seconds,
        "makespan_seconds": found.makespan_seconds,
    }
