"""The cluster as cells, and which tenant's reservations are bound where.

By node, three masks of GPUs say who is there: *held* by anybody, *sworn* to somebody with a guarantee, *kept* for a
gang that waits for others to leave. All else (free cells, units with room, idle nodes) follows from them and from the
bindings, and every change goes through the ledger, so that a plan can be tried and taken back whole.
"""

from __future__ import annotations

from collections.abc import Iterator

from horae.guarantees.buddies import Buddies
from horae.guarantees.compartment import Compartment
from horae.guarantees.ledger import Ledger
from horae.guarantees.within import Within
from horae.model.chains import Chain, Territory
from horae.model.errors import BrokenInvariant, ClusterError

NOBODY = -1


class Ground:
    """One chain."""

    def __init__(self, chain: Chain, ledger: Ledger) -> None:
        nodes, gpus = len(chain.nodes), chain.node_gpus
        self.chain = chain
        self.buddies = Buddies(chain, ledger)
        self.within = Within(chain.gpus[: chain.node_level + 1])
        self.promised = [0] * len(chain.types)  # by level: cells that reservations which nobody uses could fill
        self.holder = [NOBODY] * chain.gpu_count  # by GPU: number of the gang
        self.heir = [NOBODY] * chain.gpu_count
        self.held, self.sworn, self.kept = [0] * nodes, [0] * nodes, [0] * nodes  # by node
        self.units: list[tuple[tuple[Compartment, int, int, int], ...]] = [()] * nodes  # with level, number and mask
        # By number of idle GPUs: nodes as bits of one number; those without a bound cell, and those with one.
        self.idle: tuple[list[int], list[int]] = ([0] * (gpus + 1), [0] * (gpus + 1))
        self.idle[0][gpus] = (1 << nodes) - 1
        self.whole = (1 << gpus) - 1

    def busy(self, node: int) -> int:
        return self.held[node] | self.kept[node] | self.buddies.bad_mask[node]

    def claimed(self, node: int) -> int:
        return self.sworn[node] | self.kept[node]


class Estate:
    def __init__(self, territory: Territory) -> None:
        self.territory = territory
        self.ledger = Ledger()
        self.grounds = [Ground(chain, self.ledger) for chain in territory.chains]
        self.tenants = {reservation.tenant: number for number, reservation in enumerate(territory.reservations)}
        self.compartments: list[dict[int, Compartment]] = []  # by tenant and chain
        self.pins: list[dict[str, Compartment]] = []  # by tenant and name
        self._open_pins(territory)
        for number, reservation in enumerate(territory.reservations):
            by_chain: dict[int, Compartment] = {}
            for kind, count in sorted(reservation.cells.items()):
                chain = territory.chains[kind.chain]
                if kind.chain not in by_chain:
                    unbound = [0] * len(chain.types)
                    by_chain[kind.chain] = Compartment(chain, number, kind.chain, unbound, self.ledger)
                by_chain[kind.chain].unbound[kind.level] += count
                self._promise(kind.chain, kind.level, count)
            self.compartments.append(by_chain)
        self._check_promises()
        for number in range(len(territory.reservations)):
            for compartment in self.of_tenant(number):
                compartment.measure()
        self.ledger.settle()

    def _open_pins(self, territory: Territory) -> None:
        pins = {pin.name: pin for pin in territory.pins}
        for number, reservation in enumerate(territory.reservations):
            mine: dict[str, Compartment] = {}
            for name in reservation.pinned:
                (index, level), cell = pins[name].kind, pins[name].cell
                chain = territory.chains[index]
                mine[name] = Compartment(chain, number, index, [0] * len(chain.types), self.ledger, is_pin=True)
                if not self.grounds[index].buddies.is_open(level, cell):
                    problem = f"pinned cell {name!r} overlaps another, or is named twice"
                    raise ClusterError(problem, field="pinnedCells", remedy="pin cells that are apart")
                self._occupy(mine[name], level, cell)
            self.pins.append(mine)

    def _check_promises(self) -> None:
        for ground in self.grounds:
            for level in reversed(range(len(ground.promised))):
                short = ground.promised[level] - ground.buddies.open[level]
                if short > 0:
                    chain = ground.chain
                    beside = " beside the pinned cells" if ground.buddies.open[level] < chain.cells(level) else ""
                    raise ClusterError(
                        f"the tenants' cells exceed chain {chain.name} at level {chain.types[level]} by {short}: "
                        f"{ground.promised[level]} are promised, {ground.buddies.open[level]} are there{beside}",
                        field="virtualClusters",
                        remedy="promise fewer cells, or add hardware",
                    )

    def _promise(self, chain: int, level: int, count: int) -> None:
        promised, gpus = self.grounds[chain].promised, self.grounds[chain].chain.gpus
        for below in range(level + 1):
            self.ledger.put(promised, below, promised[below] + count * (gpus[level] // gpus[below]))

    # Binding

    def is_in_reach(self, chain: int) -> bool:
        """Whether good hardware is left for everything that was promised."""
        ground = self.grounds[chain]
        return all(sound >= due for sound, due in zip(ground.buddies.sound, ground.promised, strict=True))

    def bind_any(self, compartment: Compartment, level: int) -> int:
        """One of the tenant's cells gets GPUs: good ones if that is possible."""
        ground = self.grounds[compartment.chain_index]
        cell = ground.buddies.choose(level, ground.promised)
        if cell is None:
            cell = ground.buddies.choose_bad(level, ground.promised)
        self.bind(compartment, level, cell)
        return cell

    def bind(self, compartment: Compartment, level: int, cell: int) -> None:
        """That cell of the cluster becomes one of the tenant's."""
        self.ledger.put(compartment.unbound, level, compartment.unbound[level] - 1)
        self._promise(compartment.chain_index, level, -1)
        self._occupy(compartment, level, cell)

    def _occupy(self, compartment: Compartment, level: int, cell: int) -> None:
        ground, put = self.grounds[compartment.chain_index], self.ledger.put
        ground.buddies.bind(level, cell)
        put(compartment.bound, (level, cell), 0)
        unit_level, units = compartment.units(level, cell)
        gpus, node_gpus = ground.chain.gpus[unit_level], ground.chain.node_gpus
        for unit in units:
            node = unit * gpus // node_gpus
            mask = (1 << gpus) - 1 << unit * gpus % node_gpus
            if not ground.units[node]:
                self._move(ground, node, 0, 1)
            put(ground.units, node, (*ground.units[node], (compartment, unit_level, unit, mask)))
            left = mask & ~ground.claimed(node) & ~ground.buddies.bad_mask[node]
            compartment.put_up(unit_level, unit, left.bit_count())

    def unbind(self, compartment: Compartment, level: int, cell: int) -> None:
        """Nobody of the tenant uses that cell any more."""
        ground, put = self.grounds[compartment.chain_index], self.ledger.put
        if compartment.bound[level, cell]:
            raise BrokenInvariant(f"chain {ground.chain.name}: {ground.chain.types[level]} {cell} is still in use")
        self.ledger.drop(compartment.bound, (level, cell))
        unit_level, units = compartment.units(level, cell)
        gpus, node_gpus = ground.chain.gpus[unit_level], ground.chain.node_gpus
        for unit in units:
            node = unit * gpus // node_gpus
            left = tuple(entry for entry in ground.units[node] if entry[1:3] != (unit_level, unit))
            put(ground.units, node, left)
            if not left:
                self._move(ground, node, 1, 0)
            compartment.take_down(unit_level, unit)
        ground.buddies.unbind(level, cell)
        put(compartment.unbound, level, compartment.unbound[level] + 1)
        self._promise(compartment.chain_index, level, 1)

    def unbind_unused(self, compartment: Compartment) -> None:
        if compartment.is_pin:
            return
        for cell in sorted(key for key, claimed in compartment.bound.items() if not claimed):
            if cell not in compartment.locked:
                self.unbind(compartment, *cell)

    def lock(self, compartment: Compartment, cell: tuple[int, int], *, on: bool) -> None:
        """A cell stays bound though nobody claims it, while a plan is made."""
        count = compartment.locked.get(cell, 0) + (1 if on else -1)
        if count:
            self.ledger.put(compartment.locked, cell, count)
        else:
            self.ledger.drop(compartment.locked, cell)

    def _move(self, ground: Ground, node: int, before: int, after: int) -> None:
        idle = ground.chain.node_gpus - ground.busy(node).bit_count()
        for index in (before, after):
            shelf = ground.idle[index]
            self.ledger.put(shelf, idle, shelf[idle] ^ 1 << node)

    # Who is where

    def set_masks(self, chain: int, node: int, held: int, sworn: int, kept: int) -> None:
        ground, put = self.grounds[chain], self.ledger.put
        claimed, busy = ground.claimed(node), ground.busy(node)
        guests = held & ~sworn
        if guests != ground.buddies.guest_mask[node]:
            ground.buddies.set_guests(node, guests)
        put(ground.held, node, held)
        put(ground.sworn, node, sworn)
        put(ground.kept, node, kept)
        self._shelve(ground, node, claimed, busy)

    def set_bad(self, chain: int, node: int, mask: int) -> None:
        """Which GPUs of a node are down or to be left alone from now on."""
        ground = self.grounds[chain]
        claimed, busy = ground.claimed(node), ground.busy(node)
        ground.buddies.set_bad(node, mask)
        self._shelve(ground, node, claimed, busy, bad_changed=True)

    def _shelve(self, ground: Ground, node: int, claimed: int, busy: int, *, bad_changed: bool = False) -> None:
        """Where a node and its units stand, after its masks have changed from these."""
        put, now = self.ledger.put, ground.claimed(node)
        if now != claimed or bad_changed:
            out = now | ground.buddies.bad_mask[node]
            for compartment, level, unit, mask in ground.units[node]:
                more = (now & mask).bit_count() - (claimed & mask).bit_count()
                if more:
                    cell = compartment.cell_of(level, unit)
                    put(compartment.bound, cell, compartment.bound[cell] + more)
                if more or bad_changed:
                    compartment.put_up(level, unit, (mask & ~out).bit_count())
        was, idle = busy.bit_count(), ground.busy(node).bit_count()
        if was != idle:
            shelf, gpus = ground.idle[bool(ground.units[node])], ground.chain.node_gpus
            put(shelf, gpus - was, shelf[gpus - was] ^ 1 << node)
            put(shelf, gpus - idle, shelf[gpus - idle] | 1 << node)

    # Questions

    def of_tenant(self, tenant: int) -> Iterator[Compartment]:
        yield from self.compartments[tenant].values()
        yield from self.pins[tenant].values()

    def compartment_at(self, tenant: int, chain: int, node: int, mask: int) -> Compartment | None:
        """Where GPUs of a node are a tenant's, as long as they are in one compartment."""
        for compartment, _, _, inside in self.grounds[chain].units[node]:
            if compartment.tenant == tenant and inside & mask:
                return compartment
        return None
