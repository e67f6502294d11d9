"""Questions at sampled moments: the predicted start of a waiting job, and the delays that a new job would cause."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from random import Random
from statistics import median

from horae.forks.beliefs import Beliefs
from horae.forks.eta import Draw, Moments, draw
from horae.forks.forward import Watch, run_forward
from horae.forks.plan import future, summarise
from horae.model.jobs import Arrival
from horae.scheduler import Scheduler
from horae_evaluation.eta.histories import History, past_at

WEEK_SECONDS = 7 * 86_400.0
WAIT_MIN_SECONDS = 60.0  # shorter waits are over before they are asked about
HORIZONS = (("< 10 min", 600.0), ("< 1 h", 3600.0), ("< 6 h", 21_600.0), ("longer", inf))
NOTABLE_SECONDS = 60.0


@dataclass(frozen=True)
class Answer:
    """One question, what was predicted, and what happened: all in seconds from when it was asked."""

    history: str
    policy: str
    job_id: str
    wait: float
    predicted: Moments
    baseline: Moments

    @property
    def horizon(self) -> str:
        return next(name for name, below in HORIZONS if self.wait < below)


def ask_etas(history: History, policy: str, count: int, draws: int, seed: int) -> list[Answer]:
    seen, rng = history.run(policy), Random(f"{seed} {history.name} {policy}")
    warm = history.arrivals[len(history.arrivals) // 5].job.submitted_at  # a past to learn from
    waits = [
        (each.job, seen.started[each.job.id] - each.job.submitted_at)
        for each in history.arrivals
        if each.job.submitted_at >= warm and each.job.id in seen.started
    ]
    long = [(job, wait) for job, wait in waits if wait >= WAIT_MIN_SECONDS]
    chosen = rng.sample(long, min(count, len(long)))
    questions = sorted((job.submitted_at + rng.uniform(0.0, 0.9) * wait, job.id) for job, wait in chosen)
    answers: list[Answer] = []

    def look(number: int, scheduler: Scheduler) -> None:
        job_id, now = questions[number][1], scheduler.now
        dump = scheduler.dump()
        beliefs = Beliefs(past_at(history, seen, now))
        made = [draw(Scheduler.restore(dump), job_id, beliefs, each, only_start=True) for each in range(draws)]
        submitted_at = next(each.job.submitted_at for each in history.arrivals if each.job.id == job_id)
        answers.append(
            Answer(
                history.name,
                policy,
                job_id,
                seen.started[job_id] - now,
                _from_now(made, now),
                _baseline(history, seen, job_id, now, now - submitted_at),
            )
        )

    history.visit(policy, [at for at, _ in questions], look)
    return answers


def _from_now(draws: Iterable[Draw], now: float) -> Moments:
    return Moments.of([each.starts_at - now for each in draws])


def _baseline(history: History, seen: Watch, job_id: str, now: float, waited: float) -> Moments:
    """Waits of the last week's jobs with as many GPUs, or of all if there are none; less what it has waited."""
    gpus = next(each.job.gpus for each in history.arrivals if each.job.id == job_id)
    recent = [each.job for each in history.arrivals if now - WEEK_SECONDS <= seen.started.get(each.job.id, inf) <= now]
    alike = [job for job in recent if job.gpus == gpus] or recent
    if not alike:
        return Moments(0.0, 0.0, 0.0)
    found = Moments.of([seen.started[job.id] - job.submitted_at for job in alike])
    return Moments(*(max(each - waited, 0.0) for each in (found.median, found.low, found.high)))


@dataclass(frozen=True)
class PlanAnswer:
    """The delays that a job was said to cause, and those that it caused: seconds by job that was there."""

    history: str
    policy: str
    predicted: dict[str, float]
    actual: dict[str, float]


def ask_plans(history: History, policy: str, count: int, draws: int, seed: int) -> list[PlanAnswer]:
    """Just before jobs of the history are submitted: what happens with and without each of them."""
    seen, rng = history.run(policy), Random(f"{seed} plan {history.name} {policy}")
    middle = [each for each in history.arrivals if seen.started[each.job.id] - each.job.submitted_at > 0.0]
    chosen = sorted(rng.sample(middle[len(middle) // 5 :], count), key=lambda each: each.job.submitted_at)
    answers: list[PlanAnswer] = []

    def look(number: int, scheduler: Scheduler) -> None:
        new, now, dump = chosen[number], scheduler.now, scheduler.dump()
        beliefs = Beliefs(past_at(history, seen, now))
        pairs = [
            (future(Scheduler.restore(dump), None, beliefs, each), future(_with(dump), new.job, beliefs, each))
            for each in range(draws)
        ]
        said = {each.job_id: each.seconds for each in summarise(new.job.id, now, pairs).delays}
        live = set(scheduler.jobs.live)
        without, beside = (_true_future(history, dump, each, live) for each in (None, new))
        caused = {each: beside.ended[each] - without.ended[each] for each in live}
        answers.append(PlanAnswer(history.name, policy, {each: said.get(each, 0.0) for each in live}, caused))

    history.visit(policy, [each.job.submitted_at - 1e-3 for each in chosen], look)
    return answers


def _with(dump: object) -> Scheduler:
    return Scheduler.restore(dump)


def _true_future(history: History, dump: object, new: Arrival | None, live: set[str]) -> Watch:
    """What happens with or without the job, with all true lengths and later jobs."""
    scheduler, seen = Scheduler.restore(dump), Watch()
    truths = {each.job.id: each.truth for each in history.arrivals}
    later = [each for each in history.arrivals if not scheduler.jobs.is_known(each.job.id)]
    first = new or min(later, key=lambda each: each.job.submitted_at)
    kept = [each for each in later if new is not None or each.job.id != first.job.id]
    run_forward(scheduler, truths, kept, [seen], lambda: live <= seen.ended.keys())
    return seen


def errors(answers: Iterable[Answer]) -> tuple[float, float, float, float]:
    """Median absolute error and coverage of the 90% interval: predicted, and of the baseline."""
    found = list(answers)
    own = median(abs(each.predicted.median - each.wait) for each in found)
    other = median(abs(each.baseline.median - each.wait) for each in found)
    inside = [each.predicted.low <= each.wait <= each.predicted.high for each in found]
    inside_other = [each.baseline.low <= each.wait <= each.baseline.high for each in found]
    return own, sum(inside) / len(found), other, sum(inside_other) / len(found)
