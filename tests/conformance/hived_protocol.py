"""What an allocator of cells must offer to take part in the replay of recorded histories.

Gangs, nodes and GPUs are known by name only, and every gang is placed and released as a whole. How pods arrive and
leave one by one is the business of the replay: a gang asks again for each of its pods, and is deleted with its last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol, TypeAlias

from horae.traces.clusters.hived import HivedConfig


@dataclass(frozen=True)
class Request:
    """A gang that asks for GPUs, all or nothing."""

    name: str
    tenant: str
    members: tuple[int, ...]  # GPUs of each
    priority: int  # -1: opportunistic; 0 to 1000: guaranteed
    accelerator: str  # "": any
    pinned_cell: str  # "": none
    is_lazy: bool  # is downgraded to opportunistic where it runs, rather than stopped, while its GPUs are not needed


class Member(NamedTuple):
    """Where one member of a gang is."""

    chain: str  # type of the top-level cell
    node: str  # address of the machine
    gpus: tuple[str, ...]  # addresses on that machine
    cell_type: str = ""  # of the tenant's cell that it counts against; "": it is opportunistic, or not known


Suggested: TypeAlias = frozenset[str] | None  # addresses of the nodes on which new cells may be bound; None: all


class Kind(Enum):
    BIND = "bind"
    PREEMPT = "preempt"
    WAIT = "wait"
    ERROR = "error"  # the request itself is refused


@dataclass(frozen=True)
class Decision:
    kind: Kind
    members: tuple[Member, ...] = ()  # by member of the request; for BIND and PREEMPT
    victims: frozenset[str] = frozenset()  # gangs that must leave first; for PREEMPT
    downgraded: frozenset[str] = frozenset()  # gangs that become opportunistic where they run
    cancelled: frozenset[str] = frozenset()  # preempting gangs that lose their reservation


class Allocator(Protocol):
    """What takes part in a replay."""

    def schedule(self, request: Request, suggested: Suggested) -> Decision:
        """Decide, and change nothing. A gang that has its placement insists on it."""

    def reserve(self, request: Request, suggested: Suggested) -> None:
        """Carry out the decision to preempt: GPUs are kept for the gang, and its victims are being preempted."""

    def commit(self, request: Request, members: Sequence[Member]) -> bool:
        """Place a gang exactly there, even if that is not what was decided; its own reservation is replaced.

        False, and nothing changes, if the GPUs are taken or the tenant's cells of these types do not cover them, so
        that the gang could not have its guarantee there without breaking somebody's.
        """

    def downgrade(self, gang: str) -> None:
        """Take a gang's guarantee away; it keeps running as an opportunistic one."""

    def delete(self, gang: str) -> None:
        """A running gang has left, or a preempting one gives up its reservation."""

    def set_health(self, node: str, *, is_healthy: bool) -> None:
        """Nothing new is placed on a bad node; gangs there keep running."""

    def states(self) -> dict[str, str]:
        """By gang: Allocated, Preempting or BeingPreempted, with +lazyPreempted where it lost its guarantee."""

    def check(self) -> None:
        """Raise if the allocator's state contradicts itself or no longer covers every reservation."""


MakeAllocator: TypeAlias = Callable[[HivedConfig], Allocator]
