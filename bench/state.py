"""The scheduler's own state: dump and restore of many live jobs."""

from __future__ import annotations

import json
import random
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from bench.cases import Result, loop_seconds
from horae.model.cluster import NODE, Cluster, Node
from horae.model.commands import Start
from horae.model.events import JobStarted, JobSubmitted, Tick
from horae.model.jobs import Job
from horae.model.setup import Cadence, PoolSpec, Setup
from horae.model.shapes import Option, Shape
from horae.scheduler import Scheduler

LIVE_JOBS = 10_000
LIMITS_SECONDS = {"dump of 10,000 live jobs": 1.0, "restore of 10,000 live jobs": 1.0}


@dataclass(frozen=True)
class Sized(Result):
    mebibytes: float  # as JSON


def _live() -> Scheduler:
    """Jobs of 50 users on 1,152 GPUs under max-min, most of which wait."""
    cluster = Cluster("bench", tuple(Node(f"n{index}", "a100", 8) for index in range(144)))
    scheduler = Scheduler(Setup(cluster, (PoolSpec("all", "max-min", {}, Cadence.ROUNDS),)))
    rng = random.Random(0)
    for number in range(LIVE_JOBS):
        options = tuple(
            Option(Shape("a100", gpus, NODE), float(gpus)) for gpus in rng.choice(((1,), (2,), (4, 2), (8,)))
        )
        job = Job(f"job-{number}", 0.0, options, app=f"app-{number % 500}", user=f"u{number % 50}", steps_total=1e5)
        scheduler.handle(JobSubmitted(0.0, job))
    for start in scheduler.handle(Tick(0.0)).commands:
        if isinstance(start, Start):
            scheduler.handle(JobStarted(0.0, start.job_ids[0], start.epoch))
    return scheduler


def _measured(what: str) -> Result:
    scheduler = _live()
    began = time.process_time()
    plain = scheduler.dump()
    seconds = time.process_time() - began
    text = json.dumps(plain)
    if what == "restore":
        plain = json.loads(text)
        began = time.process_time()
        Scheduler.restore(plain)
        seconds = time.process_time() - began
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return Sized(LIVE_JOBS, seconds, memory, loop_seconds(), len(text) / 2**20)


CASES: dict[str, Callable[[], Result]] = {
    "dump of 10,000 live jobs": partial(_measured, "dump"),
    "restore of 10,000 live jobs": partial(_measured, "restore"),
}
