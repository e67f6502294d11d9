"""Questions at sampled moments of a history: when will this waiting job start? Beside it, when it did.

The questions of the first part of a history are for choosing how lengths are drawn; those of the second are reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf, nan
from random import Random
from statistics import median
from typing import NamedTuple

from horae.forks.beliefs import Beliefs
from horae.forks.eta import Moments, draw
from horae.forks.present import Present
from horae.model.jobs import Arrival
from horae.scheduler import Scheduler
from horae_evaluation.eta.histories import History, past_at

WEEK_SECONDS = 7 * 86_400.0
WAIT_MIN_SECONDS = 60.0  # shorter waits are over before a user asks
Horizons = Sequence[tuple[str, float]]
HORIZONS: Horizons = (
    ("< 10 min", 600.0),
    ("< 1 h", 3600.0),
    ("< 6 h", 21_600.0),
    ("< 1 day", 86_400.0),
    ("longer", inf),
)
PARTS = {"first": (0.2, 0.5), "second": (0.5, 1.0)}  # of the jobs; those before are a past to learn from


@dataclass(frozen=True)
class Answer:
    """One question, what was predicted, and what happened: all in seconds from when it was asked."""

    history: str
    policy: str
    job_id: str
    wait: float
    predicted: Moments
    baseline: Moments


class Wait(NamedTuple):
    """Of a past job, for its first start."""

    gpus: int
    submitted_at: float
    started_at: float


class Errors(NamedTuple):
    """Of one group of answers: predictions, and the baseline. The errors are those of the questions that got a time."""

    questions: int
    answered: int  # with a time: the others had "not within the budget", or "later than a month from now"
    wait: float  # the median
    error: float  # the median absolute error
    covered: float  # the fraction within the 90% interval
    below: float  # the fraction that started before the interval
    width: float  # the median, of the interval
    baseline_error: float
    baseline_covered: float

    @classmethod
    def of(cls, answers: Sequence[Answer]) -> Errors:
        told = [each for each in answers if each.predicted.median < inf]
        if not told:
            return cls(len(answers), 0, *[nan] * 7)

        def fraction(holds: Iterable[bool]) -> float:
            return sum(holds) / len(told)

        return cls(
            len(answers),
            len(told),
            median(each.wait for each in told),
            median(abs(each.predicted.median - each.wait) for each in told),
            fraction(each.predicted.low <= each.wait <= each.predicted.high for each in told),
            fraction(each.wait < each.predicted.low for each in told),
            median(_width(each.predicted) for each in told),
            median(abs(each.baseline.median - each.wait) for each in told),
            fraction(each.baseline.low <= each.wait <= each.baseline.high for each in told),
        )


def _width(found: Moments) -> float:
    return found.high - found.low if found.low < inf else inf


def part_of(history: History, part: str) -> tuple[Arrival, ...]:
    begin, end = (int(share * len(history.arrivals)) for share in PARTS[part])
    return history.arrivals[begin:end]


def ask_etas(history: History, policy: str, part: str, count: int, draws: int, seed: int) -> list[Answer]:
    """Each about a random job that waited for a minute or more, at a random moment of its wait."""
    seen, rng = history.run(policy), Random(f"{seed} {history.name} {policy} {part}")
    past = [Wait(each.job.gpus, each.job.submitted_at, seen.started[each.job.id]) for each in history.arrivals]
    waits = [(each.job, seen.started[each.job.id] - each.job.submitted_at) for each in part_of(history, part)]
    long = [(job, wait) for job, wait in waits if wait >= WAIT_MIN_SECONDS]
    chosen = rng.choices(long, k=count) if long else []
    asked = ((job.submitted_at + rng.uniform(0.0, 1.0) * wait, job) for job, wait in chosen)
    questions = sorted(asked, key=lambda each: each[0])
    answers: list[Answer] = []

    def look(number: int, scheduler: Scheduler) -> None:
        job, now, dump = questions[number][1], scheduler.now, scheduler.dump()
        beliefs = Beliefs(past_at(history, seen, now), Present.of(scheduler).running())
        made = [draw(Scheduler.restore(dump), job.id, beliefs, each, only_start=True) for each in range(draws)]
        predicted = Moments.of([each.starts_at - now for each in made])
        beside = baseline(past, job.gpus, now - job.submitted_at, now)
        answers.append(Answer(history.name, policy, job.id, seen.started[job.id] - now, predicted, beside))

    history.visit(policy, [at for at, _ in questions], look)
    return answers


def baseline(past: Iterable[Wait], gpus: int, waited: float, now: float) -> Moments:
    """Waits of the last week's jobs with as many GPUs, or of all if there are none; less what the job has waited."""
    recent = [each for each in past if now - WEEK_SECONDS <= each.started_at <= now]
    alike = [each for each in recent if each.gpus == gpus] or recent
    if not alike:
        return Moments(0.0, 0.0, 0.0)
    found = Moments.of([each.started_at - each.submitted_at for each in alike])
    return Moments(*(max(each - waited, 0.0) for each in (found.median, found.low, found.high)))


def by_horizon(answers: Sequence[Answer], horizons: Horizons = HORIZONS) -> dict[str, Errors]:
    """By how long the job still waited: the groups that are not empty, and all."""
    groups: dict[str, list[Answer]] = {name: [] for name, _ in horizons}
    for each in answers:
        groups[next(name for name, below in horizons if each.wait < below)].append(each)
    return {name: Errors.of(group) for name, group in {**groups, "all": list(answers)}.items() if group}
