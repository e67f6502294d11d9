"""What a process of a comparison does. It starts in a fraction of a second because it imports nothing but the core."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from horae.comparison.crew import Tell, Work
from horae.comparison.progress import Counter
from horae.comparison.task import Task
from horae.comparison.workload import Workload
from horae.driver import Observer
from horae.experiment import simulate
from horae.model.jobs import Arrival
from horae.model.view import Policy
from horae.policies.registry import POLICIES
from horae.reports.log import RunLog


class Luggage(NamedTuple):
    """What every worker needs, once."""

    workload: Workload
    policies: Mapping[str, type[Policy]]  # those that the package does not have itself
    watched: bool  # somebody wants to know how many jobs have ended


def execute(task: Task, arrivals: Sequence[Arrival], observers: Sequence[Observer] = ()) -> RunLog:
    failures = task.failures
    return simulate(
        task.setup,
        arrivals,
        failures.plan(task.setup, task.seed, arrivals),
        checkpoint_seconds=failures.checkpoint_seconds,
        observers=observers,
    ).log


class Draws:
    """The draw at hand. Tasks come sorted by seed, so the one before is not needed again."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._seed: int | None = None
        self._arrivals: list[Arrival] = []

    def __getitem__(self, seed: int) -> list[Arrival]:
        if seed != self._seed:
            self._arrivals = self._workload(seed)
            self._seed = seed
        return self._arrivals


def open_shop(luggage: Luggage) -> Work[Task, RunLog]:
    POLICIES.update(luggage.policies)
    draws = Draws(luggage.workload)

    def work(task: Task, tell: Tell) -> RunLog:
        return execute(task, draws[task.seed], [Counter(tell)] if luggage.watched else [])

    return work
