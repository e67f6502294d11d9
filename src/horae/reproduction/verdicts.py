"""Whether runs and published figures agree.

Both are means over random draws, and not the same ones, so equality is not asked for. What is: heterogeneity-aware
max-min is not slower than published, and policies that were published clearly apart come in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from math import isinf, isnan
from typing import NamedTuple

from horae.reproduction.published import AWARE_MAX_MIN
from horae.reproduction.rows import Row, Spread

APART = 0.15  # published figures that differ by more are in a certain order


class Swap(NamedTuple):
    """Two policies that do not come in the published order."""

    better: Row  # as published
    worse: Row

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


def _when(row: Row) -> str:
    return "all at once" if isinf(row.jobs_per_hour) else f"{row.jobs_per_hour:g} jobs/h"


def is_above(row: Row) -> bool:
    """Beyond two standard errors; one seed has none, and counts as it is."""
    margin = row.hours.two_standard_errors
    return row.is_published and row.hours.mean - (0.0 if isnan(margin) else margin) > row.published_hours


def too_slow(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row.policy == AWARE_MAX_MIN and is_above(row)]


def swaps(rows: Sequence[Row]) -> list[Swap]:
    """At one workload and rate; those that come out equal keep their order."""
    return [
        Swap(better, worse)
        for better, worse in permutations([row for row in rows if row.is_published], 2)
        if (better.workload, better.jobs_per_hour) == (worse.workload, worse.jobs_per_hour)
        and worse.published_hours > better.published_hours * (1 + APART)
        and better.hours.mean > worse.hours.mean
    ]


def verdict(row: Row, rows: Sequence[Row]) -> str:
    """In a word, for the table."""
    if not row.is_published:
        return "not published"
    found = []
    if row.policy == AWARE_MAX_MIN:
        found.append("ABOVE" if is_above(row) else "not above")
    broken = sum(row in swap for swap in swaps(rows))
    found.append(f"ORDER BROKEN ({broken})" if broken else "in order")
    return ", ".join(found)


def holds(rows: Sequence[Row]) -> bool:
    return not too_slow(rows) and not swaps(rows)
