"""Run times with a heavy tail: most jobs are short, and most of the work is in a few."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log
from typing import ClassVar

import numpy as np

from horae.model.arrays import Floats
from horae.traces.generators.base import (
    GANG_PROBABILITIES,
    GANGS,
    arrivals_at,
    gangs_of,
    made_trace,
    names,
    require,
    require_count,
    require_gangs,
    require_positive,
    stream,
)
from horae.traces.trace import Trace

DISTRIBUTIONS = ("pareto", "lognormal")


@dataclass(frozen=True)
class HeavyTail:
    """Poisson arrivals at a load given as a fraction of the cluster, computed from mean run times.

    `pareto`: bounded between `seconds_min` and `seconds_max`; the probability of running longer than x falls as
    x^-tail_index, and below 1 nearly all work is in the longest jobs. `lognormal`: median and sigma, unbounded.
    """

    name: ClassVar[str] = "heavy-tail"

    jobs: int = 1000
    cluster_gpus: int = 64
    load: float = 0.8
    distribution: str = "pareto"
    tail_index: float = 1.1
    seconds_min: float = 60.0
    seconds_max: float = 2_592_000.0  # 30 days
    median_seconds: float = 1800.0
    sigma: float = 2.0
    gangs: tuple[int, ...] = GANGS
    gang_probabilities: tuple[float, ...] = GANG_PROBABILITIES

    def __post_init__(self) -> None:
        remedy = f"choose one of {', '.join(DISTRIBUTIONS)}"
        require(self.distribution in DISTRIBUTIONS, "distribution", self.distribution, remedy)
        require_count(self, "jobs", "cluster_gpus")
        require_positive(self, "load", "tail_index", "seconds_min", "seconds_max", "median_seconds", "sigma")
        remedy = f"give more than seconds_min, which is {self.seconds_min}"
        require(self.seconds_max > self.seconds_min, "seconds_max", self.seconds_max, remedy)
        require_gangs(self.gangs, self.gang_probabilities)

    @property
    def mean_seconds(self) -> float:
        if self.distribution == "lognormal":
            return self.median_seconds * exp(self.sigma**2 / 2)
        low, high, index = self.seconds_min, self.seconds_max, self.tail_index
        share = low**index / (1 - (low / high) ** index)
        if index == 1:
            return share * log(high / low)
        return share * index / (index - 1) * (low ** (1 - index) - high ** (1 - index))

    def trace(self, seed: int) -> Trace:
        gpu_seconds = self.mean_seconds * float(np.dot(self.gangs, self.gang_probabilities))
        columns = {
            "id": names(self.jobs),
            "submit": arrivals_at(seed, self.jobs, gpu_seconds / (self.load * self.cluster_gpus)),
            "gpus": gangs_of(seed, self.jobs, self.gangs, self.gang_probabilities),
            "duration": self._seconds(seed),
        }
        return made_trace(self.name, seed, columns)

    def _seconds(self, seed: int) -> Floats:
        random = stream(seed, "duration")
        if self.distribution == "lognormal":
            return random.lognormal(log(self.median_seconds), self.sigma, self.jobs)
        # The inverse of the distribution function, between the bounds.
        beyond = 1 - random.random(self.jobs) * (1 - (self.seconds_min / self.seconds_max) ** self.tail_index)
        return self.seconds_min * beyond ** (-1 / self.tail_index)
