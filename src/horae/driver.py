"""The loop that joins a scheduler to an engine. It is the same for every engine."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol

from horae.engines.engine import Engine
from horae.model.commands import Survey
from horae.model.effects import Effects, effects_of
from horae.model.errors import BrokenInvariant, PolicyError
from horae.model.events import Event, Tick
from horae.model.notices import DecisionRejected, FactRejected
from horae.scheduler import Reaction, Scheduler


class Schedules(Protocol):
    """A scheduler, or something around one."""

    def handle(self, event: Event) -> Reaction: ...

    @property
    def next_wakeup_at(self) -> float: ...


class Guarded:
    """Around a scheduler that must go on whatever happens: an event that breaks an invariant is rejected as a whole.

    The state is then that before the event, rebuilt from a dump and the effects recorded since, the operator is told,
    and the engine is surveyed. A `Tick` that fails is applied without its decisions: pools stand on their last plans.
    """

    def __init__(self, scheduler: Scheduler, events_max: int = 1000) -> None:
        self.scheduler = scheduler
        self._events_max = events_max  # between two dumps
        self._dump = scheduler.dump()
        self._since: list[tuple[Event, Effects]] = []

    @property
    def next_wakeup_at(self) -> float:
        return self.scheduler.next_wakeup_at

    def handle(self, event: Event) -> Reaction:
        try:
            reaction = self.scheduler.handle(event)
        except Exception as error:  # a bug, of whatever kind: going on with half an event applied would be worse
            reaction = self._reject(event, f"{type(error).__name__}: {error}")
        self._since.append((event, effects_of(reaction)))
        if len(self._since) >= self._events_max:
            self._dump, self._since = self.scheduler.dump(), []
        return reaction

    def _reject(self, event: Event, error: str) -> Reaction:
        self.scheduler = Scheduler.restore(self._dump)
        for former, effects in self._since:
            self.scheduler.handle(former, effects)
        notice = FactRejected(type(event).__name__, error)
        if isinstance(event, Tick):
            due = [pool for pool in self.scheduler.pools if min(pool.wake_at, pool.newcomers_at) <= event.at]
            stands = tuple(DecisionRejected(pool.spec.name, pool.policy.name, error, is_bug=True) for pool in due)
            reaction = self.scheduler.handle(event, Effects(rejected=stands))
            return reaction._replace(commands=(*reaction.commands, Survey()))
        return Reaction((Survey(),), (), (notice,))


class Observer(Protocol):
    """Somebody who keeps a record: metrics, a progress bar."""

    def reacted(self, event: Event, reaction: Reaction) -> None:
        """The scheduler has answered an event; the engine was not told yet."""
        ...


class WriteAhead(Observer, Protocol):
    """A record that must have the event before anything is done about it: the journal."""

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
    """Go on until nothing will ever happen again, or until `enough` says so.

    With `strict` a decision that is rejected ends the run: simulations stop there, a service goes on.
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
    """Tell the scheduler what happened, the engine what to do about it, and so on until both are silent."""
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
    """Turn a decision that was rejected into the error that rejected it."""
    for notice in reaction.notices:
        if isinstance(notice, DecisionRejected):
            if notice.is_bug:
                raise BrokenInvariant(str(notice))
            raise PolicyError(notice.error)
