"""Gangs that ask for cells, and what they are answered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

OPPORTUNISTIC = -1  # a priority: whatever is idle, until somebody needs it
PRIORITY_MAX = 1000


@dataclass(frozen=True)
class Gang:
    """All or nothing: so many members, each on GPUs of one node."""

    name: str
    tenant: str
    members: tuple[int, ...]  # GPUs of each
    priority: int = 0
    accelerator: str = ""  # "": any type of GPU, but one for all
    pin: str = ""  # the pinned cell that it wants; "": none
    lazy: bool = False  # may be made opportunistic where it runs, rather than be stopped at once
    mixed: bool = False  # members may be on cells of several chains

    @property
    def is_guaranteed(self) -> bool:
        return self.priority > OPPORTUNISTIC

    @property
    def gpus(self) -> int:
        return sum(self.members)


class Seat(NamedTuple):
    """Where one member is."""

    chain: int
    node: int
    mask: int  # GPUs of the node, a bit each
    level: int  # of the tenant's cell that it counts against; -1: of none


Seats: TypeAlias = tuple[Seat, ...]  # by member


@dataclass(frozen=True)
class Placed:
    """It may start; those who only lost their guarantee go on where they are."""

    seats: Seats
    downgraded: tuple[str, ...] = ()
    cancelled: tuple[str, ...] = ()  # who waited for some of these GPUs with less right to them


@dataclass(frozen=True)
class Preempts:
    """It may start when the victims have left; until then its GPUs are kept for it."""

    seats: Seats
    victims: tuple[str, ...]
    downgraded: tuple[str, ...] = ()
    cancelled: tuple[str, ...] = ()


@dataclass(frozen=True)
class Waits:
    why: str


@dataclass(frozen=True)
class Never:
    """Not even when everybody else is gone."""

    why: str
    largest: int  # GPUs of the largest member that would fit


Answer: TypeAlias = Placed | Preempts | Waits | Never


@dataclass(frozen=True)
class Record:
    """What is known of a gang that runs, enough to find it again after a crash."""

    gang: Gang
    seats: tuple[tuple[str, str, tuple[int, ...], str], ...]  # chain, node, GPUs of the node, type of the tenant's cell
    downgraded: bool = False
