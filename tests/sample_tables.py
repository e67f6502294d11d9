"""The sample job table included in Horae."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np


def write_sample(path: Path, seed: int, jobs: int = 300) -> None:
    """Writes the sample job table: two teams, two GPU types, some jobs that are slower when spread."""
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


def write_usage(path: Path, seed: int, jobs: int = 600) -> None:
    """Writes the four columns that any cluster records: submission time, number of GPUs, run time and user."""
    random = np.random.default_rng(seed)
    submit = np.cumsum(random.exponential(240.0, jobs))
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["SubmitTime", "n_gpu", "secs", "who"])
        for index in range(jobs):
            gpus = int(random.choice([1, 2, 4, 8, 16], p=[0.5, 0.15, 0.15, 0.15, 0.05]))
            seconds = 30 + round(float(random.lognormal(7.4, 1.4)))
            who = str(random.choice(["ada", "bob", "cyd", "dan"], p=[0.4, 0.3, 0.2, 0.1]))
            writer.writerow([round(float(submit[index])), gpus, seconds, who])
