"""Virtual clusters beside the one they stand on: how a tenant's pool can be scheduled just like a private cluster.

The scheduler works on a *wide* cluster: the cells of every tenant as nodes of their own, and the real nodes for whoever
has no guarantee. So a tenant's pool sees what it would see of a private cluster of that shape, and decides the same. A
cell gets real GPUs when somebody is placed in it, and loses them when nobody is any more; the guests on those GPUs are
sent away. Real GPUs that a tenant uses are closed to the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from horae.guarantees.compartment import Compartment
from horae.guarantees.estate import Estate
from horae.model.arrays import Bools, Ints
from horae.model.cells import Cluster
from horae.model.chains import CellKind
from horae.model.layout import Layout, layout_of, private_nodes
from horae.model.pools import PoolSpec

_UNBOUND = -1


class _Cell(NamedTuple):
    """One of a tenant's cells in the wide cluster."""

    compartment: Compartment
    kind: CellKind
    gpus: Ints  # of the wide cluster


class Tenancy:
    def __init__(self, cluster: Cluster, specs: Sequence[PoolSpec], *, is_static: bool = False) -> None:
        self.layout: Layout = layout_of(cluster, {spec.name: spec.cells for spec in specs if spec.cells})
        self.estate = Estate(self.layout.territory)
        cells = [
            (tenant, kind, nodes)
            for tenant in range(len(self.layout.territory.reservations))
            for kind, _, nodes in private_nodes(self.layout, tenant)
        ]
        virtual = tuple(node for _, _, nodes in cells for node in nodes)
        self.wide = Cluster(cluster.name, (*cluster.nodes, *virtual), cluster.restart_seconds)
        self.cells = [
            _Cell(self.estate.compartments[tenant][kind.chain], kind, self._gpus_of([node.name for node in nodes]))
            for tenant, kind, nodes in cells
        ]
        count = self.wide.gpu_count
        self.real = np.full(count, -1)  # by GPU of the wide cluster: the real one; -1 while there is none
        real = self._gpus_of([node.name for node in cluster.nodes])
        self.real[real] = np.arange(cluster.gpu_count)
        self.is_virtual = self.real < 0
        self._wide_of = real  # by real GPU: its number in the wide cluster
        self._cell = np.full(count, -1)  # by GPU of the wide cluster: the tenant's cell that it is in
        for number, cell in enumerate(self.cells):
            self._cell[cell.gpus] = number
        self._bound = [_UNBOUND] * len(self.cells)  # by cell: the real one
        self._claims = [0] * len(self.cells)  # by cell: GPUs in use or held for somebody
        self._claimed = np.zeros(count, dtype=bool)  # by GPU of the wide cluster: in use or held, by tenants and guests
        self._doomed: set[int] = set()  # cells that were bound to bad hardware though nobody uses them
        self._place = np.empty((cluster.gpu_count, 2), dtype=np.int64)  # by real GPU: chain, and number in the chain
        for chain, gpus in enumerate(self.layout.gpus):
            self._place[gpus, 0] = chain
            self._place[gpus, 1] = np.arange(len(gpus))
        self.closed = np.zeros(count, dtype=bool)  # by GPU of the wide cluster: not to be used now, whatever its health
        self.shifted = True  # what is closed has changed, of the real GPUs
        self.cells_shifted = True  # the same of the tenants' GPUs
        self._is_stale = False  # a cell that was closed for bad hardware has been given back
        self._is_static = is_static
        if is_static:
            self.bind(np.flatnonzero(self.is_virtual))

    def _gpus_of(self, names: Iterable[str]) -> Ints:
        parts = [np.arange(self.wide.gpu_count)[self.wide.gpus_of_node(name)] for name in names]
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)

    def owned(self, spec: PoolSpec) -> Bools:
        """By GPU of the wide cluster: whether a pool may ever use it."""
        if not spec.cells:
            return ~self.is_virtual
        tenant = self.estate.tenants[spec.name]
        mine = [number for number, cell in enumerate(self.cells) if cell.compartment.tenant == tenant]
        return np.isin(self._cell, mine)

    # Claims

    def adopt(self, tenant: str, real: Ints) -> Ints | None:
        """A tenant's GPUs for a job that was found on these real ones; None if its cells cannot cover them."""
        chains, places = self._place[real].T
        by_chain = self.estate.compartments[self.estate.tenants[tenant]]
        compartment = by_chain.get(int(chains[0]))
        if compartment is None or (chains != chains[0]).any():
            return None
        chain = compartment.chain
        nodes = len(np.unique(places // chain.node_gpus))
        for level in sorted({cell.kind.level for cell in self.cells if cell.compartment is compartment}):
            size = chain.gpus[level]
            cells = list(dict.fromkeys((places // size).tolist()))
            if len(cells) > nodes:
                continue  # a member of the gang would be in several cells
            numbers = self._bind_these(compartment, level, cells)
            if numbers is not None:
                by_cell = dict(zip(cells, numbers, strict=True))
                return np.array([self.cells[by_cell[gpu // size]].gpus[gpu % size] for gpu in places.tolist()])
        return None

    def _bind_these(self, compartment: Compartment, level: int, cells: Sequence[int]) -> list[int] | None:
        """Just these cells of the cluster for a tenant; None if it has no more, or promises to others forbid it."""
        ground = self.estate.grounds[compartment.chain_index]
        mine = [n for n, each in enumerate(self.cells) if each.compartment is compartment and each.kind.level == level]
        bound = {self._bound[number]: number for number in mine if self._bound[number] != _UNBOUND}
        unbound = [number for number in mine if self._bound[number] == _UNBOUND]
        numbers = []
        for cell in cells:
            if cell not in bound:
                is_free = ground.buddies.is_open(level, cell) and ground.buddies.can_take(level, cell, ground.promised)
                if not unbound or not is_free:
                    self.estate.ledger.undo()
                    return None
                self.estate.bind(compartment, level, cell)
            numbers.append(bound[cell] if cell in bound else unbound.pop(0))
        for cell, number in zip(cells, numbers, strict=True):
            if self._bound[number] == _UNBOUND:
                self._map(number, cell)
        self.estate.ledger.settle()
        return numbers

    def wide_of(self, real: Ints) -> Ints:
        """Real GPUs by the numbers of the wide cluster."""
        return self._wide_of[real]

    def bind(self, gpus: Ints) -> None:
        """See to it that these GPUs of a tenant are real."""
        for number in dict.fromkeys(self._cell[gpus].tolist()):
            self._doomed.discard(number)  # it is wanted as it is
            if number >= 0 and self._bound[number] == _UNBOUND:
                cell = self.cells[number]
                self._map(number, self.estate.bind_any(cell.compartment, cell.kind.level))
        self._settle()

    def guests(self, gpus: Ints) -> Ints:
        """The real GPUs behind a tenant's, as the wide cluster numbers them: where guests would be."""
        return self._wide_of[self.real[gpus]]

    def claim(self, gpus: Ints, *, claimed: bool) -> None:
        """These GPUs are in use or held for somebody from now on, or are no longer."""
        changed = gpus[self._claimed[gpus] != claimed]
        if not len(changed):
            return
        self._claimed[changed] = claimed
        if not self.is_virtual[changed[0]]:
            self._mark(self.real[changed], guests=True, on=claimed)
            self._settle()
            return
        self._mark(self.real[changed], guests=False, on=claimed)
        self.closed[self._wide_of[self.real[changed]]] = claimed
        self.shifted = True
        numbers, counts = np.unique(self._cell[changed], return_counts=True)
        for number, count in zip(numbers.tolist(), counts.tolist(), strict=True):
            self._claims[number] += count if claimed else -count
            if not self._claims[number] and not self._is_static:
                self._unmap(number)
        self._settle()

    def _mark(self, real: Ints, *, guests: bool, on: bool) -> None:
        """Guests hold GPUs, tenants have them kept: that is all the estate has to know."""
        for (chain, node), mask in self._masks(real).items():
            ground = self.estate.grounds[chain]
            held, kept = ground.held[node], ground.kept[node]
            if guests:
                held = held | mask if on else held & ~mask
            else:
                kept = kept | mask if on else kept & ~mask
            self.estate.set_masks(chain, node, held, 0, kept)

    def _masks(self, real: Ints) -> dict[tuple[int, int], int]:
        """By chain and node: which GPUs of it these are."""
        masks: dict[tuple[int, int], int] = {}
        for chain, gpu in self._place[real].tolist():
            node, bit = divmod(gpu, self.estate.grounds[chain].chain.node_gpus)
            masks[chain, node] = masks.get((chain, node), 0) | 1 << bit
        return masks

    def _map(self, number: int, real_cell: int) -> None:
        cell = self.cells[number]
        size = len(cell.gpus)
        self._bound[number] = real_cell
        self.real[cell.gpus] = self.layout.gpus[cell.kind.chain][real_cell * size : (real_cell + 1) * size]

    def _unmap(self, number: int) -> None:
        cell = self.cells[number]
        self.estate.unbind(cell.compartment, cell.kind.level, self._bound[number])
        self._bound[number] = _UNBOUND
        self.real[cell.gpus] = -1
        self._doomed.discard(number)
        self._is_stale |= bool(self.closed[cell.gpus].any())

    # Health

    def set_bad(self, real: Ints, *, bad: bool) -> None:
        """Hardware goes down or comes back."""
        for (chain, node), mask in self._masks(real).items():
            before = self.estate.grounds[chain].buddies.bad_mask[node]
            self.estate.set_bad(chain, node, before | mask if bad else before & ~mask)
        self._settle(forced=True)

    def behind(self, real: Ints) -> Ints:
        """The tenants' GPUs that are bound to these."""
        return np.flatnonzero(self.is_virtual & np.isin(self.real, real))

    def _settle(self, *, forced: bool = False) -> None:
        """No way back; where good hardware is short, cells that could only be had on bad hardware are shown as bad."""
        for number in sorted(self._doomed):  # what is doomed depends on what is left, so it is found out anew
            if not self._claims[number]:
                self._unmap(number)
        short = [chain for chain in range(len(self.layout.gpus)) if not self.estate.is_in_reach(chain)]
        if short or forced or self._is_stale:
            self._show_doomed(short)
        self.estate.ledger.settle()

    def _show_doomed(self, short: Sequence[int]) -> None:
        self.estate.ledger.settle()
        compartments = [
            by_chain[chain] for by_chain in self.estate.compartments for chain in short if chain in by_chain
        ]
        while any(self._doom(compartment) for compartment in compartments):
            pass  # what one tenant cannot have may have been another's slack
        virtual = np.flatnonzero(self.is_virtual)
        closed = self.closed.copy()
        closed[virtual] = False
        bound = virtual[self.real[virtual] >= 0]
        bad = [
            bool(self.estate.grounds[chain].buddies.bad(0, gpu))
            for chain, gpu in self._place[self.real[bound]].tolist()
        ]
        closed[bound] = bad
        self.cells_shifted |= bool((closed != self.closed).any())
        self.closed = closed
        self._is_stale = False

    def _doom(self, compartment: Compartment) -> bool:
        """Bind what could only be had on bad hardware, so that everybody sees it; whether there is any such cell."""
        buddies = self.estate.grounds[compartment.chain_index].buddies
        tried = [
            (level, self.estate.bind_any(compartment, level))
            for level in reversed(range(len(compartment.unbound)))
            for _ in range(compartment.unbound[level])
        ]
        bad = [(level, cell) for level, cell in tried if buddies.bad(level, cell)]
        self.estate.ledger.undo()
        for level, cell in bad:
            number = max(
                number
                for number, each in enumerate(self.cells)
                if each.compartment is compartment and each.kind.level == level and self._bound[number] == _UNBOUND
            )
            self.estate.bind(compartment, level, cell)
            self._map(number, cell)
            self._doomed.add(number)
        self.estate.ledger.settle()
        return bool(bad)
