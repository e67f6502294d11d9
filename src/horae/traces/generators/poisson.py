"""Poisson arrivals at a load given as a fraction of the cluster."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from horae.model.arrays import Floats, Ints
from horae.model.jobs import Arrival, Job, Truth
from horae.model.shapes import Option, Shape
from horae.traces.generators.base import (
    GANG_PROBABILITIES,
    GANGS,
    made_trace,
    names,
    require_count,
    require_gangs,
    require_positive,
    require_seed,
)
from horae.traces.trace import Trace

PIECE = 10_000  # jobs drawn at a time


@dataclass(frozen=True)
class Poisson:
    """Poisson arrivals of jobs of one GPU type, at a load given as a fraction of the cluster.

    Gangs are 1, 2, 4 and 8 GPUs; run times are lognormal, so that most are short and a few are very long.
    """

    name: ClassVar[str] = "poisson"

    jobs: int = 1000
    cluster_gpus: int = 64
    load: float = 0.8
    accelerator: str = "gpu"  # of the lazy arrivals; a trace leaves the type open
    median_seconds: float = 1800.0
    sigma: float = 1.2
    gangs: tuple[int, ...] = GANGS
    gang_probabilities: tuple[float, ...] = GANG_PROBABILITIES

    def __post_init__(self) -> None:
        require_count(self, "jobs", "cluster_gpus")
        require_positive(self, "load", "median_seconds", "sigma")
        require_gangs(self.gangs, self.gang_probabilities)

    def trace(self, seed: int) -> Trace:
        submit, gpus, duration = (np.concatenate(column) for column in zip(*self._pieces(seed), strict=True))
        columns = {"id": names(self.jobs), "submit": submit, "gpus": gpus, "duration": duration}
        return made_trace(self.name, seed, columns)

    def arrivals(self, seed: int) -> Iterator[Arrival]:
        """The same jobs generated in batches, so that a million of them need no more memory than the live ones."""
        options = {gang: (Option(Shape(self.accelerator, gang, "node"), 1.0),) for gang in self.gangs}
        made = 0
        for piece in self._pieces(seed):
            for time, gang, seconds in zip(*(column.tolist() for column in piece), strict=True):
                job = Job(str(made), time, options[gang], steps_total=seconds)
                yield Arrival(job, Truth(seconds, options[gang]))
                made += 1

    def _pieces(self, seed: int) -> Iterator[tuple[Floats, Ints, Floats]]:
        """Batches of submission time, gang and run time, from one stream, as in the published figures."""
        require_seed(seed)
        random = np.random.default_rng(seed)
        now, made = 0.0, 0
        while made < self.jobs:
            count = min(PIECE, self.jobs - made)
            times = now + np.cumsum(random.exponential(self._interval_seconds, count))
            gangs = random.choice(self.gangs, count, p=self.gang_probabilities)
            durations = random.lognormal(np.log(self.median_seconds), self.sigma, count) + 1.0
            yield times, gangs, durations
            now, made = float(times[-1]), made + count

    @property
    def _interval_seconds(self) -> float:
        gpu_seconds = (
            self.median_seconds * float(np.exp(self.sigma**2 / 2)) * float(np.dot(self.gangs, self.gang_probabilities))
        )
        return gpu_seconds / (self.load * self.cluster_gpus)
