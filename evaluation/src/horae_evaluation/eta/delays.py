"""What `horae plan` says a new job would delay, beside what it did delay.

The job of a history that was submitted next is the new one. What it did is the difference between two runs with all
true lengths and all later jobs, with it and without it: only one of the two can be observed, so both are simulated.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random
from statistics import median
from typing import NamedTuple

from horae.forks.beliefs import Beliefs
from horae.forks.forward import Watch, run_forward
from horae.forks.plan import NOTABLE_SECONDS, future, summarise
from horae.forks.present import Present
from horae.model.serialization import Plain
from horae.scheduler import Scheduler
from horae_evaluation.eta.calibration import WAIT_MIN_SECONDS, part_of
from horae_evaluation.eta.histories import History, past_at


@dataclass(frozen=True)
class PlanAnswer:
    """By job that was there: the delays that a new job was said to cause, and those that it caused, in seconds."""

    history: str
    policy: str
    job_id: str  # the new one
    predicted: dict[str, float]
    actual: dict[str, float]

    @property
    def totals(self) -> tuple[float, float]:
        return sum(self.predicted.values()), sum(self.actual.values())


class DelayErrors(NamedTuple):
    questions: int
    jobs: int  # that were there, over all questions
    delayed: int  # of them, by a minute or more
    found: int  # of those, the number that the plan names
    named: int  # how many jobs the plans name
    delay: float  # the median of the delayed: what saying nothing would be wrong by
    error: float  # the median absolute error of the same jobs
    sign: int  # questions in which the sum of all delays was predicted with the right sign, or as none

    @classmethod
    def of(cls, answers: Sequence[PlanAnswer]) -> DelayErrors:
        pairs = [(each.predicted[job_id], each.actual[job_id]) for each in answers for job_id in each.actual]
        delayed = [(said, was) for said, was in pairs if was >= NOTABLE_SECONDS]
        return cls(
            len(answers),
            len(pairs),
            len(delayed),
            sum(said >= NOTABLE_SECONDS for said, _ in delayed),
            sum(said >= NOTABLE_SECONDS for said, _ in pairs),
            median(was for _, was in delayed) if delayed else 0.0,
            median(abs(said - was) for said, was in delayed) if delayed else 0.0,
            sum(_sign(said) == _sign(was) for said, was in (each.totals for each in answers)),
        )


def _sign(seconds: float) -> int:
    return (seconds >= NOTABLE_SECONDS) - (seconds <= -NOTABLE_SECONDS)


def ask_plans(history: History, policy: str, part: str, count: int, draws: int, seed: int) -> list[PlanAnswer]:
    """Just before jobs that had to wait were submitted."""
    seen, rng = history.run(policy), Random(f"{seed} plan {history.name} {policy} {part}")
    waited = [
        each for each in part_of(history, part) if seen.started[each.job.id] - each.job.submitted_at >= WAIT_MIN_SECONDS
    ]
    chosen = rng.sample(waited, min(count, len(waited)))
    chosen.sort(key=lambda each: each.job.submitted_at)
    answers: list[PlanAnswer] = []

    def look(number: int, scheduler: Scheduler) -> None:
        new, now, dump = chosen[number].job, scheduler.now, scheduler.dump()
        beliefs = Beliefs(past_at(history, seen, now), Present.of(scheduler).running())
        pairs = [
            (future(Scheduler.restore(dump), None, beliefs, each), future(Scheduler.restore(dump), new, beliefs, each))
            for each in range(draws)
        ]
        said = {each.job_id: each.seconds for each in summarise(new.id, now, pairs).delays}
        live = set(scheduler.jobs.live)
        beside, without = (_true_future(history, dump, live, leave_out) for leave_out in ("", new.id))
        caused = {each: beside.ended[each] - without.ended[each] for each in sorted(live)}
        predicted = {each: said.get(each, 0.0) for each in caused}
        answers.append(PlanAnswer(history.name, policy, new.id, predicted, caused))

    history.visit(policy, [each.job.submitted_at - 1e-3 for each in chosen], look)
    return answers


def _true_future(history: History, dump: Plain, live: set[str], leave_out: str) -> Watch:
    """What happens to live jobs, with all true lengths and all later jobs but one."""
    scheduler, seen = Scheduler.restore(dump), Watch()
    truths = {each.job.id: each.truth for each in history.arrivals}
    later = [each for each in history.arrivals if not scheduler.jobs.is_known(each.job.id) and each.job.id != leave_out]
    run_forward(scheduler, truths, later, [seen], lambda: live <= seen.ended.keys())
    return seen


def by_policy(answers: Iterable[PlanAnswer]) -> dict[tuple[str, str], DelayErrors]:
    found: dict[tuple[str, str], list[PlanAnswer]] = {}
    for each in answers:
        found.setdefault((each.history, each.policy), []).append(each)
    return {key: DelayErrors.of(group) for key, group in found.items()}
