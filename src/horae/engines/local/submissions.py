"""A local engine with a list of jobs: it submits them when their time has come, for runs without a service."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from math import inf
from pathlib import Path
from types import TracebackType
from typing import Self

from horae.engines.engine import Moment
from horae.engines.local.engine import LocalEngine
from horae.engines.local.launch import Launch
from horae.model.cluster import Cluster
from horae.model.commands import Command
from horae.model.events import Event, JobSubmitted
from horae.model.jobs import Arrival, Job


class SubmittingEngine:
    """Its time is seconds since its creation. `jobs` are in the order in which they will be submitted; `outside` are
    events from operators and hardware. When it is closed, everything that still runs is killed."""

    def __init__(self, cluster: Cluster, jobs: Iterable[Job], folder: Path, outside: Iterable[Event] = ()) -> None:
        self._made_at = time.monotonic()
        self.engine = LocalEngine(cluster, folder, lambda: self.now)
        submitted = (JobSubmitted(job.submitted_at, job) for job in jobs)
        self._coming = sorted([*outside, *submitted], key=lambda event: event.at)[::-1]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def now(self) -> float:
        return time.monotonic() - self._made_at

    def close(self) -> None:
        self.engine.stop_all(0.0)
        while self.engine.wait(inf) is not None:
            pass
        self.engine.close()

    def wake(self) -> None:
        self.engine.wake()

    def expect(self, arrival: Arrival) -> None:
        """Registers a job that is submitted elsewhere."""
        self.engine.expect(Launch.of(arrival.job))

    def execute(self, commands: Sequence[Command]) -> Sequence[Event]:
        return self.engine.execute(commands)

    def wait(self, until: float) -> Moment | None:
        moment = self.engine.wait(min(until, self._coming[-1].at if self._coming else inf))
        if moment is None:
            return None
        events = list(moment.events)
        while self._coming and self._coming[-1].at <= moment.at:
            event = self._coming.pop()
            events.append(event)
            if isinstance(event, JobSubmitted):
                self.engine.expect(Launch.of(event.job))
        return Moment(moment.at, events)
