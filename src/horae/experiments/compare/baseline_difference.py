"""A policy against the baseline: the difference on the same jobs, with a confidence interval."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import nan
from typing import NamedTuple

import numpy as np

from horae.experiments.compare.workload import DAY_SECONDS, block_seconds
from horae.model.arrays import Floats
from horae.reports.run_log import RunLog
from horae.reports.statistics import Difference, paired, paired_by_block, resampled

CONFIDENCE = 0.95
# What an interval is taken over.
SEEDS, DRAWS, DAYS, TENTHS = "seeds", "draws of the trace", "days", "tenths of the trace"


@dataclass(frozen=True)
class Versus:
    """Mean completion time of the jobs that finished under both policies."""

    jobs: int  # paired jobs: of the trace as it is, or over all seeds
    baseline_mean_seconds: float
    seconds: Difference
    relative: Difference  # as a share of the baseline's mean
    over: str  # what the intervals are over


class Common(NamedTuple):
    """The jobs that finished in both of two runs: submission, and completion time in each."""

    times: Floats
    baseline: Floats
    other: Floats

    @property
    def means(self) -> Means:
        return Means(len(self.times), _mean(self.baseline), _mean(self.other))


class Means(NamedTuple):
    jobs: int
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
    )


def over_days(pair: Common) -> Versus:
    """The difference within one run, resampling whole days, or tenths where it is shorter than ten days."""
    length_seconds = block_seconds(float(np.ptp(pair.times))) if len(pair.times) else 0.0
    blocks_seconds = length_seconds * (1 + 1e-9) or 1.0  # so that the very last job does not make an eleventh tenth

    def differ(one: Floats, two: Floats) -> Difference:
        return paired_by_block(pair.times, one, two, blocks_seconds, 0, CONFIDENCE)

    over = DAYS if length_seconds == DAY_SECONDS else TENTHS
    return _linear(len(pair.times), pair.baseline, pair.other, differ, over)


def over_seeds(means: Sequence[Means]) -> Versus:
    """The difference over independent draws, by Student's t."""
    base, other = np.array([each.baseline_seconds for each in means]), np.array([each.other_seconds for each in means])
    jobs = sum(each.jobs for each in means)
    return _linear(jobs, base, other, lambda one, two: paired(one, two, CONFIDENCE), SEEDS)


def over_draws(means: Sequence[Means]) -> Versus:
    """The difference of a trace (the first) and its resamples:
    the trace is the estimate, the resamples give the interval."""
    first, draws = means[0], means[1:]
    seconds = resampled(_seconds(first), [_seconds(each) for each in draws], CONFIDENCE)
    relative = resampled(_relative(first), [_relative(each) for each in draws], CONFIDENCE)
    return Versus(first.jobs, first.baseline_seconds, seconds, relative, DRAWS)


def _seconds(means: Means) -> float:
    return means.other_seconds - means.baseline_seconds


def _relative(means: Means) -> float:
    return means.other_seconds / (means.baseline_seconds or nan) - 1


def _linear(
    jobs: int, base: Floats, other: Floats, differ: Callable[[Floats, Floats], Difference], over: str
) -> Versus:
    """Linearised ratio: two means' ratio varies as the mean of (other - ratio x baseline) / baseline's mean (Cochran,
    1977).

    Dividing the interval in seconds by the baseline's mean would ignore that this mean varies too, and is correlated
    with the other.
    """
    base_mean, ratio = _mean(base), _mean(other) / (_mean(base) or nan)
    _, low, high, samples = differ(ratio * base / (base_mean or nan), other / (base_mean or nan))
    relative = Difference(ratio - 1, ratio - 1 + low, ratio - 1 + high, samples)
    return Versus(jobs, base_mean, differ(base, other), relative, over)


def _mean(values: Floats) -> float:
    return float(values.mean()) if len(values) else nan
