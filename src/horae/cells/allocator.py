"""The cluster as chains of cells, and the binding of tenants' reservations to real cells.

A reserved cell is only counted until a job of its tenant needs it; then it is bound to a real cell, and unbound when
its last job has left. Every change goes through the undo log, so that a binding can be tried and undone.
"""

from __future__ import annotations

from dataclasses import dataclass

from horae.cells.buddies import Buddies
from horae.cells.undo_log import UndoLog
from horae.model.chains import Chain, Territory
from horae.model.errors import ClusterError


@dataclass(eq=False)
class TenantCells:
    """The cells that one tenant has reserved in one chain, or one pinned cell."""

    chain: Chain
    chain_index: int
    tenant: int
    unbound: list[int]  # by level: cells that are not bound


class ChainState:
    """The state of one chain."""

    def __init__(self, chain: Chain, ledger: UndoLog) -> None:
        self.chain = chain
        self.buddies = Buddies(chain, ledger)
        self.promised = [0] * len(chain.types)  # by level: cells that unbound reservations could fill

    @property
    def is_in_reach(self) -> bool:
        """Whether enough good hardware is left for all reservations."""
        return all(sound >= due for sound, due in zip(self.buddies.sound, self.promised, strict=True))


class CellAllocator:
    def __init__(self, territory: Territory) -> None:
        self.ledger = UndoLog()
        self.chains = [ChainState(chain, self.ledger) for chain in territory.chains]
        self.tenants = {reservation.tenant: number for number, reservation in enumerate(territory.reservations)}
        self.cells: list[dict[int, TenantCells]] = []  # by tenant and chain
        self.pins: list[dict[str, TenantCells]] = []  # by tenant and name
        self._bind_pins(territory)
        for number, reservation in enumerate(territory.reservations):
            by_chain: dict[int, TenantCells] = {}
            for kind, count in sorted(reservation.cells.items()):
                chain = territory.chains[kind.chain]
                mine = by_chain.setdefault(kind.chain, TenantCells(chain, kind.chain, number, [0] * len(chain.types)))
                mine.unbound[kind.level] += count
                self._promise(kind.chain, kind.level, count)
            self.cells.append(by_chain)
        self._check_promises()
        self.ledger.settle()

    def _bind_pins(self, territory: Territory) -> None:
        pins = {pin.name: pin for pin in territory.pins}
        for number, reservation in enumerate(territory.reservations):
            mine: dict[str, TenantCells] = {}
            for name in reservation.pinned:
                (index, level), cell = pins[name].kind, pins[name].cell
                chain = territory.chains[index]
                mine[name] = TenantCells(chain, index, number, [0] * len(chain.types))
                if not self.chains[index].buddies.is_open(level, cell):
                    problem = f"pinned cell {name!r} overlaps another, or is named twice"
                    raise ClusterError(problem, field="pinnedCells", remedy="pin cells that are apart")
                self.chains[index].buddies.bind(level, cell)
            self.pins.append(mine)

    def _check_promises(self) -> None:
        for state in self.chains:
            for level in reversed(range(len(state.promised))):
                short = state.promised[level] - state.buddies.open[level]
                if short > 0:
                    chain = state.chain
                    beside = " beside the pinned cells" if state.buddies.open[level] < chain.cells(level) else ""
                    raise ClusterError(
                        f"the tenants' cells exceed chain {chain.name} at level {chain.types[level]} by {short}: "
                        f"{state.promised[level]} are promised, {state.buddies.open[level]} are there{beside}",
                        field="virtualClusters",
                        remedy="promise fewer cells, or add hardware",
                    )

    def _promise(self, chain: int, level: int, count: int) -> None:
        promised, gpus = self.chains[chain].promised, self.chains[chain].chain.gpus
        for below in range(level + 1):
            self.ledger.put(promised, below, promised[below] + count * (gpus[level] // gpus[below]))

    def bind_any(self, cells: TenantCells, level: int) -> int:
        """Binds one of a tenant's cells, on good hardware if possible. Returns the real cell."""
        state = self.chains[cells.chain_index]
        cell = state.buddies.choose(level, state.promised)
        if cell is None:
            cell = state.buddies.choose_bad(level, state.promised)
        self.bind(cells, level, cell)
        return cell

    def bind(self, cells: TenantCells, level: int, cell: int) -> None:
        """Binds one of a tenant's cells to this real one."""
        self.ledger.put(cells.unbound, level, cells.unbound[level] - 1)
        self._promise(cells.chain_index, level, -1)
        self.chains[cells.chain_index].buddies.bind(level, cell)

    def unbind(self, cells: TenantCells, level: int, cell: int) -> None:
        """Unbinds a cell that no job of the tenant uses any longer."""
        self.chains[cells.chain_index].buddies.unbind(level, cell)
        self.ledger.put(cells.unbound, level, cells.unbound[level] + 1)
        self._promise(cells.chain_index, level, 1)

    def can_bind(self, cells: TenantCells, level: int, cell: int) -> bool:
        """Whether a real cell may be bound for this tenant such that all other reservations can still be met."""
        state = self.chains[cells.chain_index]
        return state.buddies.is_open(level, cell) and state.buddies.can_take(level, cell, state.promised)
