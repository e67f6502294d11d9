"""Where the members of a gang go: into what is left of a tenant's cells, or onto idle GPUs anywhere.

Each goes to the fullest place that will do, the largest first. What is tried is done, also if it fails: whoever asks
takes it back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TypeAlias

from horae.guarantees.compartment import Compartment, assign
from horae.guarantees.estate import NOBODY, Estate, Ground
from horae.model.gangs import Gang, Seat, Seats

Allowed: TypeAlias = Collection[str] | None  # names of nodes; None: all
_MIXED_MAX = 200  # members of a gang of several sizes, beyond which only the first way to pack it is tried


class Packer:
    def __init__(self, estate: Estate) -> None:
        self.estate = estate

    def seat(self, compartment: Compartment, members: Sequence[int], allowed: Allowed) -> Seats | None:
        """Seats for all members in what is left of a tenant's cells; what is tried is done, also if it fails."""
        scarce = not self.estate.is_in_reach(compartment.chain_index)
        if scarce:  # then not every cell that nobody uses is worth a whole one
            self.bind_all(compartment)
        order = sorted(range(len(members)), key=lambda index: (-members[index], index))
        seats: list[Seat | None] = [None] * len(members)
        mark = self.estate.ledger.mark()
        for index in order:
            seats[index] = self.seat_one(compartment, members[index], allowed)
            if seats[index] is None:
                break
        else:
            if scarce:
                self.estate.unbind_unused(compartment)
            return tuple(seat for seat in seats if seat is not None)
        if len(set(members)) == 1 or len(members) > _MIXED_MAX or allowed is not None:
            return None  # one size packs only one way
        self.estate.ledger.undo(mark)
        room = assign(compartment.pool(), tuple(members))
        if room is None:
            return None
        for index, left in zip(order, room, strict=True):
            seats[index] = self._seat_with(compartment, members[index], left)
            if seats[index] is None:
                return None
        if scarce:
            self.estate.unbind_unused(compartment)
        return tuple(seat for seat in seats if seat is not None)

    def seat_one(self, compartment: Compartment, gpus: int, allowed: Allowed) -> Seat | None:
        if allowed is not None:
            return self._seat_on_allowed(compartment, gpus, allowed)
        unit = compartment.best_unit(gpus)
        unbound = compartment.best_unbound(gpus)
        if unbound is not None and (unit is None or unbound[0] < unit[0]):
            self.estate.bind_any(compartment, unbound[1])
            unit = compartment.best_unit(gpus)
            while unit is None and (unbound := compartment.best_unbound(gpus)) is not None:
                self.estate.bind_any(compartment, unbound[1])
                unit = compartment.best_unit(gpus)
        return None if unit is None else self._sit(compartment, unit[1], unit[2], gpus)

    def _seat_with(self, compartment: Compartment, gpus: int, left: int) -> Seat | None:
        """In a unit with just so many GPUs left."""
        unit = compartment.unit_with(left)
        if unit is None:
            level = compartment.unbound_with(left)
            if level is None:
                return None
            self.estate.bind_any(compartment, level)
            unit = compartment.unit_with(left)
        return None if unit is None else self._sit(compartment, *unit, gpus)

    def _seat_on_allowed(self, compartment: Compartment, gpus: int, allowed: Collection[str]) -> Seat | None:
        nodes, chain = compartment.chain.nodes, compartment.chain
        for _ in range(2):
            units = [
                (left, level, unit)
                for (level, unit), left in compartment.left.items()
                if left >= gpus and nodes[unit * chain.gpus[level] // chain.node_gpus] in allowed
            ]
            if units:
                _, level, unit = min(units)
                return self._sit(compartment, level, unit, gpus)
            if not self._bind_allowed(compartment, gpus, allowed):
                return None
        return None

    def _bind_allowed(self, compartment: Compartment, gpus: int, allowed: Collection[str]) -> bool:
        """Bind one more cell, of those with most room on the nodes that are allowed."""
        ground, chain = self.estate.grounds[compartment.chain_index], compartment.chain
        buddies, found = ground.buddies, []
        for level, count in enumerate(compartment.unbound):
            if not count or chain.gpus[min(level, chain.node_level)] < gpus:
                continue
            for cell in range(chain.cells(level)):
                inside = range(
                    cell * chain.gpus[level] // chain.node_gpus, -(-(cell + 1) * chain.gpus[level] // chain.node_gpus)
                )
                room = sum(
                    chain.nodes[node] in allowed and (ground.whole & ~buddies.bad_mask[node]).bit_count() >= gpus
                    for node in inside
                )
                if room and buddies.is_open(level, cell) and buddies.can_take(level, cell, ground.promised):
                    found.append((-room, buddies.bad(level, cell), buddies.guests(level, cell), level, cell))
        return any(self._bind_side_by_side(compartment, level, [cell]) for _, _, _, level, cell in sorted(found))

    def _sit(self, compartment: Compartment, unit_level: int, unit: int, gpus: int) -> Seat:
        ground, chain = self.estate.grounds[compartment.chain_index], compartment.chain
        first = unit * chain.gpus[unit_level]
        node = first // chain.node_gpus
        mask = (1 << chain.gpus[unit_level]) - 1 << first % chain.node_gpus
        fit = mask & ~ground.claimed(node) & ~ground.buddies.bad_mask[node]
        chosen = ground.within.choose(fit, ground.held[node], gpus)
        self._keep(compartment.chain_index, node, chosen)
        return Seat(compartment.chain_index, node, chosen, compartment.cell_of(unit_level, unit)[0])

    def _keep(self, chain: int, node: int, mask: int) -> None:
        ground = self.estate.grounds[chain]
        self.estate.set_masks(chain, node, ground.held[node], ground.sworn[node], ground.kept[node] | mask)

    def bind_all(self, compartment: Compartment) -> list[tuple[int, int]]:
        """Every cell that nobody uses gets GPUs, the largest first: good ones while there are any."""
        return [
            (level, self.estate.bind_any(compartment, level))
            for level in reversed(range(len(compartment.unbound)))
            for _ in range(compartment.unbound[level])
        ]

    def seat_over_chains(self, gang: Gang, compartments: Sequence[Compartment], allowed: Allowed) -> Seats | None:
        """Each member where there is room, if the gang does not mind."""
        if not gang.mixed or len(compartments) < 2:
            return None
        seats: dict[int, Seat] = {}
        for index in sorted(range(len(gang.members)), key=lambda index: (-gang.members[index], index)):
            found = (self.seat_one(compartment, gang.members[index], allowed) for compartment in compartments)
            seat = next((seat for seat in found if seat is not None), None)
            if seat is None:
                return None
            seats[index] = seat
        for compartment in compartments:
            self.estate.unbind_unused(compartment)  # what was bound and found too small
        return tuple(seats[index] for index in range(len(gang.members)))

    def largest(self, compartment: Compartment) -> int:
        """GPUs of the largest member that a tenant's cells could hold, side by side where they are smaller."""
        cells = list(compartment.unbound)
        for level, _ in compartment.bound:
            cells[level] += 1
        chain = compartment.chain
        return max(
            min(chain.node_gpus, count * chain.gpus[level] if level < chain.node_level else chain.node_gpus * count)
            for level, count in enumerate(cells)
        )

    def could_join(self, gang: Gang, compartments: Sequence[Compartment]) -> bool:
        return any(
            not gang.pin
            and max(compartment.whole(), default=0) < max(gang.members) <= compartment.chain.node_gpus
            and self._whole_gpus(compartment) >= gang.gpus
            for compartment in compartments
        )

    def _whole_gpus(self, compartment: Compartment) -> int:
        return sum(gpus * count for gpus, count in compartment.whole().items())

    def seat_on_joined_cells(self, gang: Gang, compartments: Sequence[Compartment], allowed: Allowed) -> Seats | None:
        """Cells of one level that nobody uses, bound side by side where the promises to others leave room for it."""
        if allowed is not None or gang.pin:
            return None
        mark = self.estate.ledger.mark()
        for compartment in compartments:
            if max(gang.members) <= max(compartment.whole(), default=0):
                continue  # it waits for a cell that was promised whole
            seats: dict[int, Seat] = {}
            for index in sorted(range(len(gang.members)), key=lambda index: (-gang.members[index], index)):
                seat = self.seat_one(compartment, gang.members[index], None) or self._join(
                    compartment, gang.members[index]
                )
                if seat is None:
                    break
                seats[index] = seat
            else:
                self.estate.unbind_unused(compartment)
                return tuple(seats[index] for index in range(len(gang.members)))
            self.estate.ledger.undo(mark)
        return None

    def _join(self, compartment: Compartment, gpus: int) -> Seat | None:
        chain, ground = compartment.chain, self.estate.grounds[compartment.chain_index]
        mark = self.estate.ledger.mark()
        for level in reversed(range(chain.node_level)):
            needed = -(-gpus // chain.gpus[level])
            if compartment.unbound[level] < needed:
                continue
            for above in range(level + 1, chain.node_level + 1):
                if chain.gpus[above] < gpus:
                    continue
                for node_cell in self._joinable(ground, above):
                    first = node_cell * chain.gpus[above] // chain.gpus[level]
                    if self._bind_side_by_side(compartment, level, range(first, first + needed)):
                        start = first * chain.gpus[level]
                        node = start // chain.node_gpus
                        mask = (1 << gpus) - 1 << start % chain.node_gpus
                        self._keep(compartment.chain_index, node, mask)
                        return Seat(compartment.chain_index, node, mask, level)
                    self.estate.ledger.undo(mark)
        return None

    def _joinable(self, ground: Ground, level: int) -> Iterable[int]:
        """Free cells of a level, or the first part of larger ones: one for each level and number of guests."""
        for above in range(level, len(ground.chain.types)):
            for cells in ground.buddies.free[above]:
                if cells:
                    yield ((cells & -cells).bit_length() - 1) * ground.chain.gpus[above] // ground.chain.gpus[level]

    def _bind_side_by_side(self, compartment: Compartment, level: int, cells: Iterable[int]) -> bool:
        """Just these cells, unless that would break a promise to somebody, also one on good hardware; then none."""
        ground, mark = self.estate.grounds[compartment.chain_index], self.estate.ledger.mark()
        in_reach = self.estate.is_in_reach(compartment.chain_index)
        for cell in cells:
            if not ground.buddies.can_take(level, cell, ground.promised):
                break
            self.estate.bind(compartment, level, cell)
        else:
            if not in_reach or self.estate.is_in_reach(compartment.chain_index):
                return True
        self.estate.ledger.undo(mark)
        return False

    def seat_idle(self, chain: int, members: Sequence[int], allowed: Allowed) -> Seats | None:
        """Seats on GPUs that nobody uses: the fullest nodes that will do, then any others that together would."""
        ground, mark = self.estate.grounds[chain], self.estate.ledger.mark()
        order = sorted(range(len(members)), key=lambda index: (-members[index], index))
        seats: dict[int, Seat] = {}
        for index in order:
            node = self._idle_node(ground, members[index], allowed)
            if node is None:
                break
            seats[index] = self._sit_idle(chain, node, members[index])
        else:
            return tuple(seats[index] for index in range(len(members)))
        if len(set(members)) == 1 or len(members) > _MIXED_MAX or allowed is not None:
            return None
        self.estate.ledger.undo(mark)
        counts = [sum(nodes.bit_count() for nodes in both) for both in zip(*ground.idle, strict=True)]
        room = assign({idle: count for idle, count in enumerate(counts) if idle and count}, tuple(members))
        for index, idle in zip(order, room or (), strict=room is not None):
            nodes = ground.idle[0][idle] or ground.idle[1][idle]
            seats[index] = self._sit_idle(chain, (nodes & -nodes).bit_length() - 1, members[index])
        return None if room is None else tuple(seats[index] for index in range(len(members)))

    def _sit_idle(self, chain: int, node: int, gpus: int) -> Seat:
        ground = self.estate.grounds[chain]
        chosen = ground.within.choose(ground.whole & ~ground.busy(node), 0, gpus)
        self._keep(chain, node, chosen)
        return Seat(chain, node, chosen, NOBODY)

    def _idle_node(self, ground: Ground, gpus: int, allowed: Allowed) -> int | None:
        """The fullest node that will do, away from tenants' cells if possible."""
        those = -1  # all of them
        if allowed is not None:
            those = sum(1 << node for node, name in enumerate(ground.chain.nodes) if name in allowed)
        for shelf in ground.idle:
            for shelved in shelf[gpus:]:
                nodes = shelved & those if shelved else 0
                if nodes:
                    return (nodes & -nodes).bit_length() - 1
        return None
