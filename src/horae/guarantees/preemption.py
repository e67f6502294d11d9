"""Preemption inside a tenant's cells: victims and placement are found as one plan.

Whoever can be is only downgraded: it goes on where it is, without a guarantee, until its GPUs are needed. The others
are told to leave, and what they hold is kept for the gang that made them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from horae.guarantees.compartment import Compartment
from horae.guarantees.estate import Estate
from horae.guarantees.packing import Allowed, Packer
from horae.guarantees.roster import Roster, Standing, State
from horae.model.gangs import Answer, Gang, Seats

_PRUNED_MAX = 32  # victims, of whom each is looked at once more


class Preemption:
    def __init__(self, estate: Estate, roster: Roster, packer: Packer) -> None:
        self.estate = estate
        self.roster = roster
        self.packer = packer

    def decide(self, gang: Gang, compartment: Compartment, allowed: Allowed) -> Answer | None:
        lower = self.lower(gang, compartment)
        if not lower:
            return None
        mark = self.estate.ledger.mark()
        victims = self._victims(gang, compartment, lower, allowed)
        if victims is None:
            return None
        if 1 < len(victims) <= _PRUNED_MAX:
            for number in list(victims):  # those who give up most come first
                fewer = [each for each in victims if each != number]
                self.estate.ledger.undo(mark)
                if self._seat_without(gang, compartment, fewer, allowed) is not None:
                    victims = fewer
        self.estate.ledger.undo(mark)
        seats = self._seat_without(gang, compartment, victims, allowed)
        if seats is None:
            return None
        downgraded = [number for number in victims if self.roster.standing[number].gang.lazy]
        cancelled = [number for number in victims if self.roster.standing[number].state is State.WAITS_FOR_VICTIMS]
        for number in victims:
            standing = self.roster.standing[number]
            if number not in cancelled and not standing.gang.lazy:
                self.roster.set_sworn(standing.seats, on=True)
        gone = self.roster.names(cancelled)
        for number in cancelled:
            self.roster.strike(number)
        lost = self.roster.names(number for number in downgraded if number not in cancelled)
        return self.roster.take(gang, seats, lost, gone)

    def lower(self, gang: Gang, compartment: Compartment) -> list[int]:
        """Gangs of the tenant in the same cells whose priority is lower: those who only wait first, then the lowest."""
        found = [
            number
            for number in self.roster.sworn[gang.tenant]
            if self.roster.standing[number].gang.priority < gang.priority
            and self._is_in(self.roster.standing[number], compartment)
        ]
        return sorted(found, key=self.roster.dearness)

    def _is_in(self, standing: Standing, compartment: Compartment) -> bool:
        tenant = compartment.tenant
        return any(
            seat.chain == compartment.chain_index
            and self.estate.compartment_at(tenant, seat.chain, seat.node, seat.mask) is compartment
            for seat in standing.seats
        )

    def _victims(self, gang: Gang, compartment: Compartment, lower: list[int], allowed: Allowed) -> list[int] | None:
        """Whom to send away: for each member the unit where that is least; if that does not do, everybody lower."""
        chosen: list[int] = []
        mark = self.estate.ledger.mark()
        for gpus in sorted(gang.members, reverse=True):
            if self.packer.seat_one(compartment, gpus, allowed) is not None:
                continue
            fewest = self._fewest(compartment, gpus, set(lower) - set(chosen), allowed)
            if fewest is None:
                break
            for number in fewest:
                self.roster.depart(number)
            chosen += fewest
            if self.packer.seat_one(compartment, gpus, allowed) is None:
                break
        else:
            return chosen
        self.estate.ledger.undo(mark)
        return lower if self._seat_without(gang, compartment, lower, allowed) is not None else None

    def _fewest(self, compartment: Compartment, gpus: int, lower: set[int], allowed: Allowed) -> list[int] | None:
        chain, ground = compartment.chain, self.estate.grounds[compartment.chain_index]
        best: tuple[int, int, int, list[int]] | None = None
        for (level, unit), room in sorted(compartment.left.items()):
            size = chain.gpus[level]
            node = unit * size // chain.node_gpus
            if size < gpus or (allowed is not None and chain.nodes[node] not in allowed):
                continue
            share: dict[int, int] = {}
            for gpu in range(unit * size, (unit + 1) * size):
                if not ground.buddies.bad_mask[node] >> gpu % chain.node_gpus & 1:
                    for number in {ground.holder[gpu], ground.heir[gpu]} & lower:
                        share[number] = share.get(number, 0) + 1
            needed, left = [], room
            for number in sorted(share, key=lambda number: self._order(number, share)):
                if left >= gpus:
                    break
                needed.append(number)
                left += share[number]
            if left >= gpus:
                runs = sum(self.roster.standing[number].state is State.RUNS for number in needed)
                key = runs, sum(self.roster.standing[number].gang.gpus for number in needed), left, needed
                best = key if best is None or key[:3] < best[:3] else best
        return None if best is None else best[3]

    def _order(self, number: int, share: Mapping[int, int]) -> tuple[bool, int, tuple[bool, int, int, int]]:
        """Whom to send from a unit first: who only waits, then who has most of it."""
        return self.roster.standing[number].state is State.RUNS, -share[number], self.roster.dearness(number)

    def _seat_without(
        self, gang: Gang, compartment: Compartment, victims: Iterable[int], allowed: Allowed
    ) -> Seats | None:
        for number in victims:
            self.roster.depart(number)
        return self.packer.seat(compartment, gang.members, allowed)
