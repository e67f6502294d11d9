"""The emulated cluster of the demo, and the endless stream of its jobs: seeded draws."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random

from horae.service.models import JobSpec

PROGRAM = Path(__file__).with_name("training_job.py")
ROUND_SECONDS = 5.0
GRACE_SECONDS = 3.0
# Every GPU is reserved, so that all that a tenant does not use is lent to the others. Limits of tiresias and leases of
# themis are those of jobs that take half a minute rather than half a day.
CLUSTER = f"""\
name: demo
restart_seconds: 1
nodes:
  - {{name: "a[0-1]", gpu: A100, gpus: 4, levels: {{socket: 2}}, rack: 2}}
  - {{name: "v[0-1]", gpu: V100, gpus: 4, levels: {{socket: 2}}, rack: 2}}
  - {{name: t0, gpu: T4, gpus: 4}}
tenants:
  nlp:
    cells: {{A100.node: 1, V100.node: 1}}
    policy: max-min
    cadence: rounds
    round_seconds: {ROUND_SECONDS:g}
  vision:
    cells: {{V100.node: 1, T4.node: 1}}
    policy: {{themis: {{lease_seconds: 10}}}}
    cadence: rounds
    round_seconds: {ROUND_SECONDS:g}
  speech:
    cells: {{A100.node: 1}}
    policy: {{tiresias: {{limits: [20, 60]}}}}
    cadence: rounds
    round_seconds: {ROUND_SECONDS:g}
spare:
  cadence: rounds
  round_seconds: {ROUND_SECONDS:g}
"""
# By tenant: what it trains. By model: steps per second on each GPU type, which are the pace of its jobs, too.
MODELS: Mapping[str, tuple[str, ...]] = {
    "nlp": ("transformer", "recurrent"),
    "vision": ("convolution",),
    "speech": ("recurrent", "convolution"),
}
SPEEDS: Mapping[str, Mapping[str, float]] = {
    "transformer": {"A100": 10.0, "V100": 4.0, "T4": 2.0},
    "convolution": {"A100": 10.0, "V100": 6.0, "T4": 4.0},
    "recurrent": {"A100": 8.0, "V100": 6.0, "T4": 3.0},
}
GANGS = (1, 1, 2, 2, 4, 4)  # on 20 GPUs, some eight jobs run at once: as many processes as two slow cores carry
WORK_SECONDS = (5.0, 14.0, 40.0)  # on A100s: least, mean of what is drawn, most
FIRST_JOBS = 9  # submitted at once, so that there is a queue from the beginning
ARRIVAL_SECONDS = 3.5  # from then on, on average: slightly more than 20 GPUs can do


@dataclass(frozen=True, slots=True)
class DemoJob:
    arrives_at: float  # seconds after the first
    spec: JobSpec


def draw_jobs(seed: int = 0) -> Iterator[DemoJob]:
    """The jobs one after the other, without end: the first ones at once, then at random times."""
    random = Random(seed)
    counts = dict.fromkeys(MODELS, 0)
    least, mean, most = WORK_SECONDS
    at = 0.0
    while True:
        # About as many jobs of each tenant, all of which are among the first ones.
        tenant = random.choice([name for name, count in counts.items() if count <= min(counts.values()) + 1])
        counts[tenant] += 1
        model = random.choice(MODELS[tenant])
        seconds = min(least + random.expovariate(1 / (mean - least)), most)
        steps = round(seconds * SPEEDS[model]["A100"])
        yield DemoJob(at, _spec(f"{tenant}-{counts[tenant]:02}", tenant, model, random.choice(GANGS), steps))
        if sum(counts.values()) >= FIRST_JOBS:
            at += random.expovariate(1 / ARRIVAL_SECONDS)


def _spec(name: str, tenant: str, model: str, gpus: int, steps: int) -> JobSpec:
    speeds = SPEEDS[model]
    seed = Random(name).randrange(1000)  # of its data
    words = [seed, steps, *(f"{kind}={speed:g}" for kind, speed in speeds.items())]
    # -I -S: a start of Python, without the packages of its environment, is what two slow cores can do often.
    command = shlex.join([sys.executable, "-I", "-S", str(PROGRAM), *map(str, words)])
    fields = {"name": name, "tenant": tenant, "model": model, "gpus": gpus, "steps": steps, "speed": dict(speeds)}
    return JobSpec.model_validate({**fields, "run": f"exec {command}", "grace": GRACE_SECONDS, "checkpoint": {}})
