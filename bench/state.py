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
from horae.model.events import Ending, JobEnded, JobStarted, JobSubmitted, Tick
from horae.model.jobs import Job
from horae.model.setup import Cadence, PoolSpec, Setup
from horae.model.shapes import Option, Shape
from horae.scheduler import Scheduler

LIVE_JOBS = 10_000
ENDED_JOBS, LONG_SECONDS, AT_A_TIME = 1_000_000, 30 * 86_400.0, 1000
AFTER_A_MILLION = "restore of 10,000 live jobs after 1,000,000 ended"
LIMITS_SECONDS = {"dump of 10,000 live jobs": 1.0, "restore of 10,000 live jobs": 1.0, AFTER_A_MILLION: 2.0}


@dataclass(frozen=True)
class Sized(Result):
    mebibytes: float  # as JSON


def _live(ended_jobs: int = 0) -> Scheduler:
    """Jobs of 50 users on 1,152 GPUs under max-min, most of which wait; `ended_jobs` have come and gone in a month."""
    cluster = Cluster("bench", tuple(Node(f"n{index}", "a100", 8) for index in range(144)))
    pool = PoolSpec("all", "max-min", {}, Cadence.ROUNDS)
    scheduler = Scheduler(Setup(cluster, (pool,), retention_seconds=3600.0))
    now = _pass(scheduler, ended_jobs)
    rng = random.Random(0)
    for number in range(LIVE_JOBS):
        options = tuple(
            Option(Shape("a100", gpus, NODE), float(gpus)) for gpus in rng.choice(((1,), (2,), (4, 2), (8,)))
        )
        job = Job(f"job-{number}", now, options, app=f"app-{number % 500}", user=f"u{number % 50}", steps_total=1e5)
        scheduler.handle(JobSubmitted(now, job))
    for start in scheduler.handle(Tick(now)).commands:
        if isinstance(start, Start):
            scheduler.handle(JobStarted(now, start.job_ids[0], start.epoch))
    return scheduler


def _pass(scheduler: Scheduler, jobs: int) -> float:
    """Lets jobs come, run and end, as many at a time as there is room for; returns the time."""
    now, options = 0.0, (Option(Shape("a100", 1, NODE), 1.0),)
    for first in range(0, jobs, AT_A_TIME):
        now = LONG_SECONDS * first / jobs
        for number in range(first, first + AT_A_TIME):
            scheduler.handle(JobSubmitted(now, Job(f"past-{number}", now, options, user=f"u{number % 50}")))
        now = max(now, scheduler.next_wakeup_at)
        starts = [each for each in scheduler.handle(Tick(now)).commands if isinstance(each, Start)]
        assert len(starts) == AT_A_TIME, "some jobs wait"
        for start in starts:
            scheduler.handle(JobStarted(now, start.job_ids[0], start.epoch))
            scheduler.handle(JobEnded(now + 60.0, start.job_ids[0], start.epoch, Ending.FINISHED, 1.0))
    return now + 60.0


def _measured(what: str, ended_jobs: int = 0) -> Result:
    scheduler = _live(ended_jobs)
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
    AFTER_A_MILLION: partial(_measured, "restore", ENDED_JOBS),
}
