"""The loop that connects a scheduler and an engine; the same for every engine."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol

from horae.engines.engine import Engine
from horae.journal import EffectsReader, JournalLines, pack, packed_entry
from horae.model.commands import Survey
from horae.model.effects import Effects
from horae.model.errors import BrokenInvariant, PolicyError
from horae.model.events import Event, Tick
from horae.model.notices import DecisionRejected, FactRejected
from horae.model.serialization import Plain
from horae.scheduler import Reaction, Scheduler


class Schedules(Protocol):
    """A scheduler, or a wrapper around one."""

    def handle(self, event: Event) -> Reaction: ...

    @property
    def next_wakeup_at(self) -> float: ...


class Guarded:
    """A wrapper for a scheduler that must keep running: an event that breaks an invariant is rejected as a whole.

    The state is then rebuilt as before the event, from a dump and the effects recorded since, the operator gets a
    notice, and the engine is surveyed. A `Tick` that fails is applied without its decisions: pools keep their last
    plans. The effects are kept as they are written to a log: a decision about many jobs takes megabytes otherwise.
    """

    def __init__(self, scheduler: Scheduler, events_max: float = 1000) -> None:
        self.scheduler = scheduler
        self.recorded: bytes | None = None  # the effects of the last event, packed
        self._events_max = events_max  # between two dumps
        self._dump = scheduler.dump()
        self._lines = JournalLines()
        self._since: list[tuple[Event, bytes | None]] = []

    @property
    def events_since_dump(self) -> int:
        return len(self._since)

    def dump(self) -> Plain:
        """A dump of the present state, from which a later rejection continues."""
        self._dump, self._since = self.scheduler.dump(), []
        self._lines.forget_decisions()
        return self._dump

    @property
    def next_wakeup_at(self) -> float:
        return self.scheduler.next_wakeup_at

    def handle(self, event: Event) -> Reaction:
        try:
            reaction = self.scheduler.handle(event)
        except Exception as error:  # a bug of any kind: continuing with half an event applied would be worse
            reaction = self._reject(event, f"{type(error).__name__}: {error}")
        self.recorded = pack(self._lines.effects(reaction))
        self._since.append((event, self.recorded))
        if len(self._since) >= self._events_max:
            self.dump()
        return reaction

    def _reject(self, event: Event, error: str) -> Reaction:
        self.scheduler = Scheduler.restore(self._dump)
        reader = EffectsReader("the events since the last dump")
        for number, (former, packed) in enumerate(self._since, start=1):
            self.scheduler.handle(former, reader.read(packed_entry(number, former, packed)))
        notice = FactRejected(type(event).__name__, error)
        if isinstance(event, Tick):
            due = [pool for pool in self.scheduler.pools if min(pool.wake_at, pool.newcomers_at) <= event.at]
            stands = tuple(DecisionRejected(pool.spec.name, pool.policy.name, error, is_bug=True) for pool in due)
            reaction = self.scheduler.handle(event, Effects(rejected=stands))
            return reaction._replace(commands=(*reaction.commands, Survey()))
        return Reaction((Survey(),), (), (notice,))


class Observer(Protocol):
    """Records a run: metrics, a progress bar."""

    def reacted(self, event: Event, reaction: Reaction) -> None:
        """Called after the scheduler's reaction to an event, before the engine receives its commands."""
        ...


class WriteAhead(Observer, Protocol):
    """A record that must contain the event before it is acted upon: the journal."""

    def heard(self, event: Event) -> None: ...


def run(
    scheduler: Schedules,
    engine: Engine,
    observers: Iterable[Observer] = (),
    journal: WriteAhead | None = None,
    enough: Callable[[], bool] = lambda: False,
    *,
    strict: bool = False,
) -> None:
    """Runs until nothing will ever happen again, or until `enough` returns true.

    With `strict` a rejected decision ends the run, as in simulations; a service continues.
    """
    watching = tuple(observers)
    wake_at = scheduler.next_wakeup_at
    while not enough() and (moment := engine.wait(wake_at)) is not None:
        if moment.events:
            deliver(scheduler, engine, moment.events, watching, journal, strict=strict)
            wake_at = scheduler.next_wakeup_at
        if wake_at <= moment.at:
            deliver(scheduler, engine, (Tick(moment.at),), watching, journal, strict=strict)
            wake_at = scheduler.next_wakeup_at


def deliver(
    scheduler: Schedules,
    engine: Engine,
    events: Iterable[Event],
    observers: tuple[Observer, ...] = (),
    journal: WriteAhead | None = None,
    *,
    strict: bool = False,
) -> None:
    """Delivers events to the scheduler and its commands to the engine, repeatedly until neither has any left."""
    waiting = deque(events)
    while waiting:
        event = waiting.popleft()
        if journal is not None:
            journal.heard(event)
        reaction = scheduler.handle(event)
        if journal is not None:
            journal.reacted(event, reaction)
        if strict and reaction.notices:
            raise_rejected(reaction)
        for observer in observers:
            observer.reacted(event, reaction)
        if reaction.commands:
            waiting.extend(engine.execute(reaction.commands))


def raise_rejected(reaction: Reaction) -> None:
    """Raises the error that caused a decision to be rejected."""
    for notice in reaction.notices:
        if isinstance(notice, DecisionRejected):
            if notice.is_bug:
                raise BrokenInvariant(str(notice))
            raise PolicyError(notice.error)
