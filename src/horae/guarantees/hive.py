"""Gangs in virtual private clusters (HiveD, OSDI'20): each is placed in its tenant's cells as on a private cluster.

A gang with a guarantee is packed into the cells of its tenant; cells that nobody used so far are bound to GPUs then.
What runs there without a guarantee is sent away. Inside a tenant's cells the higher priority goes first: victims and
placement are found as one plan, which is carried out as a whole or not at all. A gang without a guarantee takes what is
idle, away from the tenants' cells if possible.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from horae.guarantees.compartment import Compartment, assign
from horae.guarantees.estate import NOBODY, Estate
from horae.guarantees.packing import Allowed, Packer
from horae.guarantees.preemption import Preemption
from horae.guarantees.recovery import Recovery
from horae.guarantees.roster import Roster, State
from horae.model.chains import CellKind, Chain, Territory
from horae.model.errors import JobError
from horae.model.gangs import PRIORITY_MAX, Answer, Gang, Never, Placed, Preempts, Record, Seat, Waits


class Hive:
    def __init__(self, territory: Territory) -> None:
        self.estate = Estate(territory)
        self.roster = Roster(self.estate)
        self.packer = Packer(self.estate)
        self._preemption = Preemption(self.estate, self.roster, self.packer)
        self._recovery = Recovery(self.estate, self.roster, self._preemption)

    # What others ask

    def plan(self, gang: Gang, allowed: Allowed = None) -> Answer:
        """What would happen; nothing does."""
        answer = self._decide(gang, allowed)
        self.estate.ledger.undo()
        return answer

    def admit(self, gang: Gang, allowed: Allowed = None) -> Answer:
        """What the answer says has happened."""
        answer = self._decide(gang, allowed)
        self.estate.ledger.settle()
        return answer

    def end(self, name: str) -> None:
        """A gang has left its GPUs, or waits for none any more."""
        self.roster.leave(self.roster.number[name])
        self.estate.ledger.settle()

    def set_bad(self, chain: int, node: int, mask: int) -> None:
        """Which GPUs of a node nobody shall be placed on from now on; who runs there goes on."""
        self.estate.set_bad(chain, node, mask)
        self.estate.ledger.settle()

    def restore(self, gang: Gang, seats: Sequence[Seat | None]) -> bool:
        """A gang that was found running; None for a member on GPUs that are no more. Whether it kept its guarantee."""
        kept = self._recovery.restore(gang, seats)
        self.estate.ledger.settle()
        return kept

    def record(self, name: str) -> Record:
        """What it takes to find a gang again."""
        return self._recovery.record(name)

    def reconfigured(self, territory: Territory) -> tuple[Hive, tuple[str, ...]]:
        """Everybody who runs, on the cluster and with the promises as they are from now on; and who lost its guarantee.

        Nobody is stopped. Members on GPUs that are no more are not counted; who waits for victims has to ask again.
        """
        fresh, lost = Hive(territory), []
        for chain, ground in enumerate(self.estate.grounds):
            for node, mask in enumerate(ground.buddies.bad_mask):
                found = _find(territory, self.estate.territory.chains[chain], node)
                if mask and found is not None:
                    fresh.set_bad(*found, mask & fresh.estate.grounds[found[0]].whole)
        for number in sorted(self.roster.standing):
            standing = self.roster.standing[number]
            if standing.state is State.RUNS:
                seats = [_moved(seat, self.estate.territory, territory) for seat in standing.seats]
                if not fresh.restore(standing.gang, seats) and standing.is_sworn:
                    lost.append(standing.gang.name)
        return fresh, tuple(lost)

    def is_being_preempted(self, name: str) -> bool:
        standing = self.roster.standing[self.roster.number[name]]
        return standing.state is State.RUNS and bool(self.roster.heirs(standing.seats) - {self.roster.number[name]})

    def doomed(self, tenant: str) -> dict[CellKind, int]:
        """Cells of a tenant that nobody uses and that could only be had on bad hardware: how many, by kind."""
        found: dict[CellKind, int] = {}
        for compartment in self.estate.compartments[self.estate.tenants[tenant]].values():
            buddies = self.estate.grounds[compartment.chain_index].buddies
            for level, cell in self.packer.bind_all(compartment):
                if buddies.bad(level, cell):
                    kind = CellKind(compartment.chain_index, level)
                    found[kind] = found.get(kind, 0) + 1
        self.estate.ledger.undo()
        return found

    def _decide(self, gang: Gang, allowed: Allowed) -> Answer:
        self._check(gang)
        if gang.name in self.roster.number:
            return self._again(gang, allowed)
        if not gang.is_guaranteed:
            return self._decide_opportunistic(gang, allowed)
        compartments = self._compartments(gang)
        mark = self.estate.ledger.mark()
        for compartment in compartments:
            seats = self.packer.seat(compartment, gang.members, allowed)
            if seats is not None:
                return self.roster.take(gang, seats)
            self.estate.ledger.undo(mark)
        for find in (self.packer.seat_over_chains, self.packer.seat_on_joined_cells):
            seats = find(gang, compartments, allowed)
            if seats is not None:
                return self.roster.take(gang, seats)
            self.estate.ledger.undo(mark)
        for compartment in compartments:
            answer = self._preemption.decide(gang, compartment, allowed)
            if answer is not None:
                return answer
            self.estate.ledger.undo(mark)
        return self._refusal(gang, compartments)

    def _check(self, gang: Gang) -> None:
        if not gang.members or min(gang.members) < 1:
            raise JobError(f"gang {gang.name!r} has a member without GPUs", remedy="give each at least one")
        if not -1 <= gang.priority <= PRIORITY_MAX:
            problem = f"gang {gang.name!r} has priority {gang.priority}"
            raise JobError(problem, field="priority", remedy=f"give -1 to {PRIORITY_MAX}")
        if gang.tenant not in self.estate.tenants:
            known = ", ".join(sorted(self.estate.tenants))
            raise JobError(f"there is no tenant {gang.tenant!r}", field="tenant", remedy=f"use {known}")
        chains = self.estate.territory.chains
        if gang.accelerator and all(chain.accelerator != gang.accelerator for chain in chains):
            known = ", ".join(sorted({chain.accelerator for chain in chains}))
            raise JobError(f"there are no GPUs {gang.accelerator!r}", field="accelerator", remedy=f"use {known}")

    def _compartments(self, gang: Gang) -> list[Compartment]:
        tenant = self.estate.tenants[gang.tenant]
        if gang.pin:
            if gang.pin not in self.estate.pins[tenant]:
                known = ", ".join(sorted(self.estate.pins[tenant])) or "leave it out"
                raise JobError(f"tenant {gang.tenant!r} has no pinned cell {gang.pin!r}", field="pin", remedy=known)
            found = [self.estate.pins[tenant][gang.pin]]
        else:
            found = list(self.estate.compartments[tenant].values())
        found = [each for each in found if gang.accelerator in ("", each.chain.accelerator)]
        if not found:
            problem = f"tenant {gang.tenant!r} has no cells of {gang.accelerator or 'any GPU type'}"
            raise JobError(problem, field="accelerator", remedy="ask for what it has, or without a guarantee")
        return found

    def _again(self, gang: Gang, allowed: Allowed) -> Answer:
        """A gang that has its seats insists on them."""
        number = self.roster.number[gang.name]
        standing = self.roster.standing[number]
        if standing.state is State.RUNS:
            if self.roster.heirs(standing.seats) - {number}:
                return Waits("it must leave: its GPUs are kept for a gang of higher priority")
            return Placed(standing.seats)
        if any(self.estate.grounds[seat.chain].buddies.bad_mask[seat.node] & seat.mask for seat in standing.seats):
            self.roster.leave(number)  # what was kept for it has gone bad: it looks for something else
            return self._decide(gang, allowed)
        victims = self.roster.holders(standing.seats)
        if victims:
            return Preempts(standing.seats, self.roster.names(victims))
        self.roster.settle_in(number, standing)
        return Placed(standing.seats)

    def _refusal(self, gang: Gang, compartments: Sequence[Compartment]) -> Answer:
        rooms = [compartment.whole() for compartment in compartments]
        if gang.mixed:
            rooms = [dict(sum((Counter(room) for room in rooms), Counter()))]
        if any(assign(room, gang.members) is not None for room in rooms):
            return Waits(f"the cells of tenant {gang.tenant} have no room for it now")
        if self.packer.could_join(gang, compartments):
            return Waits(f"adjacent cells for tenant {gang.tenant} are not free now")
        largest = max((self.packer.largest(compartment) for compartment in compartments), default=0)
        return Never(f"the cells of tenant {gang.tenant} cannot hold it, even empty", largest)

    def _decide_opportunistic(self, gang: Gang, allowed: Allowed) -> Answer:
        chains = [
            index
            for index, chain in enumerate(self.estate.territory.chains)
            if gang.accelerator in ("", chain.accelerator)
        ]
        mark = self.estate.ledger.mark()
        for chain in chains:
            seats = self.packer.seat_idle(chain, gang.members, allowed)
            if seats is not None:
                return self.roster.take(gang, seats)
            self.estate.ledger.undo(mark)
        empty = [self.estate.grounds[chain].chain for chain in chains]
        if all(assign({chain.node_gpus: len(chain.nodes)}, gang.members) is None for chain in empty):
            return Never("the cluster cannot hold it, even empty", max((chain.node_gpus for chain in empty), default=0))
        return Waits("not enough GPUs are idle")


def _find(territory: Territory, chain: Chain, node: int) -> tuple[int, int] | None:
    """The chain and the number by which a node is known elsewhere."""
    name = chain.nodes[node]
    for index, other in sorted(enumerate(territory.chains), key=lambda each: each[1].name != chain.name):
        if other.accelerator == chain.accelerator and name in other.nodes:
            return index, other.nodes.index(name)
    return None


def _moved(seat: Seat, before: Territory, after: Territory) -> Seat | None:
    chain = before.chains[seat.chain]
    found = _find(after, chain, seat.node)
    if found is None or seat.mask >> after.chains[found[0]].node_gpus:
        return None
    types = after.chains[found[0]].types
    kind = chain.types[seat.level] if seat.level >= 0 else ""
    return Seat(*found, seat.mask, types.index(kind) if kind in types else NOBODY)
