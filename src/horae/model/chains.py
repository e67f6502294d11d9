"""Chains of cells: GPU < switch < … < node < … < top, every cell of a level alike.

A cluster is cut into chains, one for each kind of top-level cell. Cells are numbered by level, children side by side:
the parent of cell c is c // fanout, and GPU g lies in cell g // gpus[level]. GPUs are counted from the chain's first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple

from horae.model.errors import ClusterError


@dataclass(frozen=True)
class Chain:
    name: str  # of its top-level cells
    accelerator: str
    types: tuple[str, ...]  # of cell, by level; the finest is one GPU
    fanout: tuple[int, ...]  # children of a cell, by level; of a GPU: 1
    nodes: tuple[str, ...]  # by node cell; names need not be unique over chains
    node_level: int

    def __post_init__(self) -> None:
        if len(self.types) != len(self.fanout) or not 0 <= self.node_level < len(self.types):
            raise ClusterError(f"chain {self.name!r} has {len(self.types)} types and {len(self.fanout)} fanouts")
        if self.fanout[0] != 1 or min(self.fanout) < 1:
            raise ClusterError(f"chain {self.name!r} has a level without children", remedy="give each at least one")
        per_top = self.gpus[-1] // self.gpus[self.node_level]
        if not self.nodes or len(self.nodes) % per_top:
            raise ClusterError(f"chain {self.name!r} has {len(self.nodes)} nodes, which are no whole top-level cells")

    @cached_property
    def gpus(self) -> tuple[int, ...]:
        """By level: GPUs of a cell."""
        sizes = [1]
        for children in self.fanout[1:]:
            sizes.append(sizes[-1] * children)
        return tuple(sizes)

    @cached_property
    def gpu_count(self) -> int:
        return len(self.nodes) * self.node_gpus

    @property
    def node_gpus(self) -> int:
        return self.gpus[self.node_level]

    @property
    def top(self) -> int:
        return len(self.types) - 1

    def cells(self, level: int) -> int:
        return self.gpu_count // self.gpus[level]

    def cell_in(self, level: int, cell: int, coarser: int) -> int:
        """The cell of a coarser level that holds this one."""
        return cell * self.gpus[level] // self.gpus[coarser]


class CellKind(NamedTuple):
    """Cells that are as good as each other."""

    chain: int
    level: int


@dataclass(frozen=True)
class Pin:
    """A cell that is one tenant's for good, whatever is idle elsewhere."""

    name: str
    kind: CellKind
    cell: int


@dataclass(frozen=True)
class Reservation:
    """What a tenant was promised."""

    tenant: str
    cells: Mapping[CellKind, int] = field(default_factory=lambda: MappingProxyType({}))
    pinned: tuple[str, ...] = ()


@dataclass(frozen=True)
class Territory:
    """All chains of a cluster and who was promised what of them."""

    chains: tuple[Chain, ...]
    reservations: tuple[Reservation, ...] = ()
    pins: tuple[Pin, ...] = ()
