"""Sums, means and quantiles by group, without a loop over rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from horae.model.arrays import Bools, Floats, Ints


def sums_by(group: Ints, values: Floats | Ints, count: int) -> Floats:
    """By group from 0 to count - 1: the sum of its values."""
    return np.bincount(group, values, minlength=count).astype(np.float64, copy=False)


@dataclass(frozen=True)
class Sample:
    """The values of those rows that are chosen."""

    values: Floats
    chosen: Bools

    @cached_property
    def ascending(self) -> Ints:
        """The selected rows sorted by value; sorted once, however many groupings ask for quantiles."""
        rows = np.flatnonzero(self.chosen)
        return rows[np.argsort(self.values[rows])]


class Groups:
    """Rows that belong to groups 0 to count - 1; a row of group -1 belongs to none."""

    def __init__(self, group: Ints, count: int) -> None:
        self.group = group
        self.count = count

    def counts(self, chosen: Bools | None = None) -> Ints:
        group = self.group if chosen is None else self.group[chosen]
        return np.bincount(group[group >= 0], minlength=self.count)

    def sums(self, values: Floats | Ints, chosen: Bools | None = None) -> Floats:
        group, values = (self.group, values) if chosen is None else (self.group[chosen], values[chosen])
        inside = group >= 0
        return sums_by(group[inside], values[inside], self.count)

    def means(self, sample: Sample) -> Floats:
        """The means of the selected rows by group; nan where there are none."""
        with np.errstate(invalid="ignore"):
            return self.sums(sample.values, sample.chosen) / self.counts(sample.chosen)

    def quantiles(self, sample: Sample, at: Sequence[float]) -> list[Floats]:
        """By quantile and group, linearly interpolated between the two nearest values; nan where there are none."""
        rows = sample.ascending[self.group[sample.ascending] >= 0]
        # 16-bit numbers are sorted in one pass (radix sort).
        group = self.group[rows].astype(np.int16 if self.count < 2**15 else np.int64)
        ordered = sample.values[rows[np.argsort(group, kind="stable")]]
        counts = np.bincount(group, minlength=self.count)
        first = np.cumsum(counts) - counts
        return [_between(ordered, first, counts, fraction) for fraction in at]


def _between(ordered: Floats, first: Ints, counts: Ints, fraction: float) -> Floats:
    found = np.full(len(counts), np.nan)
    some = counts > 0
    position = (counts[some] - 1) * fraction
    below = np.floor(position).astype(np.int64)
    above = np.minimum(below + 1, counts[some] - 1)
    low, high = ordered[first[some] + below], ordered[first[some] + above]
    found[some] = low + (high - low) * (position - below)
    return found
