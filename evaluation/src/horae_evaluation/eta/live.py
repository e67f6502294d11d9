"""Questions to a real service while real processes wait for emulated GPUs: when will this job start? And when it did.

Three tenants with a node each, one per policy, so that one run serves all three. The jobs sleep, and say nothing of how
long. No past is known at the beginning, as in a service that was set up a minute ago.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf
from pathlib import Path
from random import Random
from typing import NamedTuple

from horae.client import Client
from horae.forks.eta import Moments
from horae.model.errors import HoraeError
from horae.service.config import configure
from horae.service.models import ENDED, JobView, MomentView
from horae_evaluation.eta.calibration import Answer, Horizons, Wait, baseline
from horae_evaluation.live.service_run import free_port, real_service

CLUSTER = """\
name: live
restart_seconds: 1
nodes:
  - {name: "a[0-2]", gpu: A100, gpus: 4}
tenants:
  fifo: {policy: {fifo: {backfill: true}}, cadence: events, cells: {A100.node: 1}, borrow: false}
  tiresias:
    {policy: {tiresias: {limits: [12]}}, cadence: rounds, round_seconds: 5, cells: {A100.node: 1}, borrow: false}
  max-min: {policy: max-min, cadence: rounds, round_seconds: 5, cells: {A100.node: 1}, borrow: false}
"""
POLICIES: Mapping[str, str] = {"fifo": "fifo with backfill", "tiresias": "tiresias", "max-min": "max-min"}  # by tenant
HORIZONS: Horizons = (("< 10 s", 10.0), ("< 30 s", 30.0), ("< 2 min", 120.0), ("longer", inf))
ARRIVAL_SECONDS = 0.8  # between two jobs, on average
WORK_SECONDS, WORK_SIGMA = 4.0, 0.7  # the median, and the deviation of its logarithm
GANGS = (1, 1, 2, 4)
ASK_SECONDS = 4.0
BUDGET_SECONDS = 2.0
UNKNOWN = Moments(inf, inf, inf)


class LiveJob(NamedTuple):
    arrives_at: float
    tenant: str
    gpus: int
    seconds: float

    def spec(self, number: int) -> dict[str, object]:
        command = f"exec sleep {self.seconds:.3f}"
        return {"name": f"job-{number:03}", "tenant": self.tenant, "gpus": self.gpus, "run": command, "checkpoint": {}}


@dataclass(frozen=True)
class _Question:
    job: JobView
    asked_at: float
    starts: MomentView | None  # None: the service could not tell in time


def draw_jobs(count: int, seed: int) -> list[LiveJob]:
    random, at, jobs = Random(seed), 0.0, list[LiveJob]()
    for _ in range(count):
        seconds = WORK_SECONDS * random.lognormvariate(0.0, WORK_SIGMA)
        jobs.append(LiveJob(at, random.choice(list(POLICIES)), random.choice(GANGS), seconds))
        at += random.expovariate(1 / ARRIVAL_SECONDS)
    return jobs


def ask_live(count: int, seed: int, folder: Path, tell: Callable[[str], None]) -> list[Answer]:
    """Runs the jobs under a service in `folder`, asks about one that waits every few seconds, and waits for the end."""
    file, state = folder / "horae.yaml", folder / "state"
    file.write_text(CLUSTER)
    config = configure(state, file, [], [], None, free_port())
    with real_service(config, file, folder / "service.log"), Client(state=state) as client:
        questions = _run(client, draw_jobs(count, seed), Random(f"{seed} questions"), tell)
        jobs = {job.id: job for job in client.jobs()}
    return [answer for each in questions if (answer := _compared(each, jobs)) is not None]


def _run(client: Client, jobs: list[LiveJob], random: Random, tell: Callable[[str], None]) -> list[_Question]:
    questions: list[_Question] = []
    began_at, asks_at, submitted = time.monotonic(), 0.0, 0
    while True:
        now = time.monotonic() - began_at
        due = sum(job.arrives_at <= now for job in jobs)
        if due > submitted:
            client.submit([jobs[number].spec(number) for number in range(submitted, due)])
            submitted = due
        if now >= asks_at:
            asks_at = now + ASK_SECONDS
            seen = list(client.jobs())
            ended = sum(job.state in ENDED for job in seen)
            tell(f"{submitted} of {len(jobs)} jobs submitted, {ended} ended, {len(questions)} questions")
            if ended == len(jobs):
                return questions
            waiting = [job for job in seen if job.state == "pending" and job.first_started_at is None]
            if waiting:
                questions += _asked(client, random.choice(waiting), tell)
        later = jobs[submitted].arrives_at if submitted < len(jobs) else inf
        time.sleep(max(min(later, asks_at) - (time.monotonic() - began_at), 0.0))


def _asked(client: Client, job: JobView, tell: Callable[[str], None]) -> list[_Question]:
    """Nothing if the job has started meanwhile."""
    asked_at = time.time()
    try:
        answer = client.eta(job.id, seconds=BUDGET_SECONDS)
    except HoraeError as error:
        tell(f"no answer about job {job.id}: {error}")
        return [_Question(job, asked_at, None)]
    return [] if answer.starts is None else [_Question(job, answer.asked_at, answer.starts)]


def _compared(question: _Question, jobs: Mapping[str, JobView]) -> Answer | None:
    """What was said beside what happened; None: the job started while the question was on its way."""
    job, now = jobs[question.job.id], question.asked_at
    if job.first_started_at is None or job.first_started_at < now:
        return None
    past = [
        Wait(each.gpus, each.submitted_at, each.first_started_at)
        for each in jobs.values()
        if each.first_started_at is not None and each.tenant == job.tenant
    ]
    beside = baseline(past, job.gpus, now - job.submitted_at, now)
    predicted = UNKNOWN if question.starts is None else _from(question.starts, now)
    return Answer("live run", POLICIES[job.tenant], job.id, job.first_started_at - now, predicted, beside)


def _from(found: MomentView, now: float) -> Moments:
    return Moments(*(inf if at is None else at - now for at in (found.median, found.low, found.high)))
