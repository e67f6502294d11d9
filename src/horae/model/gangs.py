"""Gangs as HiveD's users describe them."""

from __future__ import annotations

from dataclasses import dataclass

OPPORTUNISTIC = -1  # a priority: preemptible, on GPUs that no tenant uses
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
    lazy: bool = False  # may lose its guarantee and run on, rather than be stopped at once
