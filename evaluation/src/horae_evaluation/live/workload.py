"""The cluster and the jobs of the comparison: seeded draws, small enough for one machine and a few minutes."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random

from horae.service.models import JobSpec
from horae_evaluation.live.paced_job import LOAD_SECONDS, STARTUP_SECONDS

PROGRAM = Path(__file__).with_name("paced_job.py")
RESTART_SECONDS = sum(STARTUP_SECONDS) / 2 + LOAD_SECONDS  # as the scheduler assumes it
ROUND_SECONDS = 10.0
# By policy: its options at this scale, where jobs take half a minute rather than hours. The limits of tiresias are not
# multiples of a round: a simulated job would reach them exactly at a boundary, and a real one a moment later.
POLICIES: Mapping[str, str] = {
    "tiresias": "{tiresias: {limits: [25, 85]}}",
    "max-min": "max-min",
    "themis": f"{{themis: {{lease_seconds: {ROUND_SECONDS:g}}}}}",
}
# A turn may be as short as two rounds: restarts take more of it than a real cluster would allow.
CLUSTER = """\
name: live
restart_seconds: {restart_seconds}
nodes:
  - {{name: a0, gpu: A100, gpus: 4}}
  - {{name: v0, gpu: V100, gpus: 4}}
spare:
  policy: {policy}
  cadence: rounds
  round_seconds: {round_seconds}
  rules: {{turn_rounds: 2, restart_share_max: 0.2}}
"""
# Between two jobs, on average. At 4.5 s the queue grows all the time, and the mean depends on chance most of all.
ARRIVAL_SECONDS = 7.5
WORK_SECONDS = (6.0, 16.0, 50.0)  # on A100s: least, mean of what is drawn, most
GANGS = (1, 1, 1, 1, 1, 1, 2, 2, 2, 4)
# Steps per second by GPU type.
MODELS: Mapping[str, Mapping[str, float]] = {
    "convolution": {"A100": 5.0, "V100": 3.0},
    "transformer": {"A100": 5.0, "V100": 1.5},
    "recurrent": {"A100": 4.0, "V100": 3.2},
}


@dataclass(frozen=True, slots=True)
class LiveJob:
    name: str
    arrives_at: float  # seconds after the first
    gpus: int
    model: str
    steps: int

    def spec(self, seed: int, times: Path) -> JobSpec:
        """The job file; the declared speeds are the true means. The job notes in `times` when it made its steps."""
        speeds = MODELS[self.model]
        words = [self.name, seed, self.steps, *(f"{kind}={speed}" for kind, speed in speeds.items())]
        command = shlex.join([sys.executable, str(PROGRAM), *map(str, words)])
        return JobSpec.model_validate(
            {
                "name": self.name,
                "run": f"exec {command}",
                "env": {"LIVE_TIMES": str(times)},
                "gpus": self.gpus,
                "model": self.model,
                "steps": self.steps,
                "speed": speeds,
                "checkpoint": {},
            }
        )


def cluster_file(policy: str) -> str:
    """The cluster as `horae up --config` reads it."""
    return CLUSTER.format(policy=POLICIES[policy], restart_seconds=RESTART_SECONDS, round_seconds=ROUND_SECONDS)


def draw_jobs(count: int, seed: int) -> list[LiveJob]:
    """Poisson arrivals of jobs with exponential lengths within bounds."""
    random = Random(seed)
    jobs: list[LiveJob] = []
    at = 0.0
    least, mean, most = WORK_SECONDS
    for number in range(count):
        model = random.choice(sorted(MODELS))
        work_seconds = min(least + random.expovariate(1 / (mean - least)), most)
        steps = max(round(work_seconds * MODELS[model]["A100"]), 1)
        jobs.append(LiveJob(f"job-{number:03}", at, random.choice(GANGS), model, steps))
        at += random.expovariate(1 / ARRIVAL_SECONDS)
    return jobs
