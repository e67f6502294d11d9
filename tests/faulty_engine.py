"""An engine wrapper that loses, delays, duplicates and invents messages, for tests of scheduler and driver.

Events of users and operators are never touched: losing a submission is not an engine's fault. All faults are drawn from
the seed, so a failure is reproducible.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, nan
from random import Random

from horae.engines.engine import Engine, Moment
from horae.model.commands import Command
from horae.model.events import Ending, Event, Health, JobEnded, JobProgressed, JobStarted, NodeChanged, Surveyed

_FROM_ENGINE = (JobStarted, JobEnded, JobProgressed, Surveyed)


@dataclass(frozen=True, slots=True)
class Faults:
    """The probability of each fault, per message."""

    drop_command: float = 0.0
    drop_event: float = 0.0
    double: float = 0.0
    delay: float = 0.0
    delay_seconds_max: float = 60.0
    lie: float = 0.0


class FaultyEngine:
    def __init__(self, inner: Engine, faults: Faults, seed: int) -> None:
        self._inner = inner
        self._faults = faults
        self._random = Random(seed)
        self._delayed: list[tuple[float, int, Event]] = []  # a heap
        self._count = 0
        self._now = 0.0
        self._seen: list[JobStarted | JobEnded] = []  # events from which false ones are made

    def wait(self, until: float) -> Moment | None:
        due_at = self._delayed[0][0] if self._delayed else inf
        moment = self._inner.wait(min(until, due_at))
        if moment is None:
            return None
        self._now = moment.at
        events = self._distort(moment.events)
        while self._delayed and self._delayed[0][0] <= self._now:
            events.append(heapq.heappop(self._delayed)[2])
        return Moment(moment.at, events)

    def execute(self, commands: Sequence[Command]) -> Sequence[Event]:
        kept: list[Command] = []
        for command in commands:
            if self._happens(self._faults.drop_command):
                continue
            kept.append(command)
            if self._happens(self._faults.double):
                kept.append(command)
        return self._distort(self._inner.execute(kept))

    def _distort(self, events: Sequence[Event]) -> list[Event]:
        told: list[Event] = []
        for event in events:
            if not isinstance(event, _FROM_ENGINE):
                told.append(event)
                continue
            if isinstance(event, JobStarted | JobEnded):
                self._seen = [*self._seen[-99:], event]
            if self._happens(self._faults.drop_event):
                continue
            if self._happens(self._faults.delay):
                self._count += 1
                later = self._now + self._random.uniform(0.0, self._faults.delay_seconds_max)
                heapq.heappush(self._delayed, (later, self._count, event))
                continue
            told.append(event)
            if self._happens(self._faults.double):
                told.append(event)
        if self._happens(self._faults.lie):
            told.append(self._lie())
        return told

    def _lie(self) -> Event:
        """An event that cannot be true: about an unknown job, about a lease that ended long ago,
        or with invalid numbers."""
        old = self._random.choice(self._seen) if self._seen else JobStarted(self._now, "no-such-job", 0)
        stale = self._random.choice((old.epoch - 1, old.epoch + 1_000_000))
        return self._random.choice(
            (
                JobEnded(self._now, "no-such-job", old.epoch, Ending.FINISHED, 1.0),
                JobEnded(self._now, old.job_id, stale, Ending.FINISHED, 1e12),
                JobStarted(self._now, old.job_id, stale),
                JobProgressed(self._now, old.job_id, old.epoch, self._random.choice((nan, -1.0, inf))),
                NodeChanged(self._now, "nowhere", Health.FAILED),
            )
        )

    def _happens(self, probability: float) -> bool:
        return probability > 0 and self._random.random() < probability
