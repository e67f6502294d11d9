"""Gangs in the terms of HiveD's users."""

from __future__ import annotations

from dataclasses import dataclass

OPPORTUNISTIC = -1  # a priority: preemptible, on GPUs that no tenant uses
PRIORITY_MAX = 1000


@dataclass(frozen=True)
class HivedGang:
    """A gang, scheduled all or nothing: a number of members, each on GPUs of one node."""

    name: str
    tenant: str
    members: tuple[int, ...]  # GPUs of each
    priority: int = 0
    accelerator: str = ""  # "": any GPU type, but the same for all members
    pin: str = ""  # the pinned cell that it wants; "": none
    lazy: bool = False  # may lose its guarantee and keep running, rather than be stopped at once
