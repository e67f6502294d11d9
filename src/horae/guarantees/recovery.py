"""Gangs that were found running, after a crash or when the cluster has changed under them.

Nobody is stopped. Whoever is no longer covered by what its tenant was promised goes on without a guarantee.
"""

from __future__ import annotations

from collections.abc import Sequence

from horae.guarantees.estate import NOBODY, Estate
from horae.guarantees.preemption import Preemption
from horae.guarantees.roster import Roster, Standing, gpus_of
from horae.model.errors import JobError
from horae.model.gangs import Gang, Record, Seat, Seats


class Recovery:
    def __init__(self, estate: Estate, roster: Roster, preemption: Preemption) -> None:
        self.estate = estate
        self.roster = roster
        self._preemption = preemption

    def restore(self, gang: Gang, seats: Sequence[Seat | None]) -> bool:
        """A gang that was found running; None for a member on GPUs that are no more. Whether it kept its guarantee.

        It keeps it if its tenant's cells still cover it and nobody else's promise is broken by that.
        """
        if gang.name in self.roster.number:
            raise JobError(f"gang {gang.name!r} is there already", remedy="restore each gang once")
        there = tuple(seat for seat in seats if seat is not None)
        if self.roster.holders(there) or self.roster.heirs(there):
            raise JobError(f"gang {gang.name!r} was found on GPUs of others", remedy="look at the records")
        mark = self.estate.ledger.mark()
        kept = gang.is_guaranteed and (self._swear(gang, there) or self._swear_instead(gang, there))
        if not kept:
            self.estate.ledger.undo(mark)
            there = tuple(seat._replace(level=NOBODY) for seat in there)
        standing = Standing(gang, there, downgraded=gang.is_guaranteed and not kept)
        self.roster.settle_in(self.roster.enter(standing), standing)
        return kept or not gang.is_guaranteed

    def _swear(self, gang: Gang, seats: Seats) -> bool:
        """Bind the cells that seats count against; False if that is not possible, and nothing is."""
        mark = self.estate.ledger.mark()
        if self._bind_for(gang, seats):
            return True
        self.estate.ledger.undo(mark)
        return False

    def _bind_for(self, gang: Gang, seats: Seats) -> bool:
        tenant = self.estate.tenants.get(gang.tenant)
        if tenant is None:
            return False
        for seat in sorted(seats, key=lambda seat: -seat.level):
            ground = self.estate.grounds[seat.chain]
            chain, buddies = ground.chain, ground.buddies
            by_name = self.estate.pins[tenant]
            compartment = by_name.get(gang.pin) if gang.pin else self.estate.compartments[tenant].get(seat.chain)
            if compartment is None or not 0 <= seat.level <= chain.top:
                return False
            for gpu in gpus_of(ground, seat):
                cell = gpu // chain.gpus[seat.level]
                if (seat.level, cell) in compartment.bound:
                    continue
                if not (
                    compartment.unbound[seat.level]
                    and buddies.is_open(seat.level, cell)
                    and buddies.can_take(seat.level, cell, ground.promised)
                ):
                    return False
                self.estate.bind(compartment, seat.level, cell)
        return True

    def _swear_instead(self, gang: Gang, seats: Seats) -> bool:
        """The same at the cost of gangs of the tenant with a lower priority: they go on, without a guarantee."""
        tenant = self.estate.tenants.get(gang.tenant)
        if tenant is None or not seats:
            return False
        compartments = [each for each in self.estate.of_tenant(tenant) if each.chain_index == seats[0].chain]
        lower = sorted(
            {number for each in compartments for number in self._preemption.lower(gang, each)}, key=self.roster.dearness
        )
        start = self.estate.ledger.mark()
        for number in sorted(lower, key=self.roster.dearness):
            self.roster.depart(number, downgrades=True)
            if self._swear(gang, seats):
                return True
        self.estate.ledger.undo(start)
        return False

    def record(self, name: str) -> Record:
        standing = self.roster.standing[self.roster.number[name]]
        rows = []
        for seat in standing.seats:
            chain = self.estate.territory.chains[seat.chain]
            gpus = tuple(bit for bit in range(chain.node_gpus) if seat.mask >> bit & 1)
            rows.append((chain.name, chain.nodes[seat.node], gpus, chain.types[seat.level] if seat.level >= 0 else ""))
        return Record(standing.gang, tuple(rows), standing.downgraded)
