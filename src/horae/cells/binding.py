"""Binds virtual clusters to real GPUs, so that a tenant's pool can be scheduled exactly like a private cluster.

The scheduler works on a *wide* cluster: the cells of every tenant as separate nodes, and the real nodes for jobs
without a guarantee. A tenant's pool thus sees what it would see of a private cluster of that shape, and decides the
same. A cell is bound to real GPUs when a job is placed in it, and unbound when its last job has left; guests, which are
jobs without a guarantee, are evicted from those GPUs. Real GPUs that a tenant uses are closed to other jobs.

A pinned cell permanently has the same real GPUs and is not included in the number of cells. It is an additional node
(or several) of its tenant in the wide cluster, only for jobs that ask for it: `pins` and `is_pinned` say which GPUs it
has.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from horae.cells.allocator import CellAllocator, TenantCells
from horae.cells.gpu_mapping import coverings, map_cell
from horae.model.arrays import Bools, Ints
from horae.model.chain_layout import ChainLayout, layout_of, pinned_nodes, private_nodes
from horae.model.chains import CellKind
from horae.model.cluster import Cluster
from horae.model.errors import bounded
from horae.model.serialization import Plain
from horae.model.setup import PoolSpec

_UNBOUND = -1


class _Cell(NamedTuple):
    """One of a tenant's cells in the wide cluster."""

    reserved: TenantCells
    kind: CellKind
    gpus: Ints  # of the wide cluster
    pinned: str = ""  # its name, if it is pinned


class CellBinding:
    def __init__(self, cluster: Cluster, specs: Sequence[PoolSpec], *, is_static: bool = False) -> None:
        reserving = [spec for spec in specs if spec.reserves]
        self.layout: ChainLayout = layout_of(
            cluster, {spec.name: spec.cells for spec in reserving}, {spec.name: spec.pinned for spec in reserving}
        )
        self.allocator = CellAllocator(self.layout.territory)
        tenants = range(len(self.layout.territory.reservations))
        cells = [
            (self.allocator.cells[tenant][kind.chain], kind, nodes)
            for tenant in tenants
            for kind, _, nodes in private_nodes(self.layout, tenant)
        ]
        pinned = [(tenant, pin, nodes) for tenant in tenants for pin, nodes in pinned_nodes(self.layout, tenant)]
        virtual = [node for *_, nodes in (*cells, *pinned) for node in nodes]
        self._cluster = cluster
        self.wide = Cluster(cluster.name, (*cluster.nodes, *virtual), cluster.restart_seconds)
        self.cells = [
            _Cell(reserved, kind, self._gpus_of(node.name for node in nodes)) for reserved, kind, nodes in cells
        ]
        self.cells += [
            _Cell(self.allocator.pins[tenant][pin.name], pin.kind, self._gpus_of(node.name for node in nodes), pin.name)
            for tenant, pin, nodes in pinned
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
        self._claims = [0] * len(self.cells)  # by cell: GPUs in use or held for a job
        self._claimed = np.zeros(count, dtype=bool)  # by GPU of the wide cluster: in use or held, by tenants and guests
        self._bad = np.zeros(cluster.gpu_count, dtype=bool)  # by real GPU
        self._doomed: set[int] = set()  # unused cells, bound to bad hardware to show that no good hardware is left
        self._place = np.empty((cluster.gpu_count, 2), dtype=np.int64)  # by real GPU: chain, and number in the chain
        for chain, gpus in enumerate(self.layout.gpus):
            self._place[gpus, 0] = chain
            self._place[gpus, 1] = np.arange(len(gpus))
        self.closed = np.zeros(count, dtype=bool)  # by GPU of the wide cluster: not usable now, whatever its health
        self.shifted = True  # the set of closed real GPUs has changed
        self.cells_shifted = True  # the same for the tenants' GPUs
        self._is_stale = False  # a cell was bound on bad hardware, or one that was closed for it was released
        self._is_static = is_static
        for number, (_, pin, _) in enumerate(pinned, start=len(cells)):
            self._map(number, pin.cell)
        # By pool and name of the pin, and of all: GPUs of the wide cluster.
        self.pins: Mapping[tuple[str, str], Bools] = {
            (spec.name, name): self._in_cells(cell.pinned == f"{spec.name}/{name}" for cell in self.cells)
            for spec in reserving
            for name in spec.pinned
        }
        self.is_pinned: Bools = self._in_cells(bool(cell.pinned) for cell in self.cells)
        if is_static:
            self.bind(np.flatnonzero(self.is_virtual))

    def _gpus_of(self, names: Iterable[str]) -> Ints:
        ranges = [self.wide.gpus_of_node(name) for name in names]
        return np.array([gpu for each in ranges for gpu in range(each.start, each.stop)], dtype=np.int64)

    def owned(self, spec: PoolSpec) -> Bools:
        """By GPU of the wide cluster: whether a pool may ever use it."""
        if not spec.reserves:
            return ~self.is_virtual
        tenant = self.allocator.tenants[spec.name]
        return self._in_cells(cell.reserved.tenant == tenant for cell in self.cells)

    def _in_cells(self, chosen: Iterable[bool]) -> Bools:
        """By GPU of the wide cluster: whether it is in one of the tenants' cells for which this is true."""
        return np.append(np.fromiter(chosen, dtype=bool), False)[self._cell]  # the last stands for no cell, -1

    def dump(self) -> Plain:
        """Which of the tenants' cells are bound, and to which real cells; the rest follows from the leases."""
        numbers = [number for number, cell in enumerate(self._bound) if cell != _UNBOUND]
        bound = [[number, self._bound[number], self._offsets(number).tolist()] for number in numbers]
        return {"bound": bound, "doomed": sorted(self._doomed), "shifted": [self.shifted, self.cells_shifted]}

    def restore(self, plain: Plain) -> None:
        for number, real_cell, offsets in plain["bound"]:
            if self._bound[number] == _UNBOUND:
                cell = self.cells[number]
                self.allocator.bind(cell.reserved, cell.kind.level, real_cell)
            self._map(number, real_cell, np.array(offsets))
        self._doomed = set(plain["doomed"])
        self.allocator.ledger.settle()

    def restore_doomed(self, plain: Plain) -> None:
        """Restores the dumped cells on bad hardware: the choice among equivalent ones depends on history."""
        self._hide_doomed()
        self.restore(plain)
        self._close_bad()

    @contextmanager
    def trial(self) -> Iterator[None]:
        """A context whose changes are undone at its end."""
        ledger = self.allocator.ledger
        mark, lists = ledger.mark(), (self._bound.copy(), self._claims.copy(), self._doomed.copy())
        arrays = self.real.copy(), self._claimed.copy(), self.closed.copy()
        flags = self.shifted, self.cells_shifted, self._is_stale
        ledger.is_trial = True
        try:
            yield
        finally:
            ledger.undo(mark)
            ledger.is_trial = False
            self._bound, self._claims, self._doomed = lists
            self.real, self._claimed, self.closed = arrays
            self.shifted, self.cells_shifted, self._is_stale = flags

    # Claims

    def adopt(
        self,
        tenant: str,
        real: Ints,
        pin: str = "",
        avoid: Collection[int] = (),
        members: Sequence[int] = (),
        cells: Sequence[str] = (),
    ) -> Ints | None:
        """Chooses a tenant's GPUs for a job found on these real ones; None if its cells cannot cover them.

        A job that asks for a pinned cell is covered by that one alone, any other by none of them. `avoid` are GPUs of
        the tenant that are about to be used otherwise. `members` are the GPUs of each member, where sizes differ.
        `cells` are, by GPU, the levels of the cells that the job had; other levels are tried if those are not
        available.
        """
        avoided = np.zeros(self.wide.gpu_count, dtype=bool)
        avoided[list(avoid)] = True
        if pin:
            gpus = np.flatnonzero(self.pins.get((tenant, pin), False))
            found = dict(zip(self.real[gpus].tolist(), gpus.tolist(), strict=True))
            mine = [found.get(gpu) for gpu in real.tolist()]
            if None in mine:
                return None
            pinned = np.array(mine)
            return None if (self._claimed[pinned] | avoided[pinned]).any() else pinned
        chains, places = self._place[real].T
        if tenant not in self.allocator.tenants:
            return None  # the tenant no longer has any cells
        by_chain = self.allocator.cells[self.allocator.tenants[tenant]]
        reserved = by_chain.get(int(chains[0]))
        if reserved is None or (chains != chains[0]).any():
            return None
        self._hide_doomed()
        levels = sorted({cell.kind.level for cell in self.cells if cell.reserved is reserved})
        types = reserved.chain.types
        had = [[types.index(each) for each in cells]] if cells and {*cells} <= {*types} else []
        for chosen in (*had, *coverings(reserved.chain, levels, places.tolist(), members)):
            own = self._bind_these(reserved, chosen, places.tolist(), avoided)
            if own is not None:
                return own
        self._settle()
        return None

    def _bind_these(
        self, reserved: TenantCells, levels: Sequence[int], places: Sequence[int], avoided: Bools
    ) -> Ints | None:
        """Binds cells of these levels around given GPUs for a tenant and returns its GPUs there; None if it has none
        left, or if reservations of other tenants forbid it."""
        state, mark = self.allocator.chains[reserved.chain_index], self.allocator.ledger.mark()
        sizes = state.chain.gpus
        cells = [(level, gpu // sizes[level]) for level, gpu in zip(levels, places, strict=True)]
        mine = [number for number, each in enumerate(self.cells) if each.reserved is reserved]
        bound = {(self.cells[n].kind.level, self._bound[n]): n for n in mine if self._bound[n] != _UNBOUND}
        unbound = [n for n in mine if self._bound[n] == _UNBOUND and not avoided[self.cells[n].gpus].any()]
        numbers: dict[tuple[int, int], int] = {}
        for level, cell in dict.fromkeys(cells):
            if (level, cell) in bound:
                numbers[level, cell] = bound[level, cell]
                continue
            left = [n for n in unbound if self.cells[n].kind.level == level and n not in numbers.values()]
            if not left or not self.allocator.can_bind(reserved, level, cell):
                self.allocator.ledger.undo(mark)
                return None
            self.allocator.bind(reserved, level, cell)
            numbers[level, cell] = left[0]
        offsets = [gpu % sizes[level] for level, gpu in zip(levels, places, strict=True)]
        own = np.array(
            [self._gpu_at(numbers[cell], offset) for cell, offset in zip(cells, offsets, strict=True)], dtype=np.int64
        )
        if (self._claimed[own] | avoided[own]).any():
            self.allocator.ledger.undo(mark)
            return None
        for (_, cell), number in numbers.items():
            if self._bound[number] == _UNBOUND:
                self._map(number, cell)
        self._doomed.difference_update(numbers.values())  # they are now needed where they are
        self._is_stale |= any(state.buddies.bad(level, cell) for level, cell in numbers)
        self.allocator.ledger.settle()
        return own

    def _gpu_at(self, number: int, offset: int) -> int:
        """The GPU of a tenant's cell that maps to this offset of the real cell; in order if the cell is not bound."""
        gpus = self.cells[number].gpus
        if self._bound[number] != _UNBOUND:
            offset = int(np.flatnonzero(self._offsets(number) == offset)[0])
        return int(gpus[offset])

    def levels(self, gpus: Ints) -> tuple[str, ...]:
        """By GPU: the level of the tenant's cell that holds it; empty for GPUs outside of cells."""
        cells = [self.cells[number] for number in self._cell[gpus].tolist() if number >= 0]
        return tuple(cell.reserved.chain.types[cell.kind.level] for cell in cells)

    def wide_of(self, real: Ints) -> Ints:
        """Real GPUs by their numbers in the wide cluster."""
        return self._wide_of[real]

    def bind(self, gpus: Ints, nodes: Collection[str] = ()) -> bool:
        """Binds these GPUs of a tenant to good hardware, on these nodes if any are named;
        returns whether it succeeded."""
        numbers = [number for number in dict.fromkeys(self._cell[gpus].tolist()) if number >= 0]
        if not self._are_as_wanted(gpus, nodes):
            self._hide_doomed_like(numbers)  # another of its kind may have got the chosen cell's hardware since
        unbound = [number for number in numbers if self._bound[number] == _UNBOUND]
        for number in unbound:
            cell = self.cells[number]
            inside = np.flatnonzero(np.isin(cell.gpus, gpus)).tolist()
            found = self._cell_on(cell.reserved, cell.kind.level, nodes, inside) if nodes else None
            if nodes and found is None:
                break
            if found is None:
                found = self.allocator.bind_any(cell.reserved, cell.kind.level)
            else:
                self.allocator.bind(cell.reserved, cell.kind.level, found)
            self._map(number, found)
        for number in numbers:
            if self._bound[number] != _UNBOUND:
                self._map_around_guests(number, gpus, keeps_nodes=bool(nodes))
        is_done = self._are_as_wanted(gpus, nodes)
        if is_done:
            self._doomed.difference_update(numbers)  # they are now needed where they are
        for number in () if is_done else unbound:
            if self._bound[number] != _UNBOUND:
                self._unmap(number)
        self._settle()
        return is_done

    def _are_as_wanted(self, gpus: Ints, nodes: Collection[str]) -> bool:
        """Whether GPUs of a tenant are bound to good hardware, on these nodes if any are named."""
        real = self.real[gpus]
        if (real < 0).any():
            return False
        if nodes and any(self._cluster.nodes[node].name not in nodes for node in self._cluster.node_of_gpu[real]):
            return False
        return not self._bad[real].any()

    def _cell_on(
        self, reserved: TenantCells, level: int, nodes: Collection[str], inside: Collection[int] = ()
    ) -> int | None:
        """A free cell on good hardware with as many of these nodes as possible, and among those one with the fewest
        guests.

        The GPUs `inside` it, counted from its first, must be on these nodes.
        """
        state = self.allocator.chains[reserved.chain_index]
        chain, buddies = state.chain, state.buddies
        size = chain.gpus[level]
        allowed = [name in nodes for name in chain.nodes]
        choices = []
        for cell in range(chain.cells(level)):
            first = cell * size
            there = sum(allowed[first // chain.node_gpus : -(-(first + size) // chain.node_gpus)])
            if (
                there
                and all(allowed[(first + offset) // chain.node_gpus] for offset in inside)
                and not buddies.bad(level, cell)
                and self.allocator.can_bind(reserved, level, cell)
            ):
                choices.append((-there, buddies.guests(level, cell), cell))
        return min(choices)[-1] if choices else None

    def on_nodes(self, nodes: Collection[str]) -> Bools:
        """By GPU of the wide cluster: whether it is on one of these nodes, or its cell can be bound there.

        Of the cells of a kind that are not bound, as many count as could be bound there together; of a cell that spans
        nodes, the GPUs that would be on these.
        """
        cluster = self._cluster
        there = np.array([node.name in nodes for node in cluster.nodes])[cluster.node_of_gpu]
        mask = np.append(there, False)[self.real]
        waiting: dict[tuple[int, int], list[int]] = {}
        mark = self.allocator.ledger.mark()
        for number, cell in enumerate(self.cells):
            if self._bound[number] == _UNBOUND:
                waiting.setdefault((id(cell.reserved), cell.kind.level), []).append(number)
        for numbers in waiting.values():
            reserved, level = self.cells[numbers[0]].reserved, self.cells[numbers[0]].kind.level
            for number in numbers:
                found = self._cell_on(reserved, level, nodes)
                if found is None:
                    break
                self.allocator.bind(reserved, level, found)
                size = len(self.cells[number].gpus)
                real = self.layout.gpus[self.cells[number].kind.chain][found * size : (found + 1) * size]
                mask[self.cells[number].gpus] = there[real]
            self.allocator.ledger.undo(mark)
        return mask

    def guests(self, gpus: Ints) -> Ints:
        """The real GPUs behind a tenant's, by their numbers in the wide cluster: where guests would be."""
        return self._wide_of[self.real[gpus]]

    def claim(self, gpus: Ints, *, claimed: bool) -> None:
        """Marks these GPUs as in use or held for a job, or as no longer so."""
        changed = gpus[self._claimed[gpus] != claimed]
        if not len(changed):
            return
        self._claimed[changed] = claimed
        if not self.is_virtual[changed[0]]:
            self._note_guests(self.real[changed], on=claimed)
            self._settle()
            return
        self.closed[self._wide_of[self.real[changed]]] = claimed
        self.shifted = True
        numbers, counts = np.unique(self._cell[changed], return_counts=True)
        for number, count in zip(numbers.tolist(), counts.tolist(), strict=True):
            self._claims[number] += count if claimed else -count
            if not self._claims[number] and not self._is_static and not self.cells[number].pinned:
                self._unmap(number)
        self._settle()

    def _note_guests(self, real: Ints, *, on: bool) -> None:
        for (chain, node), mask in self._masks(real).items():
            buddies = self.allocator.chains[chain].buddies
            before = buddies.guest_mask[node]
            buddies.set_guests(node, before | mask if on else before & ~mask)

    def _masks(self, real: Ints) -> dict[tuple[int, int], int]:
        """By chain and node: a mask of these GPUs."""
        masks: dict[tuple[int, int], int] = {}
        for chain, gpu in self._place[real].tolist():
            node, bit = divmod(gpu, self.allocator.chains[chain].chain.node_gpus)
            masks[chain, node] = masks.get((chain, node), 0) | 1 << bit
        return masks

    def _map(self, number: int, real_cell: int, offsets: Ints | None = None) -> None:
        """Maps one of the tenants' cells to this real one; GPU by GPU in order, or by these offsets."""
        cell = self.cells[number]
        size = len(cell.gpus)
        self._bound[number] = real_cell
        real = self.layout.gpus[cell.kind.chain][real_cell * size : (real_cell + 1) * size]
        self.real[cell.gpus] = real if offsets is None else real[offsets]
        self._is_stale |= bool(self.allocator.chains[cell.kind.chain].buddies.bad(cell.kind.level, real_cell))

    def _offsets(self, number: int) -> Ints:
        """By GPU of a bound cell: its offset in the real cell."""
        cell = self.cells[number]
        return self._place[self.real[cell.gpus], 1] - self._bound[number] * len(cell.gpus)

    def _map_around_guests(self, number: int, gpus: Ints, *, keeps_nodes: bool) -> None:
        """Permutes unused GPUs of a bound cell such that few guests have to leave these GPUs."""
        cell, real_cell = self.cells[number], self._bound[number]
        state = self.allocator.chains[cell.kind.chain]
        if not state.buddies.guests(cell.kind.level, real_cell):
            return
        size = len(cell.gpus)
        real = self.layout.gpus[cell.kind.chain][real_cell * size : (real_cell + 1) * size]
        has_guest = self._claimed[self._wide_of[real]]
        if not has_guest[self._offsets(number)][np.isin(cell.gpus, gpus)].any():
            return  # no guest has to leave with the present mapping
        chain = state.chain
        fixed = self._claimed[cell.gpus] | self._bad[self.real[cell.gpus]]
        wanted, top = np.isin(cell.gpus, gpus), chain.node_level if keeps_nodes else len(chain.gpus)
        sizes = chain.gpus[: cell.kind.level + 1]
        self._map(number, real_cell, map_cell(sizes, self._offsets(number), fixed, wanted, has_guest, top))

    def _unmap(self, number: int) -> None:
        cell = self.cells[number]
        self.allocator.unbind(cell.reserved, cell.kind.level, self._bound[number])
        self._bound[number] = _UNBOUND
        self.real[cell.gpus] = -1
        self._doomed.discard(number)
        self._is_stale |= bool(self.closed[cell.gpus].any())

    # Health

    def set_bad(self, real: Ints, *, bad: bool) -> None:
        """Updates the set of bad GPUs after hardware failed or was repaired."""
        self._bad[real] = bad
        for (chain, node), mask in self._masks(real).items():
            buddies = self.allocator.chains[chain].buddies
            before = buddies.bad_mask[node]
            buddies.set_bad(node, before | mask if bad else before & ~mask)
        self._settle(forced=True)

    def behind(self, real: Ints) -> Ints:
        """The tenants' GPUs that are bound to these real ones."""
        return np.flatnonzero(self.is_virtual & np.isin(self.real, real))

    def _settle(self, *, forced: bool = False) -> None:
        """Commits; where good hardware is short, cells that could only be bound to bad hardware are shown as bad."""
        self._hide_doomed()  # which cells are doomed depends on what is left, so they are determined anew
        short = [chain for chain in range(len(self.layout.gpus)) if not self.allocator.chains[chain].is_in_reach]
        if short or forced or self._is_stale:
            self._show_doomed(short)
        self.allocator.ledger.settle()

    def _hide_doomed(self) -> None:
        """Unbinds the unused cells that were bound to bad hardware to show that they are unavailable."""
        for number in sorted(self._doomed):
            if not self._claims[number]:
                self._unmap(number)

    def _hide_doomed_like(self, numbers: Sequence[int]) -> None:
        """The same for the cells of the kinds of which one of these is doomed."""
        doomed = [each for each in sorted(self._doomed) if not self._claims[each]]
        kinds = {(id(self.cells[each].reserved), self.cells[each].kind) for each in doomed if each in numbers}
        for number in doomed:
            if (id(self.cells[number].reserved), self.cells[number].kind) in kinds:
                self._unmap(number)

    def _show_doomed(self, short: Sequence[int]) -> None:
        self.allocator.ledger.settle()
        reserved = [by_chain[chain] for by_chain in self.allocator.cells for chain in short if chain in by_chain]
        # What one tenant cannot have may have been another's slack.
        for _ in bounded(len(self.cells) + 2, "showing cells on bad hardware"):
            if not any(self._doom(each) for each in reserved):
                break
        self._close_bad()

    def _close_bad(self) -> None:
        """Closes the tenants' GPUs that are bound to bad hardware."""
        virtual = np.flatnonzero(self.is_virtual)
        closed = self.closed.copy()
        closed[virtual] = False
        bound = virtual[self.real[virtual] >= 0]
        closed[bound] = self._bad[self.real[bound]]
        self.cells_shifted |= bool((closed != self.closed).any())
        self.closed = closed
        self._is_stale = False

    def _doom(self, reserved: TenantCells) -> bool:
        """Binds the cells that exist only on bad hardware, to make them visible; returns whether there are any."""
        buddies, mark = self.allocator.chains[reserved.chain_index].buddies, self.allocator.ledger.mark()
        tried = [
            (level, self.allocator.bind_any(reserved, level))
            for level in reversed(range(len(reserved.unbound)))
            for _ in range(reserved.unbound[level])
        ]
        bad = [(level, cell) for level, cell in tried if buddies.bad(level, cell)]
        self.allocator.ledger.undo(mark)
        for level, cell in bad:
            number = max(
                number
                for number, each in enumerate(self.cells)
                if each.reserved is reserved and each.kind.level == level and self._bound[number] == _UNBOUND
            )
            self.allocator.bind(reserved, level, cell)
            self._map(number, cell)
            self._doomed.add(number)
        self.allocator.ledger.settle()
        return bool(bad)
