"""Chains of cells: GPU < switch < … < node < … < top, with all cells of a level equal.

A cluster is split into chains, one for each kind of top-level cell. Cells are numbered by level, with siblings
contiguous: the parent of cell c is c // fanout, and GPU g lies in cell g // gpus[level]. GPUs are numbered from the
first of the chain.
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
    types: tuple[str, ...]  # cell types by level; the finest is one GPU
    fanout: tuple[int, ...]  # children per cell, by level; 1 for a GPU
    nodes: tuple[str, ...]  # by node cell; names need not be unique across chains
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
        """GPUs per cell, by level."""
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
    """A kind of cell: chain and level. Cells of one kind are interchangeable."""

    chain: int
    level: int


@dataclass(frozen=True)
class Pin:
    """A cell permanently assigned to one tenant, even if other cells are idle."""

    name: str
    kind: CellKind
    cell: int


@dataclass(frozen=True)
class Reservation:
    """The cells and pinned cells reserved for one tenant."""

    tenant: str
    cells: Mapping[CellKind, int] = field(default_factory=lambda: MappingProxyType({}))
    pinned: tuple[str, ...] = ()


@dataclass(frozen=True)
class Territory:
    """All chains of a cluster and the tenants' reservations in them."""

    chains: tuple[Chain, ...]
    reservations: tuple[Reservation, ...] = ()
    pins: tuple[Pin, ...] = ()
