"""Runs of several seeds as one row, with the published value."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from math import isinf, isnan, nan, sqrt
from typing import NamedTuple, TypeAlias

import numpy as np

from horae.experiments.compare.run_spec import PolicyChoice
from horae.model.errors import PolicyError
from horae.policies.registry import make_policy
from horae_evaluation.gavel.published import (
    AWARE_MAX_MIN,
    MAKESPAN_HOURS,
    MAKESPAN_JOBS,
    MAKESPAN_POLICIES,
    POLICIES,
    RULES,
    Published,
    published_hours,
)
from horae_evaluation.gavel.run import GavelResult
from horae_evaluation.gavel.setup import AT_ONCE, OURS, GavelCase

HOUR = 3600.0
RATES: Mapping[str, tuple[float, ...]] = {"single": (4.8, 5.6), "multi": (2.4, 2.6)}
Solve: TypeAlias = Callable[[Sequence[GavelCase]], Sequence[GavelResult]]


@dataclass(frozen=True)
class Spread:
    """A mean over seeds and its standard error."""

    mean: float
    two_standard_errors: float  # nan for one seed
    seeds: int

    @staticmethod
    def of(values: Sequence[float]) -> Spread:
        count = len(values)
        error = nan if count < 2 else 2 * float(np.std(values, ddof=1)) / sqrt(count)
        return Spread(float(np.mean(values)), error, count)


@dataclass(frozen=True)
class GavelRow:
    """A policy at an arrival rate: our result, and the published one."""

    workload: str
    jobs_per_hour: float  # inf: all jobs are submitted at the beginning
    policy: str  # the authors' name
    ours: str
    hours: Spread  # mean completion time, or makespan
    published_hours: float  # nan: not published
    is_loaded: bool = True  # jobs were submitted until all measured ones had ended
    by_seed: tuple[float, ...] = ()  # hours

    @property
    def difference(self) -> float:
        return self.hours.mean / self.published_hours - 1

    @property
    def is_published(self) -> bool:
        return not isnan(self.published_hours)


@dataclass(frozen=True)
class Line:
    """A row before it is run."""

    policy: str
    choice: PolicyChoice
    published_hours: float
    case: GavelCase  # of any seed


def written(choice: PolicyChoice) -> str:
    """A choice as a user would write it."""
    words = ", ".join(
        f"{key}: {str(value).lower() if isinstance(value, bool) else value}" for key, value in choice.options.items()
    )
    return f"{choice.name}={{{words}}}" if words else choice.name


def missing_policies(choices: Mapping[str, PolicyChoice]) -> dict[str, str]:
    """By name: why a policy cannot be run here."""
    found = {}
    for name, choice in choices.items():
        try:
            make_policy(choice.name, choice.options)
        except PolicyError as error:
            found[name] = error.problem
    return found


def lines_by_rate(
    published: Published,
    choices: Mapping[str, PolicyChoice],
    rates: Mapping[str, Sequence[float]],
    like: GavelCase,
    named: bool,
) -> list[Line]:
    """The rows to run by rate: `named` policies at every rate, others where a value was published."""
    lines = []
    for workload, each in rates.items():
        for rate in each:
            for policy, choice in choices.items():
                hours = published_hours(published, workload, policy, rate)
                if named or not isnan(hours):
                    lines.append(Line(policy, choice, hours, _case(like, workload, rate, choice)))
    return lines


def lines_of_makespan(choices: Mapping[str, PolicyChoice], like: GavelCase) -> list[Line]:
    """The rows of makespan.

    The authors' figures are of single-GPU jobs: the longest of 500 takes about their best makespan.
    """
    jobs = min(MAKESPAN_JOBS, like.last)
    like = replace(like, first=0, last=jobs)
    return [
        Line(policy, choice, MAKESPAN_HOURS.get(policy, nan), _case(like, "single", AT_ONCE, choice))
        for policy, choice in choices.items()
    ]


def _case(like: GavelCase, workload: str, rate: float, choice: PolicyChoice) -> GavelCase:
    rules = RULES.get(choice.name, like.rules) if like.rules == OURS else like.rules
    return replace(like, workload=workload, jobs_per_hour=rate, policy=choice.name, options=choice.options, rules=rules)


def rows(lines: Sequence[Line], seeds: int, solve: Solve) -> list[GavelRow]:
    results = by_case([line.case for line in lines], seeds, solve)
    return [_row(line, each) for line, each in zip(lines, results, strict=True)]


def by_case(cases: Sequence[GavelCase], seeds: int, solve: Solve) -> list[Sequence[GavelResult]]:
    """Runs seed by seed, so that an interrupted run has all rows with fewer seeds rather than a few rows."""
    order = [replace(case, seed=seed) for seed in range(seeds) for case in cases]
    results = solve(order)
    return [results[place :: len(cases)] for place in range(len(cases))]


def _row(line: Line, results: Sequence[GavelResult]) -> GavelRow:
    at_once = line.case.jobs_per_hour == AT_ONCE
    hours = [(each.last_end_seconds if at_once else each.completion_mean_seconds) / HOUR for each in results]
    return GavelRow(
        line.case.workload,
        line.case.jobs_per_hour,
        line.policy,
        written(line.choice),
        Spread.of(hours),
        line.published_hours,
        at_once or all(each.is_loaded for each in results),
        tuple(hours),
    )


def choices_of(names: Sequence[tuple[str, Mapping[str, object]]], makespan: bool) -> dict[str, PolicyChoice]:
    """The requested policies: an authors' name, possibly with options, or a policy of ours."""
    known = MAKESPAN_POLICIES if makespan else POLICIES
    if not names:
        return dict(known)
    found = {}
    for name, options in names:
        choice = known.get(name, PolicyChoice(name, {}))
        found[name] = PolicyChoice(choice.name, {**choice.options, **options})
    return found


# Agreement between runs and published figures

APART = 0.15  # published figures that differ by more have a definite order


class Swap(NamedTuple):
    """Two policies that do not come out in the published order."""

    better: GavelRow  # as published
    worse: GavelRow

    def __str__(self) -> str:
        better, worse = self
        where = f"{better.workload}, {_when(better)}"
        was = f"{better.published_hours:.1f} and {worse.published_hours:.1f} h"
        now = f"{better.hours.mean:.1f} and {worse.hours.mean:.1f} h"
        told = f"{where}: {better.policy} was published below {worse.policy} ({was}), and comes out above it ({now})"
        if len(better.by_seed) < 2 or len(better.by_seed) != len(worse.by_seed):
            return told
        apart = Spread.of([one - other for one, other in zip(better.by_seed, worse.by_seed, strict=True)])
        return f"{told}; seed by seed {apart.mean:+.1f} +- {apart.two_standard_errors:.1f} h"


def _when(row: GavelRow) -> str:
    return "all at once" if isinf(row.jobs_per_hour) else f"{row.jobs_per_hour:g} jobs/h"


def is_above(row: GavelRow) -> bool:
    """Whether a row is above the published value by more than two standard errors;
    one seed has none, and counts as is."""
    margin = row.hours.two_standard_errors
    return row.is_published and row.hours.mean - (0.0 if isnan(margin) else margin) > row.published_hours


def too_slow(rows: Sequence[GavelRow]) -> list[GavelRow]:
    return [row for row in rows if row.policy == AWARE_MAX_MIN and is_above(row)]


def swaps(rows: Sequence[GavelRow]) -> list[Swap]:
    """Swapped pairs at one workload and rate; equal results keep their order."""
    return [
        Swap(better, worse)
        for better, worse in permutations([row for row in rows if row.is_published], 2)
        if (better.workload, better.jobs_per_hour) == (worse.workload, worse.jobs_per_hour)
        and worse.published_hours > better.published_hours * (1 + APART)
        and better.hours.mean > worse.hours.mean
    ]


def verdict(row: GavelRow, rows: Sequence[GavelRow]) -> str:
    """The verdict in a word, for the table."""
    if not row.is_published:
        return "not published"
    found = []
    if row.policy == AWARE_MAX_MIN:
        found.append("ABOVE" if is_above(row) else "not above")
    broken = sum(row in swap for swap in swaps(rows))
    found.append(f"ORDER BROKEN ({broken})" if broken else "in order")
    return ", ".join(found)


def holds(rows: Sequence[GavelRow]) -> bool:
    return not too_slow(rows) and not swaps(rows)
