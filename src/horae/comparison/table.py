"""A comparison in numbers: a row for each policy, and how each differs from the baseline on the same jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from math import nan

import numpy as np

from horae.comparison.resample import DAY_SECONDS, block_seconds
from horae.comparison.run import Outcome
from horae.model.arrays import Floats
from horae.reports.bounds import bounds
from horae.reports.log import RunLog
from horae.reports.metrics import GroupMetrics, Metrics, measure
from horae.reports.statistics import Difference, paired, paired_by_block

CONFIDENCE = 0.95
SEEDS, DAYS, TENTHS = "seeds", "days", "tenths of the trace"  # what an interval can be over
Numbers = Mapping[str, float]  # by name of the metric, with dots: rho_paper.max; nan where there is none


@dataclass(frozen=True)
class Versus:
    """A policy beside the baseline: mean completion time of the jobs that finished under both."""

    jobs: int  # that were paired, over all seeds
    baseline_mean_seconds: float
    seconds: Difference
    relative: Difference  # as a share of the baseline's mean
    over: str  # what the intervals are over


@dataclass(frozen=True)
class Row:
    label: str
    by_seed: tuple[Numbers, ...]
    groups_by_seed: tuple[Mapping[str, Numbers], ...]  # by tenant or user, where that was asked for
    versus: Versus | None  # None for the baseline itself

    @property
    def mean(self) -> Numbers:
        return mean(self.by_seed)

    @property
    def groups(self) -> Mapping[str, Numbers]:
        """The means over those seeds in which the group has jobs."""
        names = sorted({name for groups in self.groups_by_seed for name in groups})
        return {name: mean([groups[name] for groups in self.groups_by_seed if name in groups]) for name in names}


@dataclass(frozen=True)
class Comparison:
    rows: tuple[Row, ...]
    baseline: str
    by: str  # "", "tenants" or "users"
    lower_bound: Numbers  # of each metric that has one; nobody can do better on these jobs


def tabulate(outcomes: Sequence[Outcome], baseline: str, by: str = "") -> Comparison:
    logs: dict[str, list[RunLog]] = {}
    for outcome in outcomes:
        logs.setdefault(outcome.task.label, []).append(outcome.log)
    rows = tuple(_row(label, each, None if label == baseline else logs[baseline], by) for label, each in logs.items())
    return Comparison(rows, baseline, by, mean([_bounds(log) for log in logs[baseline]]))


def mean(rows: Sequence[Numbers]) -> Numbers:
    if len(rows) == 1:
        return rows[0]
    return {name: float(np.mean([row.get(name, nan) for row in rows])) for name in rows[0]}


def versus(baselines: Sequence[RunLog], others: Sequence[RunLog]) -> Versus:
    """Over seeds, where there are several; otherwise over the days of the one run."""
    pairs = [_common(one, other) for one, other in zip(baselines, others, strict=True)]
    jobs = sum(len(times) for times, _, _ in pairs)
    times, base, other = pairs[0]
    if len(pairs) > 1:
        base, other = (np.array([_mean(pair[side]) for pair in pairs]) for side in (1, 2))
        return _versus(jobs, base, other, lambda one, two: paired(one, two, CONFIDENCE), SEEDS)
    length_seconds = block_seconds(float(np.ptp(times))) if jobs else 0.0
    blocks_seconds = length_seconds * (1 + 1e-9) or 1.0  # so that the very last job does not make an eleventh tenth
    over = DAYS if length_seconds == DAY_SECONDS else TENTHS
    return _versus(
        jobs, base, other, lambda one, two: paired_by_block(times, one, two, blocks_seconds, 0, CONFIDENCE), over
    )


def _versus(
    jobs: int, base: Floats, other: Floats, differ: Callable[[Floats, Floats], Difference], over: str
) -> Versus:
    """The ratio of two means varies as the mean of (other - ratio x baseline) / baseline's mean does (Cochran, 1977).

    To divide the interval in seconds by the baseline's mean would leave out that this mean varies too, and together
    with the other.
    """
    base_mean, ratio = _mean(base), _mean(other) / (_mean(base) or nan)
    _, low, high, samples = differ(ratio * base / (base_mean or nan), other / (base_mean or nan))
    relative = Difference(ratio - 1, ratio - 1 + low, ratio - 1 + high, samples)
    return Versus(jobs, base_mean, differ(base, other), relative, over)


def _mean(values: Floats) -> float:
    return float(values.mean()) if len(values) else nan


def _row(label: str, logs: Sequence[RunLog], baselines: Sequence[RunLog] | None, by: str) -> Row:
    measured = [measure(log) for log in logs]
    return Row(
        label,
        tuple(numbers(each) for each in measured),
        tuple(_groups(each, by) for each in measured),
        versus(baselines, logs) if baselines is not None else None,
    )


def numbers(metrics: object) -> Numbers:
    """All the numbers of one run or group, flat; not those of the groups within it."""
    assert is_dataclass(metrics)
    found: dict[str, float] = {}
    for field in fields(metrics):
        value = getattr(metrics, field.name)
        inner: Mapping[str, object] = {}
        if is_dataclass(value):
            inner = numbers(value)
        elif isinstance(value, Mapping):
            inner = value
        else:
            found[field.name] = value
        found |= {f"{field.name}.{name}": item for name, item in inner.items() if isinstance(item, int | float)}
    return found


def _groups(metrics: Metrics, by: str) -> Mapping[str, Numbers]:
    groups: Mapping[str, GroupMetrics] = getattr(metrics, by) if by else {}
    return {name: numbers(group) for name, group in groups.items() if group.jobs}


def _bounds(log: RunLog) -> Numbers:
    found = bounds(log)
    return {
        "completion_mean_seconds": found.completion_mean_seconds,
        "makespan_seconds": found.makespan_seconds,
    }


def _common(one: RunLog, other: RunLog) -> tuple[Floats, Floats, Floats]:
    """Of the jobs that finished in both: submission, and completion time in each."""
    rows_other = {other.jobs.id[row]: row for row in np.flatnonzero(other.finished).tolist()}
    rows = [row for row in np.flatnonzero(one.finished).tolist() if one.jobs.id[row] in rows_other]
    there = [rows_other[one.jobs.id[row]] for row in rows]
    return (
        one.jobs.submitted_at[rows],
        (one.jobs.ended_at - one.jobs.submitted_at)[rows],
        (other.jobs.ended_at - other.jobs.submitted_at)[there],
    )
