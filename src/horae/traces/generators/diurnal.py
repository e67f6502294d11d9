"""Arrivals with days and weekends: an inhomogeneous Poisson process, drawn by thinning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from horae.model.arrays import Floats
from horae.traces.generators.base import (
    GANG_PROBABILITIES,
    GANGS,
    HOUR,
    gangs_of,
    made_trace,
    names,
    require,
    require_count,
    require_gangs,
    require_positive,
    require_share,
    stream,
)
from horae.traces.trace import Trace

DAY = 24 * HOUR
PIECE = 4096  # candidates drawn at a time


@dataclass(frozen=True)
class Diurnal:
    """The rate is `jobs_per_hour` x (1 + amplitude x cos of the time since the peak), on weekends times a factor.

    Second 0 is a Monday's midnight. Candidates arrive at the highest rate and are kept with probability rate / highest
    rate (Lewis and Shedler, 1979).
    """

    name: ClassVar[str] = "diurnal"

    jobs: int = 1000
    jobs_per_hour: float = 20.0  # the mean of a weekday
    amplitude: float = 0.6  # 0: no difference between day and night; 1: nothing arrives at the quietest hour
    peak_hour: float = 15.0
    weekend_factor: float = 0.4  # rate on Saturday and Sunday against weekdays
    median_seconds: float = 1800.0
    sigma: float = 1.2
    gangs: tuple[int, ...] = GANGS
    gang_probabilities: tuple[float, ...] = GANG_PROBABILITIES

    def __post_init__(self) -> None:
        require_count(self, "jobs")
        require_positive(self, "jobs_per_hour", "weekend_factor", "median_seconds", "sigma")
        require_share(self, "amplitude")
        require(0 <= self.peak_hour < 24, "peak_hour", self.peak_hour, "give an hour from 0 to below 24")
        require_gangs(self.gangs, self.gang_probabilities)

    def rate_per_hour(self, at: Floats) -> Floats:
        """The rate at these seconds."""
        angle = 2 * np.pi * (at / DAY - self.peak_hour / 24)
        is_weekend = at // DAY % 7 >= 5
        return self.jobs_per_hour * (1 + self.amplitude * np.cos(angle)) * np.where(is_weekend, self.weekend_factor, 1)

    def trace(self, seed: int) -> Trace:
        duration = stream(seed, "duration").lognormal(np.log(self.median_seconds), self.sigma, self.jobs)
        columns = {
            "id": names(self.jobs),
            "submit": self._submit(seed),
            "gpus": gangs_of(seed, self.jobs, self.gangs, self.gang_probabilities),
            "duration": duration + 1.0,
        }
        return made_trace(self.name, seed, columns)

    def _submit(self, seed: int) -> Floats:
        highest_per_hour = self.jobs_per_hour * (1 + self.amplitude) * max(1.0, self.weekend_factor)
        gaps, luck = stream(seed, "submit"), stream(seed, "thinning")
        kept: list[Floats] = []
        now, count = 0.0, 0
        while count < self.jobs:
            times = now + np.cumsum(gaps.exponential(HOUR / highest_per_hour, PIECE))
            kept.append(times[luck.random(PIECE) * highest_per_hour < self.rate_per_hour(times)])
            now, count = float(times[-1]), count + len(kept[-1])
        return np.concatenate(kept)[: self.jobs]
