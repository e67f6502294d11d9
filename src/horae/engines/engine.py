"""The interface of every engine: it carries out commands and reports events.

The scheduler never learns which one it has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from horae.model.commands import Command
from horae.model.events import Event


class Moment(NamedTuple):
    """Everything known to have happened by a given time."""

    at: float
    events: Sequence[Event]


class Wakeable(Protocol):
    """An engine whose `wait` can be interrupted by another thread or a signal handler, as live engines can."""

    def wake(self) -> None:
        """Makes `wait` return soon, with the events known then;
        if nothing waits now, the next `wait` returns at once."""
        ...


class Engine(Protocol):
    """Carries out commands; results arrive as events, at once or later.

    Commands of one job are carried out in the order given; a `Stop` of a lease that has not started leaves a tombstone.
    """

    def wait(self, until: float) -> Moment | None:
        """The next events, or the time `until` if nothing happens before; None if nothing ever will."""
        ...

    def execute(self, commands: Sequence[Command]) -> Sequence[Event]:
        """Carries out commands and returns the immediate events;
        a command that was carried out before changes nothing."""
        ...
