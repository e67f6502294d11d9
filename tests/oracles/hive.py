"""The books of a Hive written up from scratch, GPU by GPU, and what a private cluster could do.

Given are only the territory, who has which seats, which cells are bound to whom and which GPUs are bad; all the rest
follows from these. Sets of GPUs and loops over all cells, nothing is kept from one step to the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from types import MethodType
from typing import Any

from horae.guarantees.compartment import Compartment
from horae.guarantees.estate import Estate, Ground
from horae.guarantees.hive import Hive
from horae.guarantees.roster import Standing, State
from horae.guarantees.within import Within
from horae.model.chains import CellKind, Chain
from horae.model.gangs import Gang, Seat

NOBODY = -1


def agree(hive: Hive) -> None:
    """Everything that a Hive keeps is what it would be, were it computed anew."""
    assert hive.estate.ledger.mark() == 0, "changes are left that could be undone"
    agree_on_names(hive)
    for index in range(len(hive.estate.grounds)):
        plot = Plot(hive, index)
        compare(f"chain {index}", plot.wanted(), plot.found())
        for tenant, pin, compartment in compartments_of(hive.estate):
            if compartment.chain_index == index:
                compare(f"{tenant} {pin} in chain {index}", plot.wanted_of(compartment), found_of(compartment))
        plot.check_claims()
        plot.check_bindings()


def compare(where: str, wanted: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    for what, value in wanted.items():
        assert found[what] == value, f"{where}: {what} is {found[what]}, should be {value}"


def agree_on_names(hive: Hive) -> None:
    roster = hive.roster
    names = {standing.gang.name: number for number, standing in roster.standing.items()}
    sworn: dict[str, dict[tuple[bool, int, int], dict[int, None]]] = {tenant: {} for tenant in hive.estate.tenants}
    for number, standing in roster.standing.items():
        if has_guarantee(standing):
            rank = standing.state is State.RUNS, standing.gang.priority, sum(standing.gang.members)
            sworn[standing.gang.tenant].setdefault(rank, {})[number] = None
    wanted = {"number": names, "sworn": sworn}
    compare("roster", wanted, {"number": roster.number, "sworn": roster.sworn})


def has_guarantee(standing: Standing) -> bool:
    return standing.gang.priority >= 0 and not standing.downgraded


def waits(standing: Standing) -> bool:
    return standing.state is State.WAITS_FOR_VICTIMS


def compartments_of(estate: Estate) -> Iterator[tuple[str, str, Compartment]]:
    """What tenants have: cells of a chain, or a pinned cell with its name."""
    for tenant, number in estate.tenants.items():
        yield from ((tenant, "", compartment) for compartment in estate.compartments[number].values())
        yield from ((tenant, name, compartment) for name, compartment in estate.pins[number].items())


def gpus_of(chain: Chain, seat: Seat) -> set[int]:
    return {seat.node * chain.node_gpus + bit for bit in range(chain.node_gpus) if seat.mask >> bit & 1}


def bits(numbers: Iterable[int]) -> int:
    return sum(1 << number for number in numbers)


class Plot:
    """What is where in one chain."""

    def __init__(self, hive: Hive, index: int) -> None:
        self.hive, self.index = hive, index
        self.ground: Ground = hive.estate.grounds[index]
        self.chain = self.ground.chain
        self.levels = range(len(self.chain.types))
        self.nodes = range(len(self.chain.nodes))
        self.gpus = range(len(self.chain.nodes) * self.chain.node_gpus)
        self.bad = {gpu for node in self.nodes for gpu in gpus_of(self.chain, self.bad_seat(node))}
        self.holder: dict[int, int] = {}
        self.heir: dict[int, int] = {}
        self.sworn: set[int] = set()
        self.seat_all()
        self.owner: dict[int, tuple[Compartment, int, int]] = {}  # by bound GPU: whose, and of which cell
        for _, _, compartment in compartments_of(hive.estate):
            if compartment.chain_index == index:
                self.bind_all(compartment)
        self.claimed = self.sworn | set(self.heir)
        self.guests = set(self.holder) - self.sworn

    def bad_seat(self, node: int) -> Seat:
        return Seat(self.index, node, self.ground.buddies.bad_mask[node], NOBODY)

    def seat_all(self) -> None:
        for number, standing in self.hive.roster.standing.items():
            for seat in standing.seats:
                if seat.chain != self.index:
                    continue
                for gpu in gpus_of(self.chain, seat):
                    owner = self.heir if waits(standing) else self.holder
                    assert gpu not in owner, f"GPU {gpu} was given to {owner[gpu]} and to {number}"
                    owner[gpu] = number
                    if has_guarantee(standing) and not waits(standing):
                        self.sworn.add(gpu)

    def bind_all(self, compartment: Compartment) -> None:
        for level, cell in compartment.bound:
            for gpu in self.inside(level, cell):
                assert gpu not in self.owner, f"GPU {gpu} is bound twice"
                self.owner[gpu] = compartment, level, cell

    def inside(self, level: int, cell: int) -> range:
        return range(cell * self.chain.gpus[level], (cell + 1) * self.chain.gpus[level])

    def cells(self, level: int) -> list[range]:
        return [self.inside(level, cell) for cell in range(len(self.gpus) // self.chain.gpus[level])]

    def mask(self, node: int, gpus: Iterable[int]) -> int:
        first = node * self.chain.node_gpus
        return bits(gpu - first for gpu in gpus if 0 <= gpu - first < self.chain.node_gpus)

    def masks(self, gpus: Iterable[int]) -> list[int]:
        those = list(gpus)
        return [self.mask(node, those) for node in self.nodes]

    # The books

    def wanted(self) -> dict[str, Any]:
        fit = set(self.gpus) - set(self.owner) - self.bad
        free = self.largest_free(fit)
        return {
            "open": [sum(self.owner.keys().isdisjoint(cell) for cell in self.cells(level)) for level in self.levels],
            "sound": [sum(fit.issuperset(cell) for cell in self.cells(level)) for level in self.levels],
            "bound": self.counts(set(self.owner)),
            "unfit": self.counts(set(self.gpus) - fit),
            "listed": [[cell in free[level] for cell in range(len(self.cells(level)))] for level in self.levels],
            "free": [self.by_guests(level, free[level]) for level in self.levels],
            "guests": self.guest_counts(),
            "guest masks": self.masks(self.guests),
            "promised": self.promised(),
            "holder": [self.holder.get(gpu, NOBODY) for gpu in self.gpus],
            "heir": [self.heir.get(gpu, NOBODY) for gpu in self.gpus],
            "held": self.masks(self.holder),
            "sworn": self.masks(self.sworn),
            "kept": self.masks(self.heir),
            "idle": self.idle(),
            "units": [self.units(node) for node in self.nodes],
        }

    def found(self) -> dict[str, Any]:
        ground, buddies = self.ground, self.ground.buddies
        return {
            "open": buddies.open,
            "sound": buddies.sound,
            "bound": buddies.bound,
            "unfit": buddies._unfit,
            "listed": [[bool(flag) for flag in flags] for flags in buddies._listed],
            "free": buddies.free,
            "guests": buddies._guests,
            "guest masks": buddies.guest_mask,
            "promised": ground.promised,
            "holder": ground.holder,
            "heir": ground.heir,
            "held": ground.held,
            "sworn": ground.sworn,
            "kept": ground.kept,
            "idle": ground.idle,
            "units": [sorted((id(each[0]), *each[1:]) for each in entries) for entries in ground.units],
        }

    def largest_free(self, fit: set[int]) -> list[set[int]]:
        """By level: cells of fit GPUs only that are not part of a larger one."""
        whole = [
            {index for index, cell in enumerate(self.cells(level)) if fit.issuperset(cell)} for level in self.levels
        ]
        parts = [
            {child for cell in whole[level + 1] for child in self.children(level + 1, cell)}
            for level in self.levels[:-1]
        ]
        return [whole[level] - part for level, part in enumerate([*parts, set()])]

    def children(self, level: int, cell: int) -> range:
        return range(cell * self.chain.fanout[level], (cell + 1) * self.chain.fanout[level])

    def counts(self, gpus: set[int]) -> list[list[int]]:
        """By level and cell: how many of these GPUs; nothing is counted inside of a bound cell."""
        return [
            [0 if self.is_inside_of_bound(level, cell) else len(gpus.intersection(cell)) for cell in self.cells(level)]
            for level in self.levels
        ]

    def is_inside_of_bound(self, level: int, cell: range) -> bool:
        return cell[0] in self.owner and self.owner[cell[0]][1] > level

    def by_guests(self, level: int, free: set[int]) -> list[int]:
        found = [0] * (self.chain.gpus[level] + 1)
        for cell in free:
            found[len(self.guests.intersection(self.inside(level, cell)))] |= 1 << cell
        return found

    def guest_counts(self) -> list[list[int]]:
        return [
            [len(self.guests.intersection(cell)) if level >= self.chain.node_level else 0 for cell in self.cells(level)]
            for level in self.levels
        ]

    def promised(self) -> list[int]:
        """By level: what the cells that nobody uses come to, cut into such cells."""
        sizes, unbound = self.chain.gpus, self.all_unbound()
        return [
            sum(unbound[level] * sizes[level] // sizes[below] for level in range(below, len(sizes)))
            for below in self.levels
        ]

    def unbound(self, compartment: Compartment | None) -> list[int]:
        """By level: cells that were promised and that nobody uses; a pinned cell is always bound."""
        found = [0] * len(self.levels)
        if compartment is not None and not is_pin(self.hive.estate, compartment):
            reservation = self.hive.estate.territory.reservations[compartment.tenant]
            for (chain, level), count in reservation.cells.items():
                if chain == self.index:
                    found[level] += count
            for level, _ in compartment.bound:
                found[level] -= 1
        return found

    def idle(self) -> tuple[list[int], list[int]]:
        found: tuple[list[int], list[int]] = ([0] * (self.chain.node_gpus + 1), [0] * (self.chain.node_gpus + 1))
        for node, cell in enumerate(self.cells(self.chain.node_level)):
            busy = self.bad | set(self.holder) | set(self.heir)
            found[not self.owner.keys().isdisjoint(cell)][len(set(cell) - busy)] |= 1 << node
        return found

    def units(self, node: int) -> list[tuple[int, int, int, int]]:
        return sorted(
            (id(compartment), level, unit, self.mask(node, self.inside(level, unit)))
            for compartment, level, unit in self.all_units()
            if self.inside(level, unit)[0] // self.chain.node_gpus == node
        )

    def all_units(self) -> set[tuple[Compartment, int, int]]:
        """Bound cells, or their nodes if they are larger than that."""
        found = set()
        for gpu, (compartment, cell_level, _) in self.owner.items():
            level = min(cell_level, self.chain.node_level)
            found.add((compartment, level, gpu // self.chain.gpus[level]))
        return found

    def wanted_of(self, compartment: Compartment) -> dict[str, Any]:
        out = self.claimed | self.bad
        left = {
            (level, unit): len(set(self.inside(level, unit)) - out)
            for owner, level, unit in self.all_units()
            if owner is compartment
        }
        shelf = [[0] * (gpus + 1) for gpus in self.chain.gpus[: self.chain.node_level + 1]]
        for (level, unit), room in left.items():
            shelf[level][room] |= 1 << unit
        bound = {cell: len(self.claimed.intersection(self.inside(*cell))) for cell in compartment.bound}
        return {"unbound": self.unbound(compartment), "bound": bound, "left": left, "shelf": shelf}

    # What must hold

    def check_claims(self) -> None:
        """Whoever has a claim sits in cells of its own tenant, of the level that its seats count against."""
        for standing in self.hive.roster.standing.values():
            gang = standing.gang
            for seat in standing.seats:
                if seat.chain != self.index or not has_guarantee(standing):
                    continue
                for gpu in gpus_of(self.chain, seat):
                    assert gpu in self.owner, f"gang {gang.name} has a guarantee on GPU {gpu}, which is nobody's"
                    compartment, level, _ = self.owner[gpu]
                    assert compartment is home(self.hive.estate, gang, self.index), f"gang {gang.name} is not at home"
                    assert level == seat.level, f"gang {gang.name} counts against level {seat.level}, not {level}"

    def check_bindings(self) -> None:
        """Cells are bound while they are used; pinned cells always. There are never more than were promised."""
        pins = {pin.name: (pin.kind.level, pin.cell) for pin in self.hive.estate.territory.pins}
        for number in self.hive.estate.tenants.values():
            for name, compartment in self.hive.estate.pins[number].items():
                if compartment.chain_index == self.index:
                    assert list(compartment.bound) == [pins[name]], f"pin {name} is {compartment.bound}"
            reserved = self.hive.estate.compartments[number].get(self.index)
            if reserved is not None:
                assert all(reserved.bound.values()), f"cells {reserved.bound} are bound that nobody uses"
                assert min(self.unbound(reserved)) >= 0, f"more cells are bound than promised: {reserved.bound}"

    def can_keep_all_promises(self) -> bool:
        """Whether all cells that nobody uses could be had at once."""
        return can_place(self.chain, set(self.gpus) - set(self.owner), self.all_unbound())

    def is_in_reach(self) -> bool:
        """The same on good hardware."""
        return can_place(self.chain, set(self.gpus) - set(self.owner) - self.bad, self.all_unbound())

    def all_unbound(self) -> list[int]:
        every = [self.unbound(each.get(self.index)) for each in self.hive.estate.compartments]
        return [sum(counts) for counts in zip(*every, strict=True)]


def can_place(chain: Chain, there: set[int], wanted: Sequence[int]) -> bool:
    """Whether so many cells of each level can be cut out of these GPUs: the largest first, each at the first place."""
    for level in reversed(range(len(wanted))):
        size = chain.gpus[level]
        cells = [range(cell * size, (cell + 1) * size) for cell in range(chain.cells(level))]
        whole = [cell for cell in cells if there.issuperset(cell)]
        if len(whole) < wanted[level]:
            return False
        there = there.difference(*whole[: wanted[level]])
    return True


def is_pin(estate: Estate, compartment: Compartment) -> bool:
    return any(compartment is each for each in estate.pins[compartment.tenant].values())


def home(estate: Estate, gang: Gang, chain: int) -> Compartment | None:
    tenant = estate.tenants[gang.tenant]
    return estate.pins[tenant].get(gang.pin) if gang.pin else estate.compartments[tenant].get(chain)


def found_of(compartment: Compartment) -> dict[str, Any]:
    return {name: getattr(compartment, name) for name in ("unbound", "bound", "left", "shelf")}


def is_safe(hive: Hive) -> bool:
    """Whether every tenant could have all of its cells at once."""
    return all(Plot(hive, index).can_keep_all_promises() for index in range(len(hive.estate.grounds)))


# What a private cluster could do


def private_rooms(hive: Hive, gang: Gang, doomed: Mapping[CellKind, int]) -> list[list[int]]:
    """By compartment that a gang may use: GPUs that each unit of a private cluster would have for its priority."""
    tenant = hive.estate.tenants[gang.tenant]
    homes = [hive.estate.pins[tenant][gang.pin]] if gang.pin else list(hive.estate.compartments[tenant].values())
    return [
        private_room(hive, compartment, gang.priority, doomed)
        for compartment in homes
        if gang.accelerator in ("", compartment.chain.accelerator)
    ]


def private_room(hive: Hive, compartment: Compartment, priority: int, doomed: Mapping[CellKind, int]) -> list[int]:
    plot = Plot(hive, compartment.chain_index)
    chain, standings = plot.chain, hive.roster.standing
    holders = {gpu: number for gpu, number in plot.holder.items() if gpu in plot.sworn}
    taken = {
        gpu
        for owner in (holders, plot.heir)
        for gpu, number in owner.items()
        if standings[number].gang.priority >= priority
    }
    rooms = [
        len(set(plot.inside(level, unit)) - taken - plot.bad)
        for owner, level, unit in sorted(plot.all_units(), key=lambda entry: entry[1:])
        if owner is compartment
    ]
    for level, count in enumerate(plot.unbound(compartment)):
        good = count - doomed.get(CellKind(compartment.chain_index, level), 0)
        units = max(1, chain.gpus[level] // chain.node_gpus)
        rooms += [min(chain.gpus[level], chain.node_gpus)] * (good * units)
    return rooms


def fits_private(hive: Hive, gang: Gang, doomed: Mapping[CellKind, int]) -> bool:
    """Whether a private cluster of the tenant's shape could hold a gang now, at the cost of lower priorities only."""
    return any(fits(rooms, gang.members) for rooms in private_rooms(hive, gang, doomed))


def fits_empty(hive: Hive, gang: Gang) -> bool:
    """Whether a private cluster could ever hold it."""
    tenant = hive.estate.territory.reservations[hive.estate.tenants[gang.tenant]]
    rooms: dict[int, list[int]] = {}
    kinds = list(tenant.cells.items())
    if gang.pin:
        kinds = [(pin.kind, 1) for pin in hive.estate.territory.pins if pin.name == gang.pin]
    for kind, count in kinds:
        chain = hive.estate.territory.chains[kind.chain]
        if gang.accelerator in ("", chain.accelerator):
            units = count * max(1, chain.gpus[kind.level] // chain.node_gpus)
            rooms.setdefault(kind.chain, []).extend([min(chain.gpus[kind.level], chain.node_gpus)] * units)
    return any(fits(each, gang.members) for each in rooms.values())


def fits(rooms: list[int], members: tuple[int, ...]) -> bool:
    """Every way to put members into rooms is tried; equal rooms are one way."""
    order = tuple(sorted(members, reverse=True))
    seen: set[tuple[int, tuple[int, ...]]] = set()

    def place(position: int, left: tuple[int, ...]) -> bool:
        if position == len(order):
            return True
        if (position, left) in seen:
            return False
        seen.add((position, left))
        return any(
            place(position + 1, tuple(sorted((*left[:index], room - order[position], *left[index + 1 :]))))
            for index, room in enumerate(left)
            if room >= order[position]
        )

    return place(0, tuple(sorted(rooms)))


# Everything that a Hive knows


def snapshot(value: Any, seen: dict[int, int] | None = None) -> Any:
    """A copy of all that is reachable, private attributes included, in plain values that can be compared.

    What was found once inside a node is remembered and changes no answer, so it is left out.
    """
    seen = {} if seen is None else seen
    if isinstance(value, Within | MethodType):
        return None
    if value is None or isinstance(value, int | str | Enum | Chain | Standing | Gang):
        return value
    if isinstance(value, bytearray | set):
        return value.copy()
    if isinstance(value, list | tuple):
        return [snapshot(each, seen) for each in value]
    if isinstance(value, dict):
        return {key: snapshot(each, seen) for key, each in value.items()}
    if id(value) in seen:
        return f"object {seen[id(value)]}"
    seen[id(value)] = len(seen)
    return {name: snapshot(each, seen) for name, each in vars(value).items() if name != "territory"}
