"""The Gittins index of Tiresias (NSDI'19): first the job most likely to end soon for the GPU-time it will take.

With S the total GPU-time of a job and a what it has had, the index is the largest over d of

    P[a <= S < a + d | S >= a] / E[min(S - a, d) | S >= a]

for a known distribution of S. Age and size are both GPU-seconds. Between its quantiles the distribution is assumed to
be uniform, so the best d always ends at one of them. Preempts.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import inf, isfinite
from statistics import NormalDist
from typing import ClassVar, NamedTuple

import numpy as np

from horae.model.arrays import Floats
from horae.model.decisions import Ranking
from horae.model.errors import PolicyError
from horae.model.view import View

KNOTS = 128


class _Sizes(NamedTuple):
    """The distribution of total GPU-time at its quantiles."""

    gpu_seconds: Floats
    ended: Floats  # probability that a job is no longer than this
    used: Floats  # expected GPU-time of a job until it ends or reaches this size

    def at(self, gpu_seconds: Floats) -> tuple[Floats, Floats]:
        """The same two numbers at any size, interpolated."""
        ended = np.interp(gpu_seconds, self.gpu_seconds, self.ended)
        left = np.clip(np.searchsorted(self.gpu_seconds, gpu_seconds, side="right") - 1, 0, None)
        step = gpu_seconds - self.gpu_seconds[left]
        return ended, self.used[left] + step * (1 - (self.ended[left] + ended) / 2)


@dataclass(frozen=True)
class Gittins:
    name: ClassVar[str] = "gittins"
    # The shape of the GPU-times that Tiresias publishes: half of them below 2,227 s, nine in ten below 76,000 s.
    median_gpu_seconds: float = 2227.0  # of a lognormal distribution
    sigma: float = 2.75  # of its logarithm
    samples: tuple[float, ...] = ()  # GPU-seconds of former jobs; if given, their distribution is used
    horizon_gpu_seconds: float = 0.0  # fixed d; 0: the best one

    def __post_init__(self) -> None:
        for name, most in (("median_gpu_seconds", 1e12), ("sigma", 20.0)):
            value = getattr(self, name)
            if not 0 < value <= most:
                raise PolicyError(f"{name} is {value}", field=name, remedy=f"give a positive number up to {most:g}")
        if any(not (isfinite(sample) and sample > 0) for sample in self.samples):
            raise PolicyError("a sample is not a positive number of GPU-seconds", field="samples", remedy="fix it")
        if not 0 <= self.horizon_gpu_seconds < inf:
            raise PolicyError(
                f"horizon_gpu_seconds is {self.horizon_gpu_seconds}",
                field="horizon_gpu_seconds",
                remedy="give 0 (the best) or a positive number",
            )

    def decide(self, view: View) -> Ranking:
        jobs = view.jobs
        order = np.lexsort((jobs.serial, jobs.submitted_at, -self.index(jobs.service_gpu_seconds)))
        # The index of a running job changes continuously; with no job waiting that changes nothing.
        stands_until = view.now if jobs.waiting.any() else inf
        return Ranking(order, preemptive=True, stands_until=stands_until)

    def index(self, attained_gpu_seconds: Floats) -> Floats:
        """By job: the index in 1 / GPU-second; zero for a job that has outlived the distribution."""
        sizes = self._sizes
        ended, used = sizes.at(attained_gpu_seconds)
        if self.horizon_gpu_seconds:
            ended_then, used_then = sizes.at(attained_gpu_seconds + self.horizon_gpu_seconds)
            gain, cost = ended_then - ended, used_then - used
        else:
            gain, cost = sizes.ended - ended[:, None], sizes.used - used[:, None]
        ahead = (gain > 0) & (cost > 0)
        index: Floats = np.where(ahead, gain / np.where(ahead, cost, 1.0), 0.0)
        return index if self.horizon_gpu_seconds else index.max(axis=1, initial=0.0)

    @cached_property
    def _sizes(self) -> _Sizes:
        probability = np.linspace(0.0, 1.0, KNOTS + 1)
        if self.samples:
            gpu_seconds = np.quantile(np.array(self.samples), probability, method="inverted_cdf")
            gpu_seconds[0] = 0.0
            gpu_seconds, last = np.unique(gpu_seconds[::-1], return_index=True)
            probability = probability[::-1][last]  # where many are of one size, all of them have ended there
        else:
            probability[-1] = 1 - 0.1 / KNOTS  # the lognormal has no end
            deviations = np.array([NormalDist().inv_cdf(at) for at in probability[1:]])
            gpu_seconds = np.append(0.0, self.median_gpu_seconds * np.exp(self.sigma * deviations))
        average_alive = 1 - (probability[1:] + probability[:-1]) / 2
        used = np.concatenate([[0.0], np.cumsum(np.diff(gpu_seconds) * average_alive)])
        return _Sizes(gpu_seconds, probability, used)
