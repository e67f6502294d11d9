"""Differences between two policies with confidence intervals. Both saw the same jobs, so samples are paired."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, nan, sqrt
from typing import NamedTuple

import numpy as np

from horae.model.arrays import Floats, Ints

RESAMPLES = 2000
DRAWS_MIN = 40  # with fewer, not even one draw in forty lies outside of the percentiles on either side
CHUNK = 200  # resamples made at a time, so that a long run does not fill the memory


class Difference(NamedTuple):
    """The mean of (other - baseline) and its confidence interval.

    One sample has no spread: the interval is then infinite. No sample at all: nan.
    """

    mean: float
    low: float
    high: float
    samples: int  # seeds, draws or blocks of time

    @property
    def is_clear(self) -> bool:
        """Whether zero is outside of the interval."""
        return self.low > 0 or self.high < 0


def paired(baseline: Sequence[float] | Floats, other: Sequence[float] | Floats, confidence: float = 0.95) -> Difference:
    """The difference of values by seed, by Student's t: mean +- t(n - 1) s / sqrt(n). Without spread it is exact."""
    differences = _differences(baseline, other)
    count = len(differences)
    if count == 0:
        return Difference(nan, nan, nan, 0)
    mean = float(differences.mean())
    if count == 1:
        return Difference(mean, -inf, inf, 1)
    margin = _student(count - 1, confidence) * float(differences.std(ddof=1)) / sqrt(count)
    return Difference(mean, mean - margin, mean + margin, count)


def resampled(estimate: float, draws: Sequence[float] | Floats, confidence: float = 0.95) -> Difference:
    """The measured value, with the percentile interval of its bootstrap draws.

    Each draw stands for the whole sample, so the spread of the draws already is the standard error, and does not shrink
    with their number. With too few draws for percentiles it is estimate +- t(n - 1) s.
    """
    values = np.asarray(draws, dtype=np.float64)
    count = len(values)
    if count < 2:
        return Difference(estimate, -inf, inf, count)
    if count < DRAWS_MIN:
        margin = _student(count - 1, confidence) * float(values.std(ddof=1))
        return Difference(estimate, estimate - margin, estimate + margin, count)
    low, high = np.quantile(values, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Difference(estimate, float(low), float(high), count)


def paired_by_block(
    times: Sequence[float] | Floats,
    baseline: Sequence[float] | Floats,
    other: Sequence[float] | Floats,
    block_seconds: float,
    seed: int,
    confidence: float = 0.95,
) -> Difference:
    """The difference of values by job within one run, by resampling whole blocks of time (days).

    Jobs of one day depend on each other, days much less so. The interval is that of the percentiles of the mean over as
    many blocks as there were, drawn with replacement; blocks without any job do not count.
    """
    differences = _differences(baseline, other)
    if not len(differences):
        return Difference(nan, nan, nan, 0)
    sums, counts = _blocks(np.asarray(times, dtype=np.float64), differences, block_seconds)
    mean = float(differences.mean())
    if len(sums) == 1:
        return Difference(mean, -inf, inf, 1)
    generator = np.random.default_rng(seed)
    means = np.concatenate([_resampled_means(sums, counts, generator) for _ in range(RESAMPLES // CHUNK)])
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Difference(mean, float(low), float(high), len(sums))


def _student(freedom: int, confidence: float) -> float:
    """The quantile of Student's t that bounds a two-sided confidence interval."""
    from scipy.special import stdtrit  # noqa: PLC0415  (slow to import, which other commands should not pay)

    return float(stdtrit(freedom, (1 + confidence) / 2))


def _differences(baseline: Sequence[float] | Floats, other: Sequence[float] | Floats) -> Floats:
    first, second = np.asarray(baseline, dtype=np.float64), np.asarray(other, dtype=np.float64)
    if first.shape != second.shape:
        raise ValueError(f"{first.size} values cannot be paired with {second.size}")
    return second - first


def _blocks(times: Floats, differences: Floats, block_seconds: float) -> tuple[Floats, Ints]:
    """By block that has any job: the sum of its differences, and their number."""
    number = np.floor((times - times.min()) / block_seconds).astype(np.int64)
    _, block, counts = np.unique(number, return_inverse=True, return_counts=True)
    sums = np.zeros(len(counts))
    np.add.at(sums, block, differences)
    return sums, counts


def _resampled_means(sums: Floats, counts: Ints, generator: np.random.Generator) -> Floats:
    drawn = generator.integers(len(sums), size=(CHUNK, len(sums)))
    return sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1)
