"""The cells that one tenant was promised in one chain, or one pinned cell: what a private cluster would consist of.

A cell is bound to physical GPUs while anybody of the tenant claims some of them; until then it is only counted. A
*unit* is what one member of a gang must fit into: a bound cell, or a node of one that is larger. Units are kept by the
number of GPUs that are left in them, as bits of one number, so that the fullest that will do is found at once.
"""

from __future__ import annotations

from collections.abc import Iterator

from horae.guarantees.ledger import Ledger
from horae.model.chains import Chain


class Compartment:
    def __init__(
        self, chain: Chain, tenant: int, chain_index: int, unbound: list[int], ledger: Ledger, *, is_pin: bool = False
    ) -> None:
        self.chain = chain
        self.chain_index = chain_index
        self.tenant = tenant
        self.is_pin = is_pin  # one cell, bound for good
        self._ledger = ledger
        self.locked: dict[tuple[int, int], int] = {}  # by level and cell: victims in a plan that still sit there
        self.unbound = unbound  # by level: cells that nobody uses
        self.bound: dict[tuple[int, int], int] = {}  # by level and cell: claimed GPUs
        self._whole: dict[int, int] = {}  # by GPUs of a unit: how many there are in all
        self.left: dict[tuple[int, int], int] = {}  # by level and cell of a unit: GPUs that are left
        self.shelf: list[list[int]] = [[0] * (gpus + 1) for gpus in chain.gpus[: chain.node_level + 1]]

    def units(self, level: int, cell: int) -> tuple[int, range]:
        """Of one of its cells: the level and the numbers of its units."""
        if level <= self.chain.node_level:
            return level, range(cell, cell + 1)
        nodes = self.chain.gpus[level] // self.chain.node_gpus
        return self.chain.node_level, range(cell * nodes, (cell + 1) * nodes)

    def cell_of(self, unit_level: int, unit: int) -> tuple[int, int]:
        """The bound cell that a unit belongs to."""
        level, cell = unit_level, unit
        while (level, cell) not in self.bound:
            level += 1
            cell //= self.chain.fanout[level]
        return level, cell

    def put_up(self, unit_level: int, unit: int, left: int) -> None:
        """So many GPUs are left in a unit from now on."""
        before = self.left.get((unit_level, unit))
        if before == left:
            return
        shelf, put = self.shelf[unit_level], self._ledger.put
        if before is not None:
            put(shelf, before, shelf[before] ^ 1 << unit)
        put(shelf, left, shelf[left] | 1 << unit)
        put(self.left, (unit_level, unit), left)

    def take_down(self, unit_level: int, unit: int) -> None:
        shelf, left = self.shelf[unit_level], self.left[unit_level, unit]
        self._ledger.put(shelf, left, shelf[left] ^ 1 << unit)
        self._ledger.drop(self.left, (unit_level, unit))

    def best_unit(self, gpus: int) -> tuple[int, int, int] | None:
        """The fullest unit in which so many GPUs are left: what is left in it, its level and its number."""
        best: tuple[int, int, int] | None = None
        for level, shelf in enumerate(self.shelf):
            last = len(shelf) if best is None else best[0]
            for left in range(gpus, last):
                if shelf[left]:
                    best = left, level, (shelf[left] & -shelf[left]).bit_length() - 1
                    break
        return best

    def unit_with(self, left: int) -> tuple[int, int] | None:
        """A unit with just so many GPUs left."""
        for level, shelf in enumerate(self.shelf):
            if left < len(shelf) and shelf[left]:
                return level, (shelf[left] & -shelf[left]).bit_length() - 1
        return None

    def best_unbound(self, gpus: int) -> tuple[int, int] | None:
        """Of the cells that nobody uses the smallest whose units are large enough: GPUs of a unit, level."""
        for level, count in enumerate(self.unbound):
            unit_gpus = self.chain.gpus[min(level, self.chain.node_level)]
            if count and unit_gpus >= gpus:
                return unit_gpus, level
        return None

    def unbound_with(self, unit_gpus: int) -> int | None:
        """The smallest level of cells that nobody uses whose units have just so many GPUs."""
        for level, count in enumerate(self.unbound):
            if count and self.chain.gpus[min(level, self.chain.node_level)] == unit_gpus:
                return level
        return None

    def pool(self) -> dict[int, int]:
        """By GPUs left: how many units, those of cells that nobody uses included."""
        pool: dict[int, int] = {}
        for shelf in self.shelf:
            for left, units in enumerate(shelf):
                if left and units:
                    pool[left] = pool.get(left, 0) + units.bit_count()
        for unit_gpus, count in self._unbound_units():
            pool[unit_gpus] = pool.get(unit_gpus, 0) + count
        return pool

    def whole(self) -> dict[int, int]:
        """The same if nobody used anything and all hardware were good."""
        return dict(self._whole)

    def measure(self) -> None:
        """What a tenant was promised does not change; it is worked out once."""
        for unit_gpus, count in self._unbound_units():
            self._whole[unit_gpus] = self._whole.get(unit_gpus, 0) + count
        for level, cell in self.bound:
            unit_level, units = self.units(level, cell)
            unit_gpus = self.chain.gpus[unit_level]
            self._whole[unit_gpus] = self._whole.get(unit_gpus, 0) + len(units)

    def _unbound_units(self) -> Iterator[tuple[int, int]]:
        for level, count in enumerate(self.unbound):
            if count:
                nodes = max(1, self.chain.gpus[level] // self.chain.node_gpus)
                yield self.chain.gpus[min(level, self.chain.node_level)], count * nodes


STEPS_MAX = 20_000


def assign(pool: dict[int, int], members: tuple[int, ...]) -> list[int] | None:
    """For each member, largest first, the number of GPUs left in the unit that it goes to; None if they do not fit.

    The fullest unit that will do is tried first. That is all there is to it as long as sizes divide each other;
    otherwise other units are tried in turn, up to a bound.
    """
    order = sorted(members, reverse=True)
    room = sum(left * count for left, count in pool.items())
    if room < sum(order) or len(order) > sum(pool.values()) * max(pool, default=0):
        return None
    chosen: list[int] = []
    failed: set[tuple[int, tuple[tuple[int, int], ...]]] = set()
    steps = 0

    def place(position: int) -> bool:
        nonlocal steps
        if position == len(order):
            return True
        key = position, tuple(sorted((left, count) for left, count in pool.items() if count))
        if key in failed or steps > STEPS_MAX:
            return False
        gpus = order[position]
        for left in sorted(left for left, count in pool.items() if count and left >= gpus):
            steps += 1
            pool[left] -= 1
            pool[left - gpus] = pool.get(left - gpus, 0) + 1
            chosen.append(left)
            if place(position + 1):
                return True
            chosen.pop()
            pool[left] += 1
            pool[left - gpus] -= 1
        failed.add(key)
        return False

    return chosen if place(0) else None
