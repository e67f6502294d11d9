"""Who has which seats: gangs that run, and gangs for which GPUs are kept until others have left."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import TypeAlias

from horae.guarantees.compartment import Compartment
from horae.guarantees.estate import NOBODY, Estate, Ground
from horae.model.gangs import Answer, Gang, Placed, Preempts, Seat, Seats

Rank: TypeAlias = tuple[bool, int, int]  # whether it runs, its priority, its GPUs


class State(Enum):
    RUNS = "runs"
    WAITS_FOR_VICTIMS = "waits for victims"


@dataclass(frozen=True)
class Standing:
    """What a gang has."""

    gang: Gang
    seats: Seats
    state: State = State.RUNS
    downgraded: bool = False  # it lost its guarantee

    @property
    def rank(self) -> Rank:
        """How dear it is: who only waits goes first, then the lowest, then the smallest."""
        return self.state is State.RUNS, self.gang.priority, self.gang.gpus

    @property
    def is_sworn(self) -> bool:
        return self.gang.is_guaranteed and not self.downgraded


class Roster:
    def __init__(self, estate: Estate) -> None:
        self.estate = estate
        self.standing: dict[int, Standing] = {}  # by number
        self.number: dict[str, int] = {}  # by name
        # By tenant and rank: who has a guarantee.
        self.sworn: dict[str, dict[Rank, dict[int, None]]] = {tenant: {} for tenant in estate.tenants}
        self._next = 0

    def enter(self, standing: Standing) -> int:
        number, put = self._next, self.estate.ledger.put
        put(vars(self), "_next", number + 1)
        put(self.number, standing.gang.name, number)
        put(self.standing, number, standing)
        if standing.is_sworn:
            self._file(number, standing, on=True)
        return number

    def strike(self, number: int) -> None:
        standing, drop = self.standing[number], self.estate.ledger.drop
        drop(self.number, standing.gang.name)
        drop(self.standing, number)
        if standing.is_sworn:
            self._file(number, standing, on=False)

    def _file(self, number: int, standing: Standing, *, on: bool) -> None:
        """Among those of its tenant with a guarantee, beside its like."""
        drawers, key = self.sworn[standing.gang.tenant], standing.rank
        if on:
            if key not in drawers:
                self.estate.ledger.put(drawers, key, {})
            self.estate.ledger.put(drawers[key], number, None)
            return
        self.estate.ledger.drop(drawers[key], number)
        if not drawers[key]:
            self.estate.ledger.drop(drawers, key)

    def below(self, tenant: str, priority: int) -> Iterator[dict[int, None]]:
        """Gangs of a tenant with a lower priority, the least dear first, beside their like."""
        drawers = self.sworn[tenant]
        for key in sorted(key for key in drawers if key[1] < priority):
            yield drawers[key]

    def take(
        self, gang: Gang, seats: Seats, downgraded: tuple[str, ...] = (), cancelled: tuple[str, ...] = ()
    ) -> Answer:
        victims = self.holders(seats)
        standing = Standing(gang, seats, State.WAITS_FOR_VICTIMS if victims else State.RUNS)
        number = self.enter(standing)
        if victims:
            self.set_heir(seats, number, on=True)
            return Preempts(seats, self.names(victims), downgraded, cancelled)
        self.settle_in(number, standing)
        return Placed(seats, downgraded, cancelled)

    def settle_in(self, number: int, standing: Standing) -> None:
        """Its seats are free: it holds them now."""
        put = self.estate.ledger.put
        if standing.state is not State.RUNS:
            if standing.is_sworn:
                self._file(number, standing, on=False)
            standing = replace(standing, state=State.RUNS)
            put(self.standing, number, standing)
            if standing.is_sworn:
                self._file(number, standing, on=True)
        for seat in standing.seats:
            ground = self.estate.grounds[seat.chain]
            for gpu in gpus_of(ground, seat):
                put(ground.holder, gpu, number)
                if ground.heir[gpu] != NOBODY:
                    put(ground.heir, gpu, NOBODY)
            held, sworn, kept = ground.held[seat.node], ground.sworn[seat.node], ground.kept[seat.node]
            sworn |= seat.mask if standing.is_sworn else 0
            self.estate.set_masks(seat.chain, seat.node, held | seat.mask, sworn, kept & ~seat.mask)

    def leave(self, number: int) -> None:
        standing = self.standing[number]
        put = self.estate.ledger.put
        if standing.state is State.WAITS_FOR_VICTIMS:
            self.set_heir(standing.seats, number, on=False)
        else:
            for seat in standing.seats:
                ground = self.estate.grounds[seat.chain]
                for gpu in gpus_of(ground, seat):
                    put(ground.holder, gpu, NOBODY)
                held, sworn, kept = ground.held[seat.node], ground.sworn[seat.node], ground.kept[seat.node]
                self.estate.set_masks(seat.chain, seat.node, held & ~seat.mask, sworn & ~seat.mask, kept)
        self.strike(number)
        if standing.is_sworn:
            self.unbind_after(standing)

    def cells_of(self, standing: Standing) -> list[tuple[Compartment, tuple[int, int]]]:
        """Its tenant's cells in which a gang sits."""
        tenant = self.estate.tenants[standing.gang.tenant]
        return list(
            dict.fromkeys(
                (compartment, compartment.cell_of(level, unit))
                for seat in standing.seats
                for compartment, level, unit, mask in self.estate.grounds[seat.chain].units[seat.node]
                if compartment.tenant == tenant and mask & seat.mask
            )
        )

    def unbind_after(self, standing: Standing) -> None:
        """Cells that a gang was the last to use."""
        for compartment, cell in self.cells_of(standing):
            if not compartment.bound[cell] and not compartment.is_pin and cell not in compartment.locked:
                self.estate.unbind(compartment, *cell)

    def set_sworn(self, seats: Seats, *, on: bool) -> None:
        for seat in seats:
            ground = self.estate.grounds[seat.chain]
            sworn = ground.sworn[seat.node]
            sworn = sworn | seat.mask if on else sworn & ~seat.mask
            self.estate.set_masks(seat.chain, seat.node, ground.held[seat.node], sworn, ground.kept[seat.node])

    def set_heir(self, seats: Seats, number: int, *, on: bool) -> None:
        for seat in seats:
            ground = self.estate.grounds[seat.chain]
            for gpu in gpus_of(ground, seat):
                self.estate.ledger.put(ground.heir, gpu, number if on else NOBODY)
            kept = ground.kept[seat.node]
            kept = kept | seat.mask if on else kept & ~seat.mask
            self.estate.set_masks(seat.chain, seat.node, ground.held[seat.node], ground.sworn[seat.node], kept)

    def holders(self, seats: Seats) -> set[int]:
        grounds = self.estate.grounds
        found: set[int] = set()
        for seat in seats:
            ground = grounds[seat.chain]
            if ground.held[seat.node] & seat.mask:
                found.update(ground.holder[gpu] for gpu in gpus_of(ground, seat))
        found.discard(NOBODY)
        return found

    def heirs(self, seats: Seats) -> set[int]:
        found = {
            self.estate.grounds[seat.chain].heir[gpu]
            for seat in seats
            for gpu in gpus_of(self.estate.grounds[seat.chain], seat)
        }
        found.discard(NOBODY)
        return found

    def names(self, numbers: Iterable[int]) -> tuple[str, ...]:
        return tuple(self.standing[number].gang.name for number in sorted(numbers))

    def depart(self, number: int, *, downgrades: bool = False, keeps_cells: bool = False) -> None:
        """As if a gang had no claim to its seats any more.

        Who will only leave when it is told to still sits there: its cells are locked, not given back.
        """
        standing = self.standing[number]
        waits = standing.state is State.WAITS_FOR_VICTIMS
        downgrades |= standing.gang.lazy
        keeps_cells |= not waits and not downgrades
        if keeps_cells:
            for compartment, cell in self.cells_of(standing):
                self.estate.lock(compartment, cell, on=True)
        if waits:
            self.set_heir(standing.seats, number, on=False)
        else:
            self.set_sworn(standing.seats, on=False)
            if downgrades:
                seats = tuple(seat._replace(level=NOBODY) for seat in standing.seats)
                self.estate.ledger.put(self.standing, number, replace(standing, seats=seats, downgraded=True))
                self._file(number, standing, on=False)
        if not keeps_cells:
            self.unbind_after(standing)

    def dearness(self, number: int) -> tuple[Rank, int]:
        """The order in which gangs are sent away; of two alike the one that came last."""
        return self.standing[number].rank, -number


def gpus_of(ground: Ground, seat: Seat) -> list[int]:
    first = seat.node * ground.chain.node_gpus
    mask, found = seat.mask, []
    while mask:
        bit = mask & -mask
        found.append(first + bit.bit_length() - 1)
        mask ^= bit
    return found
