"""The input of an admission pass: the GPUs of one pool, and placement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, Protocol

from horae.model.arrays import Bools, Ints
from horae.model.plans import Contest, Riders, Settlement, Spot, Turns
from horae.model.shapes import Demand, Shape


class PlacementSearch(Protocol):
    """The placement interface that the pass uses."""

    def hasten(self) -> None: ...

    def settle(self, turns: Turns, demands: Sequence[Demand]) -> Settlement | None: ...

    def place(self, free: Bools, riders: Riders, demand: Demand, shape: Shape) -> Spot | None: ...

    def place_over(self, contest: Contest, riders: Riders, demand: Demand, shape: Shape) -> Spot | None: ...

    def obtained(self, spot: Spot, shape: Shape) -> Shape: ...

    def tighter(self, one: Shape, other: Shape) -> Shape: ...

    def count(self, free: Bools, shape: Shape) -> int: ...

    def last_of_type(self, standing: Ints, shape: Shape) -> int: ...

    def sharing(self, gpus: Ints, holder: Ints) -> set[int]: ...


class PassInput(NamedTuple):
    """The GPUs of one pool at the start of the pass."""

    pool: str
    usable: Bools  # in this pool, healthy, and held for no job
    holder: Ints  # epoch of the lease on each GPU
    riders: Riders
    demands: Sequence[Demand]
    ids: Sequence[str]  # by row
    quota_left: Mapping[str, int] | None = None  # by GPU type: how many more may be used; None: no limit
    leaving: frozenset[int] = frozenset()  # epochs of leases whose jobs were told to leave, and are not late
    held: Mapping[int, Ints] = MappingProxyType({})  # by row of a job waiting for others to leave: its GPUs
    barred: Bools | None = None  # by row: whether its job must not start now
