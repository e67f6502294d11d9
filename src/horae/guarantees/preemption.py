"""Preemption inside a tenant's cells: victims and placement are found as one plan.

Whoever can be is only downgraded: it goes on where it is, without a guarantee, until its GPUs are needed. The others
are told to leave, and what they hold is kept for the gang that made them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from horae.guarantees.compartment import Compartment
from horae.guarantees.estate import Estate
from horae.guarantees.packing import Allowed, Packer
from horae.guarantees.roster import Roster, Standing, State
from horae.model.gangs import Answer, Gang, Seat, Seats

_PRUNED_MAX = 32  # victims, of whom each is looked at once more


class Preemption:
    def __init__(self, estate: Estate, roster: Roster, packer: Packer) -> None:
        self.estate = estate
        self.roster = roster
        self.packer = packer

    def decide(self, gang: Gang, compartment: Compartment, allowed: Allowed) -> Answer | None:
        """A plan with the fewest victims that were found; None if none helps. What is tried is done.

        The cells of those who only lose their guarantee are given back, so that they may stay; if good hardware is so
        short that others would not do, they are not.
        """
        if not any(self.roster.below(gang.tenant, gang.priority)):
            return None
        mark = self.estate.ledger.mark()
        for keeps_cells in (False, True):
            search = _Search(self, gang, compartment, allowed, keeps_cells)
            for find in (search.fewest, search.everybody):
                victims = find()
                self.estate.ledger.undo(mark)
                answer = self._carry_out(search, search.pruned(victims)) if victims else None
                if answer is not None:
                    return answer
                self.estate.ledger.undo(mark)
        return None

    def _carry_out(self, search: _Search, victims: list[int]) -> Answer | None:
        before = {number: self.roster.standing[number] for number in victims}
        locked = [each for number in victims for each in self.roster.cells_of(before[number])]
        seats = search.seat_without(victims)
        if seats is None:
            return None
        for compartment, cell in locked:
            if cell in compartment.locked:
                self.estate.lock(compartment, cell, on=False)
        waiting = [number for number in victims if before[number].state is State.WAITS_FOR_VICTIMS]
        downgraded = [number for number in victims if number not in waiting and before[number].gang.lazy]
        for number in victims:
            if number not in waiting and number not in downgraded:
                self.roster.set_sworn(before[number].seats, on=True)
        gone, lost = self.roster.names(waiting), self.roster.names(downgraded)
        for number in waiting:
            self.roster.strike(number)
        self.estate.unbind_unused(search.compartment)
        return self.roster.take(search.gang, seats, lost, gone)

    def lower(self, gang: Gang, compartment: Compartment) -> list[int]:
        """Gangs of the tenant in the same cells whose priority is lower: those who only wait first, then the lowest."""
        found = [
            number
            for alike in self.roster.below(gang.tenant, gang.priority)
            for number in alike
            if self.is_in(self.roster.standing[number], compartment)
        ]
        return sorted(found, key=self.roster.dearness)

    def is_in(self, standing: Standing, compartment: Compartment) -> bool:
        tenant = compartment.tenant
        return any(
            seat.chain == compartment.chain_index
            and self.estate.compartment_at(tenant, seat.chain, seat.node, seat.mask) is compartment
            for seat in standing.seats
        )


class _Search:
    """Whom to send away for one gang."""

    def __init__(
        self, preemption: Preemption, gang: Gang, compartment: Compartment, allowed: Allowed, keeps_cells: bool
    ) -> None:
        self.estate, self.roster, self.packer = preemption.estate, preemption.roster, preemption.packer
        self.gang = gang
        self.compartment = compartment
        self._allowed = allowed
        self._keeps_cells = keeps_cells
        self._preemption = preemption

    def everybody(self) -> list[int]:
        return self._preemption.lower(self.gang, self.compartment)

    def seat_without(self, victims: Iterable[int]) -> Seats | None:
        for number in victims:
            self.roster.depart(number, keeps_cells=self._keeps_cells)
        return self.packer.seat(self.compartment, self.gang.members, self._allowed)

    def fewest(self) -> list[int] | None:
        """For each member the unit where fewest have to go; None if that leads nowhere."""
        chosen: list[int] = []
        for gpus in sorted(self.gang.members, reverse=True):
            while self.packer.seat_one(self.compartment, gpus, self._allowed) is None:
                found = self._one(gpus, chosen) or self._fewest_in_a_unit(gpus, set(self.everybody()) - set(chosen))
                if not found:
                    return None
                for number in found:
                    self.roster.depart(number, keeps_cells=self._keeps_cells)
                chosen += found
        return chosen

    def _one(self, gpus: int, chosen: Sequence[int]) -> list[int] | None:
        """The least dear who alone makes room in one unit."""
        left = max((left for shelf in self.compartment.shelf for left, units in enumerate(shelf) if units), default=0)
        for alike in self.roster.below(self.gang.tenant, self.gang.priority):
            for number in sorted(alike, reverse=True):
                standing = self.roster.standing[number]
                if standing.gang.gpus + left < gpus:
                    break  # none of them has enough
                if number not in chosen and any(self._makes_room(seat, gpus) for seat in standing.seats):
                    return [number]
        return None

    def _makes_room(self, seat: Seat, gpus: int) -> bool:
        ground = self.estate.grounds[seat.chain]
        if self._allowed is not None and ground.chain.nodes[seat.node] not in self._allowed:
            return False
        leaves = seat.mask & ~ground.buddies.bad_mask[seat.node]
        return any(
            compartment is self.compartment and compartment.left[level, unit] + (leaves & mask).bit_count() >= gpus
            for compartment, level, unit, mask in ground.units[seat.node]
            if leaves & mask
        )

    def pruned(self, victims: list[int]) -> list[int]:
        """Without those who need not go, the dearest first."""
        spare = sum(left * count for left, count in self.compartment.pool().items()) - self.gang.gpus
        gpus = [self.roster.standing[number].gang.gpus for number in victims]
        if not 1 < len(victims) <= _PRUNED_MAX or spare + sum(gpus) - min(gpus) < 0:
            return victims  # without any of them there are too few GPUs
        mark = self.estate.ledger.mark()
        for number in sorted(victims, key=self.roster.dearness, reverse=True):
            fewer = [each for each in victims if each != number]
            if self.seat_without(fewer) is not None:
                victims = fewer
            self.estate.ledger.undo(mark)
        return victims

    def _fewest_in_a_unit(self, gpus: int, lower: set[int]) -> list[int] | None:
        chain, ground = self.compartment.chain, self.estate.grounds[self.compartment.chain_index]
        best: tuple[tuple[int, int, int], list[int]] | None = None
        for (level, unit), left in sorted(self.compartment.left.items()):
            size = chain.gpus[level]
            node = unit * size // chain.node_gpus
            if size < gpus or (self._allowed is not None and chain.nodes[node] not in self._allowed):
                continue
            share: dict[int, int] = {}
            for gpu in range(unit * size, (unit + 1) * size):
                if not ground.buddies.bad_mask[node] >> gpu % chain.node_gpus & 1:
                    for number in {ground.holder[gpu], ground.heir[gpu]} & lower:
                        share[number] = share.get(number, 0) + 1
            for needed in self._enough(share, gpus - left):
                runs = [number for number in needed if self.roster.standing[number].state is State.RUNS]
                rank = max((self.roster.standing[number].gang.priority for number in runs), default=-1)
                key = len(runs), rank, sum(self.roster.standing[number].gang.gpus for number in runs)
                if best is None or key < best[0]:
                    best = key, needed
        return None if best is None else best[1]

    def _enough(self, share: Mapping[int, int], gpus: int) -> Iterator[list[int]]:
        """Those who together leave so many GPUs: who has most of them first, or who is least dear."""
        for order in (
            sorted(share, key=lambda number: (-share[number], self.roster.dearness(number))),
            sorted(share, key=self.roster.dearness),
        ):
            needed, freed = [], 0
            for number in order:
                if freed < gpus:
                    needed.append(number)
                    freed += share[number]
            for number in list(needed):
                if freed - share[number] >= gpus:
                    needed.remove(number)
                    freed -= share[number]
            if freed >= gpus:
                yield needed
