"""The loop that joins a scheduler to an engine. It is the same for every engine."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol

from horae.engines.engine import Engine
from horae.model.events import Event, Tick
from horae.scheduler import Reaction, Scheduler


class Observer(Protocol):
    """Somebody who keeps a record: metrics, a progress bar."""

    def reacted(self, event: Event, reaction: Reaction) -> None:
        """The scheduler has answered an event; the engine was not told yet."""
        ...


class WriteAhead(Observer, Protocol):
    """A record that must have the event before anything is done about it: the journal."""

    def heard(self, event: Event) -> None: ...


def run(
    scheduler: Scheduler,
    engine: Engine,
    observers: Iterable[Observer] = (),
    journal: WriteAhead | None = None,
    enough: Callable[[], bool] = lambda: False,
) -> None:
    """Go on until nothing will ever happen again, or until somebody has seen enough."""
    watching = tuple(observers)
    wake_at = scheduler.next_wakeup_at
    while not enough() and (moment := engine.wait(wake_at)) is not None:
        if moment.events:
            deliver(scheduler, engine, moment.events, watching, journal)
            wake_at = scheduler.next_wakeup_at
        if wake_at <= moment.at:
            deliver(scheduler, engine, (Tick(moment.at),), watching, journal)
            wake_at = scheduler.next_wakeup_at


def deliver(
    scheduler: Scheduler,
    engine: Engine,
    events: Iterable[Event],
    observers: tuple[Observer, ...] = (),
    journal: WriteAhead | None = None,
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
        for observer in observers:
            observer.reacted(event, reaction)
        if reaction.commands:
            waiting.extend(engine.execute(reaction.commands))
