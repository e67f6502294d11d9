"""An engine wrapper for schedulers that are given wrong speeds: Gavel's experiment on errors of estimates (OSDI'20)."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from horae.engines.engine import Engine, Moment
from horae.experiments.learning import lognormal, random_stream, with_beliefs
from horae.model.commands import Command
from horae.model.errors import InputError
from horae.model.events import Event, JobSubmitted
from horae.model.jobs import Job
from horae.model.shapes import Option


class NoisyEngine:
    """An engine wrapper that multiplies the reported speeds by seeded factors with mean 1, without learning.

    A factor is drawn for each model, gang and GPU type or, if `by_job`, for each job and GPU type.
    """

    def __init__(self, inner: Engine, noise: float, seed: int = 0, *, by_job: bool = False) -> None:
        if not 0.0 <= noise < inf:
            remedy = "give a relative standard deviation of at least 0"
            raise InputError(f"is {noise!r}", field="noise", remedy=remedy)
        self._inner, self._noise, self._seed, self._by_job = inner, noise, seed, by_job

    def wait(self, until: float) -> Moment | None:
        moment = self._inner.wait(until)
        return None if moment is None else Moment(moment.at, [self._told(event) for event in moment.events])

    def execute(self, commands: Sequence[Command]) -> Sequence[Event]:
        return [self._told(event) for event in self._inner.execute(commands)]

    def _told(self, event: Event) -> Event:
        return (
            JobSubmitted(event.at, with_beliefs(event.job, self._wrong)) if isinstance(event, JobSubmitted) else event
        )

    def _wrong(self, job: Job, option: Option) -> float:
        owner = job.id if self._by_job else job.model
        stream = random_stream(self._seed, "noise", owner, option.shape.accelerator, str(option.shape.gpus))
        return option.steps_per_second * lognormal(stream, self._noise)
