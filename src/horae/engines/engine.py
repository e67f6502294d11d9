"""What every engine is: it carries out commands and tells what happens. The scheduler never learns which one it has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from horae.model.commands import Command
from horae.model.events import Event


class Moment(NamedTuple):
    """What is known to have happened by a certain time."""

    at: float
    events: Sequence[Event]


class Wakeable(Protocol):
    """An engine whose `wait` can be ended from outside, by another thread or a signal handler: live engines are."""

    def wake(self) -> None:
        """Let `wait` return soon, with whatever is known then; called before it waits, that counts for the next."""
        ...


class Engine(Protocol):
    """Commands are taken at once and their results come as events, at once or later. Commands of one job are carried
    out in the order in which they were given; a `Stop` of a lease that has not started leaves a tombstone."""

    def wait(self, until: float) -> Moment | None:
        """The next events, or the time `until` if nothing happens before; None if nothing ever will."""
        ...

    def execute(self, commands: Sequence[Command]) -> Sequence[Event]:
        """Carry out commands and tell what is known at once; a command that was carried out before changes nothing."""
        ...
