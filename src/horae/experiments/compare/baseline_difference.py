"""A policy against the baseline: the difference on the same jobs, with a confidence interval."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import expm1, inf, log, nan
from typing import NamedTuple

import numpy as np

from horae.experiments.compare.workload import DAY_SECONDS, block_seconds
from horae.model.arrays import Floats
from horae.reports.run_log import RunLog
from horae.reports.statistics import Difference, paired, paired_by_block, resampled

CONFIDENCE = 0.95
_LARGE = 700.0  # of a logarithm: its exponential is infinite
# What an interval is taken over.
SEEDS, DRAWS, DAYS, TENTHS = "seeds", "draws of the trace", "days", "tenths of the trace"


@dataclass(frozen=True)
class Versus:
    """Mean completion time of the jobs that finished under both policies."""

    jobs: int  # paired jobs: of the trace as it is, or over all seeds
    unpaired: int  # jobs that finished under one of the two only, and are left out
    baseline_mean_seconds: float
    seconds: Difference
    relative: Difference  # as a share of the baseline's mean; the interval is that of the logarithm of the ratio
    over: str  # what the intervals are over


class Common(NamedTuple):
    """The jobs that finished in both of two runs: submission, and completion time in each."""

    times: Floats
    baseline: Floats
    other: Floats
    unpaired: int = 0  # jobs that finished in one of the two only

    @property
    def means(self) -> Means:
        return Means(len(self.times), self.unpaired, _mean(self.baseline), _mean(self.other))


class Means(NamedTuple):
    jobs: int
    unpaired: int
    baseline_seconds: float
    other_seconds: float


def common(one: RunLog, other: RunLog) -> Common:
    rows_other = {other.jobs.id[row]: row for row in np.flatnonzero(other.finished).tolist()}
    rows = [row for row in np.flatnonzero(one.finished).tolist() if one.jobs.id[row] in rows_other]
    there = [rows_other[one.jobs.id[row]] for row in rows]
    return Common(
        one.jobs.submitted_at[rows],
        (one.jobs.ended_at - one.jobs.submitted_at)[rows],
        (other.jobs.ended_at - other.jobs.submitted_at)[there],
        int(one.finished.sum()) + len(rows_other) - 2 * len(rows),
    )


def over_days(pair: Common) -> Versus:
    """The difference within one run, resampling whole days, or tenths where it is shorter than ten days."""
    length_seconds = block_seconds(float(np.ptp(pair.times))) if len(pair.times) else 0.0
    blocks_seconds = length_seconds * (1 + 1e-9) or 1.0  # so that the very last job does not make an eleventh tenth

    def differ(one: Floats, two: Floats) -> Difference:
        return paired_by_block(pair.times, one, two, blocks_seconds, 0, CONFIDENCE)

    over = DAYS if length_seconds == DAY_SECONDS else TENTHS
    return _linear((len(pair.times), pair.unpaired), pair.baseline, pair.other, differ, over)


def over_seeds(means: Sequence[Means]) -> Versus:
    """The difference over independent draws, by Student's t."""
    base, other = np.array([each.baseline_seconds for each in means]), np.array([each.other_seconds for each in means])
    jobs = sum(each.jobs for each in means), sum(each.unpaired for each in means)
    return _linear(jobs, base, other, lambda one, two: paired(one, two, CONFIDENCE), SEEDS)


def over_draws(means: Sequence[Means]) -> Versus:
    """The difference of a trace (the first) and its resamples:
    the trace is the estimate, the resamples give the interval."""
    first, draws = means[0], means[1:]
    seconds = resampled(_seconds(first), [_seconds(each) for each in draws], CONFIDENCE)
    logarithm = resampled(_log_ratio(first), [_log_ratio(each) for each in draws], CONFIDENCE)
    middle, low, high = (_expm1(each) for each in logarithm[:3])
    relative = Difference(middle, low, high, logarithm.samples)
    return Versus(first.jobs, first.unpaired, first.baseline_seconds, seconds, relative, DRAWS)


def _seconds(means: Means) -> float:
    return means.other_seconds - means.baseline_seconds


def _log_ratio(means: Means) -> float:
    ratio = means.other_seconds / (means.baseline_seconds or nan)
    return log(ratio) if ratio > 0 else nan


def _expm1(logarithm: float) -> float:
    return inf if logarithm > _LARGE else expm1(logarithm)


def _linear(
    jobs: tuple[int, int], base: Floats, other: Floats, differ: Callable[[Floats, Floats], Difference], over: str
) -> Versus:
    """Linearised ratio: two means' ratio varies as the mean of (other - ratio x baseline) / baseline's mean (Cochran,
    1977).

    Dividing the interval in seconds by the baseline's mean would ignore that this mean varies too, and is correlated
    with the other. The interval is taken of the logarithm, whose change is that of the ratio over the ratio: times are
    positive, so that nothing is faster by more than 100%.
    """
    base_mean, ratio = _mean(base), _mean(other) / (_mean(base) or nan)
    _, low, high, samples = differ(ratio * base / (base_mean or nan), other / (base_mean or nan))
    if ratio > 0:
        low, high = (ratio * (_expm1(each / ratio) + 1) - ratio for each in (low, high))
    relative = Difference(ratio - 1, ratio - 1 + low, ratio - 1 + high, samples)
    return Versus(*jobs, base_mean, differ(base, other), relative, over)


def _mean(values: Floats) -> float:
    return float(values.mean()) if len(values) else nan
