"""Made-up workloads. The same seed gives the same jobs."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from horae.model.jobs import Arrival, Job, Truth
from horae.model.shapes import Option, Shape


@dataclass(frozen=True)
class Poisson:
    """Jobs of one GPU type that arrive at random, at a load that is given as a fraction of the cluster.

    Gangs are 1, 2, 4 and 8 GPUs; run times are lognormal, so that most are short and a few are very long.
    """

    jobs: int
    cluster_gpus: int
    load: float
    accelerator: str = "gpu"
    median_seconds: float = 1800.0
    sigma: float = 1.2
    gangs: tuple[int, ...] = (1, 2, 4, 8)
    gang_probabilities: tuple[float, ...] = (0.7, 0.1, 0.15, 0.05)

    def arrivals(self, seed: int) -> Iterator[Arrival]:
        """Drawn and made piece by piece, so that a million jobs need no more memory than those alive."""
        random = np.random.default_rng(seed)
        gpu_seconds = (
            self.median_seconds * float(np.exp(self.sigma**2 / 2)) * float(np.dot(self.gangs, self.gang_probabilities))
        )
        interval_seconds = gpu_seconds / (self.load * self.cluster_gpus)
        options = {gang: (Option(Shape(self.accelerator, gang, "node"), 1.0),) for gang in self.gangs}
        now, made = 0.0, 0
        while made < self.jobs:
            count = min(10_000, self.jobs - made)
            times = now + np.cumsum(random.exponential(interval_seconds, count))
            gangs = random.choice(self.gangs, count, p=self.gang_probabilities)
            durations = random.lognormal(np.log(self.median_seconds), self.sigma, count) + 1.0
            for time, gang, seconds in zip(times.tolist(), gangs.tolist(), durations.tolist(), strict=True):
                job = Job(str(made), time, options[gang], steps_total=seconds)
                yield Arrival(job, Truth(seconds, options[gang]))
                made += 1
            now = float(times[-1])


def write_sample(path: Path, seed: int, jobs: int = 300) -> None:
    """The sample job table: two teams, two GPU types, some jobs that suffer when they are spread."""
    random = np.random.default_rng(seed)
    submit = np.cumsum(random.exponential(300.0, jobs))
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["id", "submit", "tenant", "gpus", "duration", "speed", "level", "slowdown"])
        for index in range(jobs):
            gpus = int(random.choice([1, 2, 4, 8, 16], p=[0.55, 0.15, 0.15, 0.1, 0.05]))
            seconds = 60 + round(float(random.lognormal(np.log(2400.0), 1.3)))
            tenant = str(random.choice(["nlp", "vision"], p=[0.4, 0.6]))
            speedup = round(float(random.uniform(1.2, 4.0)), 2)
            spread = gpus > 4 or random.random() < 0.3
            writer.writerow(
                [
                    f"{tenant}-{index:03}",
                    round(float(submit[index])),
                    tenant,
                    gpus,
                    seconds,
                    f"A100={speedup};V100=1",
                    "cluster" if spread and gpus > 1 else "",
                    "rack=1.1;cluster=1.3" if spread and gpus > 1 else "",
                ]
            )
