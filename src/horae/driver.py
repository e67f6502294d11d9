"""The loop that joins a scheduler to an engine. It is the same for every engine."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Protocol

from horae.engines.engine import Engine
from horae.model.events import Event, Tick
from horae.scheduler import Reaction, Scheduler


class Observer(Protocol):
    """Somebody who keeps a record: a journal, metrics, a progress bar."""

    def heard(self, event: Event) -> None:
        """An event arrived; nothing was done about it yet."""
        ...

    def reacted(self, event: Event, reaction: Reaction) -> None:
        """The scheduler has answered; the engine was not told yet."""
        ...


def run(scheduler: Scheduler, engine: Engine, observers: Iterable[Observer] = ()) -> None:
    """Go on until nothing will ever happen again."""
    watching = tuple(observers)
    while (moment := engine.wait(scheduler.next_wakeup_at)) is not None:
        deliver(scheduler, engine, moment.events, watching)
        if scheduler.next_wakeup_at <= moment.at:
            deliver(scheduler, engine, (Tick(moment.at),), watching)


def deliver(
    scheduler: Scheduler, engine: Engine, events: Sequence[Event], observers: tuple[Observer, ...] = ()
) -> None:
    """Tell the scheduler what happened, the engine what to do about it, and so on until both are silent."""
    waiting = deque(events)
    while waiting:
        event = waiting.popleft()
        for observer in observers:
            observer.heard(event)
        reaction = scheduler.handle(event)
        for observer in observers:
            observer.reacted(event, reaction)
        if reaction.commands:
            waiting.extend(engine.execute(reaction.commands))
