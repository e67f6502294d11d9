"""Tenants come and go, hardware breaks, the scheduler crashes: what a private cluster could do, everybody still can."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from enum import Enum
from random import Random
from typing import ClassVar, NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from oracles.hive import (
    Plot,
    agree,
    can_place,
    compartments_of,
    fits_empty,
    fits_private,
    gpus_of,
    has_guarantee,
    is_safe,
    private_room,
    snapshot,
    waits,
)
from profiles import NIGHTLY

from horae.guarantees.hive import Hive
from horae.guarantees.roster import Standing
from horae.model.chains import CellKind, Chain, Pin, Reservation, Territory
from horae.model.errors import JobError
from horae.model.gangs import Answer, Gang, Never, Placed, Preempts, Seat

STEPS_WANTED = 20_000 if NIGHTLY else 2_000  # with fewer, some of WANTED may not occur
QUESTIONS = 4  # after each step
GPUS_MAX = 24  # of a chain
WANTED = (
    "Placed guaranteed", "Preempts guaranteed", "Waits guaranteed", "Never guaranteed", "Placed opportunistic",
    "Waits opportunistic", "cancelled", "doomed", "downgraded", "fits a private cluster", "joined", "recovered",
    "started after victims",
)  # fmt: skip
TENANTS = (1, 2, 2, 3, 4, 6, 10)


# Territories


@st.composite
def chains(draw: st.DrawFn, index: int) -> Chain:
    fanout = [1]
    size = 1
    for children in draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)):
        if size * children <= GPUS_MAX:
            fanout.append(children)
            size *= children
    node_level = draw(st.integers(0, len(fanout) - 1))
    tops = min(draw(st.integers(1, 4)), GPUS_MAX // size)
    per_top = 1
    for children in fanout[node_level + 1 :]:
        per_top *= children
    return Chain(
        name=f"chain {index}",
        accelerator=draw(st.sampled_from("ab")),
        types=tuple(f"level {level}" for level in range(len(fanout))),
        fanout=tuple(fanout),
        nodes=tuple(f"node {index}-{node}" for node in range(tops * per_top)),
        node_level=node_level,
    )


@st.composite
def pins(draw: st.DrawFn, every: Sequence[Chain]) -> tuple[Pin, ...]:
    found: list[Pin] = []
    taken: set[tuple[int, int]] = set()
    for number in range(draw(st.sampled_from([0, 0, 1, 2]))):
        chain = draw(st.integers(0, len(every) - 1))
        level = draw(st.integers(0, every[chain].top))
        cell = draw(st.integers(0, every[chain].cells(level) - 1))
        size = every[chain].gpus[level]
        gpus = {(chain, gpu) for gpu in range(cell * size, (cell + 1) * size)}
        if taken.isdisjoint(gpus):
            taken |= gpus
            found.append(Pin(f"pin {number}", CellKind(chain, level), cell))
    return tuple(found)


@st.composite
def reservations(draw: st.DrawFn, every: Sequence[Chain], pinned: Sequence[Pin]) -> tuple[Reservation, ...]:
    """As many of the drawn cells as fit, for up to ten tenants."""
    tenants = [f"tenant {number}" for number in range(draw(st.sampled_from(TENANTS)))]
    there = [set(range(chain.gpu_count)) for chain in every]
    owned: dict[str, list[str]] = {tenant: [] for tenant in tenants}
    for pin in pinned:
        size = every[pin.kind.chain].gpus[pin.kind.level]
        owned[draw(st.sampled_from(tenants))].append(pin.name)
        there[pin.kind.chain] -= set(range(pin.cell * size, (pin.cell + 1) * size))
    promised = [[0] * len(chain.types) for chain in every]
    cells: dict[str, dict[CellKind, int]] = {tenant: {} for tenant in tenants}
    for _ in range(draw(st.integers(1, 12))):
        tenant = draw(st.sampled_from(tenants))
        index = draw(st.integers(0, len(every) - 1))
        kind = CellKind(index, draw(st.integers(0, every[index].top)))
        for _ in range(draw(st.integers(1, 4))):
            promised[index][kind.level] += 1
            if not can_place(every[index], there[index], promised[index]):
                promised[index][kind.level] -= 1
                break
            cells[tenant][kind] = cells[tenant].get(kind, 0) + 1
    return tuple(Reservation(tenant, cells[tenant], tuple(owned[tenant])) for tenant in tenants)


@st.composite
def territories(draw: st.DrawFn) -> Territory:
    every = tuple(draw(chains(index)) for index in range(draw(st.integers(1, 4))))
    pinned = draw(pins(every))
    return Territory(every, draw(reservations(every, pinned)), pinned)


# Gangs


class Spice(Enum):
    NONE = "none"
    LARGE = "some members are larger than any cell"
    MIXED = "over several chains"
    SUGGESTED = "on some nodes only"


class Wish(NamedTuple):
    """A gang, before it is known what there is."""

    home: int
    sizes: list[int]
    priority: int
    lazy: bool
    accelerator: int
    spice: Spice


wishes = st.builds(
    Wish,
    home=st.integers(0, 19),
    sizes=st.lists(st.integers(1, 8), min_size=1, max_size=4),
    priority=st.integers(-1, 3),
    lazy=st.booleans(),
    accelerator=st.sampled_from([0, 0, 0, 1, 2]),
    spice=st.sampled_from([Spice.NONE, Spice.NONE, Spice.NONE, Spice.LARGE, *Spice]),
)


class Machine(RuleBasedStateMachine):
    steps: ClassVar[int] = 0  # over all runs
    seen: ClassVar[Counter[str]] = Counter()

    @initialize(territory=territories())
    def begin(self, territory: Territory) -> None:
        self.territory = territory
        self.hive = Hive(territory)
        self.twin = Hive(territory)  # hears of the same changes, but is never asked anything
        self.arrived: dict[str, Gang] = {}  # who runs or waits for victims, in order of arrival
        self.bad: dict[tuple[int, int], int] = {}  # by chain and node
        self.named = 0
        self.random = Random(0)

    # What happens

    def gang(self, wish: Wish) -> Gang:
        self.named += 1
        homes = list(compartments_of(self.hive.estate))
        tenant, pin = self.territory.reservations[0].tenant, ""
        largest = max(chain.node_gpus for chain in self.territory.chains)
        if homes:
            tenant, pin, compartment = homes[wish.home % len(homes)]
            if wish.priority >= 0:
                unit = max(compartment.whole(), default=1)
                largest = min(2 * unit, compartment.chain.node_gpus) if wish.spice is Spice.LARGE else unit
        types = ["", *sorted({chain.accelerator for chain in self.territory.chains})]
        return Gang(
            f"gang {self.named}",
            tenant,
            tuple(1 + (size - 1) % largest for size in wish.sizes),
            wish.priority,
            types[wish.accelerator % len(types)],
            pin if wish.priority >= 0 else "",
            wish.lazy,
            mixed=wish.spice is Spice.MIXED,
        )

    @rule(some=st.lists(wishes, min_size=1, max_size=4))
    def gangs_come(self, some: list[Wish]) -> None:
        for wish in some:
            self.admit(self.gang(wish), self.suggestion(wish))

    @rule(some=st.lists(wishes, min_size=1, max_size=6), home=st.integers(0, 19))
    def one_tenant_is_busy(self, some: list[Wish], home: int) -> None:
        self.gangs_come([wish._replace(home=home) for wish in some])

    def suggestion(self, wish: Wish) -> list[str] | None:
        """Some of the nodes, sometimes."""
        if wish.spice is not Spice.SUGGESTED:
            return None
        return [node for chain in self.territory.chains for node in chain.nodes if self.random.random() < 0.7]

    def admit(self, gang: Gang, allowed: list[str] | None) -> None:
        note(f"admit {gang} {allowed if allowed is not None else ''}")
        if not self.has_a_home(gang):
            with pytest.raises(JobError):
                self.hive.plan(gang, allowed)
            with pytest.raises(JobError):
                self.hive.admit(gang, allowed)
            return
        answer = self.ask(gang, allowed)
        self.check_answer(gang, answer, allowed)
        note(f"   -> {answer}")
        in_reach = self.chains_in_reach()
        assert self.hive.admit(gang, allowed) == answer, "what was planned is not what happened"
        if allowed is None and not getattr(answer, "downgraded", ()) and not getattr(answer, "cancelled", ()):
            assert self.chains_in_reach() >= in_reach, "cells of others can be had on bad hardware only"
        assert self.twin.admit(gang, allowed) == answer, "an answer depends on what was asked before"
        self.seen[f"{type(answer).__name__} {'guaranteed' if gang.is_guaranteed else 'opportunistic'}"] += 1
        if isinstance(answer, Placed | Preempts):
            self.seen["joined"] += any(
                gang.is_guaranteed and seat.mask.bit_count() > self.territory.chains[seat.chain].gpus[seat.level]
                for seat in answer.seats
            )
            self.seen["cancelled"] += len(answer.cancelled)
            self.seen["downgraded"] += len(answer.downgraded)
            self.arrived[gang.name] = gang
            for name in answer.cancelled:
                del self.arrived[name]

    def chains_in_reach(self) -> set[int]:
        """Where good hardware is left for all that was promised."""
        return {index for index in range(len(self.territory.chains)) if Plot(self.hive, index).is_in_reach()}

    def has_a_home(self, gang: Gang) -> bool:
        """Whether its tenant was promised anything that it could use."""
        if not gang.is_guaranteed or gang.pin:
            chains = [pin.kind.chain for pin in self.territory.pins if pin.name == gang.pin]
            return not gang.is_guaranteed or self.has_type(gang, chains)
        by_name = {each.tenant: each for each in self.territory.reservations}
        return self.has_type(gang, [kind.chain for kind in by_name[gang.tenant].cells])

    def has_type(self, gang: Gang, indices: Sequence[int]) -> bool:
        return any(gang.accelerator in ("", self.territory.chains[index].accelerator) for index in indices)

    @precondition(lambda self: self.waiting())
    @rule(data=st.data())
    def a_waiting_gang_comes_again(self, data: st.DataObject) -> None:
        self.come_again(data.draw(st.sampled_from(self.waiting())))

    def come_again(self, name: str) -> None:
        """It starts once its victims have left; elsewhere, or not now, if its hardware has gone bad meanwhile."""
        gang, standing = self.arrived[name], self.standing(name)
        if self.bad_gpus(standing.seats) == 0:
            answer: Answer = Placed(standing.seats)
            if victims := [other for other in self.arrived if other in self.holders(standing.seats)]:
                answer = Preempts(standing.seats, tuple(victims))
            assert self.hive.plan(gang) == answer
        answer = self.hive.admit(gang)
        note(f"again {name} -> {answer}")
        assert self.twin.admit(gang) == answer
        if isinstance(answer, Placed | Preempts):
            self.check_hardware(answer.seats)
            self.seen["started after victims"] += isinstance(answer, Placed)
            for other in answer.cancelled:
                del self.arrived[other]
        elif name not in self.hive.roster.number:
            del self.arrived[name]

    def waiting(self) -> list[str]:
        return [name for name in self.arrived if waits(self.standing(name))]

    @precondition(lambda self: self.arrived)
    @rule(data=st.data())
    def a_gang_ends(self, data: st.DataObject) -> None:
        self.end(data.draw(st.sampled_from(list(self.arrived))))

    def end(self, name: str) -> None:
        note(f"end {name}")
        self.hive.end(name)
        self.twin.end(name)
        del self.arrived[name]

    @precondition(lambda self: any(map(self.hive.is_being_preempted, self.arrived)))
    @rule(data=st.data())
    def a_victim_leaves(self, data: st.DataObject) -> None:
        self.end(data.draw(st.sampled_from([name for name in self.arrived if self.hive.is_being_preempted(name)])))

    @precondition(lambda self: self.waiting())
    @rule()
    def all_victims_leave(self) -> None:
        for name in [name for name in self.arrived if self.hive.is_being_preempted(name)]:
            self.end(name)
        for name in self.waiting():
            if name in self.arrived:
                self.come_again(name)

    @rule(chain=st.integers(0, 3), node=st.integers(0, GPUS_MAX), mask=st.integers(0, 255), kind=st.integers(0, 6))
    def hardware_changes(self, chain: int, node: int, mask: int, kind: int) -> None:
        if kind == 0:
            for repaired in list(self.bad):
                self.set_bad(*repaired, 0)
        index = chain % len(self.territory.chains)
        place = node % len(self.territory.chains[index].nodes)
        whole = (1 << self.territory.chains[index].node_gpus) - 1
        self.set_bad(index, place, {0: 0, 1: 0, 2: whole}.get(kind, mask & whole))

    def set_bad(self, chain: int, node: int, mask: int) -> None:
        note(f"bad: chain {chain} node {node} {mask:b}")
        self.bad[chain, node] = mask
        self.hive.set_bad(chain, node, mask)
        self.twin.set_bad(chain, node, mask)

    @rule(wish=wishes)
    def somebody_asks(self, wish: Wish) -> None:
        gang = self.gang(wish)
        if self.has_a_home(gang):
            self.check_answer(gang, self.ask(gang))

    @rule(late=st.booleans(), forgetful=st.booleans(), changed=st.booleans(), data=st.data())
    def the_scheduler_crashes(self, late: bool, forgetful: bool, changed: bool, data: st.DataObject) -> None:
        if changed:
            drawn = data.draw(reservations(self.territory.chains, self.territory.pins))
            self.territory = replace(self.territory, reservations=drawn)
        self.recover(late, forgetful, changed=changed)

    def recover(self, late: bool, forgetful: bool, *, changed: bool = False) -> None:
        """Everybody who ran is found again; whether bad hardware is known before that or after makes no difference.

        A record says who had lost its guarantee. A forgetful one does not, so who gets it again is left open.
        """
        note(f"recover {late=} {forgetful=} {changed=}")
        before = {name: self.standing(name) for name in self.arrived if not waits(self.standing(name))}
        self.arrived = {name: self.arrived[name] for name in before}
        self.hive, self.twin = (self.rebuilt(before, late, forgetful) for _ in range(2))
        assert list(self.hive.roster.number) == list(before), "somebody was lost"
        for name, standing in before.items():
            after = self.standing(name)
            assert [seat[:3] for seat in after.seats] == [seat[:3] for seat in standing.seats]
            if not changed and not forgetful:
                assert after.downgraded == standing.downgraded, f"gang {name} lost its guarantee"
        self.seen["recovered"] += len(before)

    def rebuilt(self, before: dict[str, Standing], late: bool, forgetful: bool) -> Hive:
        hive = Hive(self.territory)
        if not late:
            for (chain, node), mask in self.bad.items():
                hive.set_bad(chain, node, mask)
        for name, standing in before.items():
            forgets = standing.downgraded and not forgetful
            seats = [seat._replace(level=-1) if forgets else seat for seat in standing.seats]
            kept = hive.restore(standing.gang, seats)
            assert kept is not hive.record(name).downgraded
        if late:
            for (chain, node), mask in self.bad.items():
                hive.set_bad(chain, node, mask)
        return hive

    # What must hold

    def standing(self, name: str) -> Standing:
        return self.hive.roster.standing[self.hive.roster.number[name]]

    def holders(self, seats: Sequence[Seat]) -> set[str]:
        return {name for name in self.on(seats) if not waits(self.standing(name))}

    def heirs(self, seats: Sequence[Seat]) -> set[str]:
        return {name for name in self.on(seats) if waits(self.standing(name))}

    def on(self, seats: Sequence[Seat]) -> set[str]:
        return {name for name in self.arrived if overlap(self.standing(name).seats, seats)}

    def bad_gpus(self, seats: Sequence[Seat]) -> int:
        return sum((self.bad.get((seat.chain, seat.node), 0) & seat.mask).bit_count() for seat in seats)

    def check_hardware(self, seats: Sequence[Seat]) -> None:
        assert self.bad_gpus(seats) == 0, f"bad GPUs were given: {seats}"

    def ask(self, gang: Gang, allowed: list[str] | None = None) -> Answer:
        """Asking changes nothing at all."""
        before = snapshot(self.hive)
        answer = self.hive.plan(gang, allowed)
        assert snapshot(self.hive) == before, "a question changed something"
        return answer

    def check_answer(self, gang: Gang, answer: Answer, allowed: Sequence[str] | None = None) -> None:
        if isinstance(answer, Never):
            assert not gang.is_guaranteed or not fits_empty(self.hive, gang), f"{answer}, but it fits"
        if not isinstance(answer, Placed | Preempts):
            return
        self.check_seats(gang, answer.seats, allowed)
        victims = answer.victims if isinstance(answer, Preempts) else ()
        assert set(victims) == self.holders(answer.seats) - set(answer.cancelled), "others hold these GPUs"
        assert self.heirs(answer.seats) <= set(answer.cancelled), "these GPUs are kept for others"
        assert isinstance(answer, Placed) or victims, "it waits for nobody"
        for name in victims:
            standing = self.standing(name)
            assert gang.is_guaranteed
            assert not has_guarantee(standing) or self.is_lower(standing, gang), f"{name} may not be preempted"
        for name in answer.downgraded:
            assert self.arrived[name].lazy and not waits(self.standing(name))
            assert has_guarantee(self.standing(name)) and self.is_lower(self.standing(name), gang)
        for name in answer.cancelled:
            assert waits(self.standing(name)) and self.is_lower(self.standing(name), gang)

    def is_lower(self, standing: Standing, gang: Gang) -> bool:
        return standing.gang.tenant == gang.tenant and standing.gang.priority < gang.priority

    def check_seats(self, gang: Gang, seats: Sequence[Seat], allowed: Sequence[str] | None) -> None:
        self.check_hardware(seats)
        assert [seat.mask.bit_count() for seat in seats] == list(gang.members)
        assert gang.mixed or len({seat.chain for seat in seats}) == 1
        assert sum(len(each) for each in self.gpus(seats)) == len(set().union(*self.gpus(seats)))
        for seat in seats:
            chain = self.territory.chains[seat.chain]
            assert gang.accelerator in ("", chain.accelerator)
            assert seat.mask >> chain.node_gpus == 0
            assert allowed is None or chain.nodes[seat.node] in allowed
            assert (seat.level >= 0) == gang.is_guaranteed

    def gpus(self, seats: Sequence[Seat]) -> list[set[tuple[int, int]]]:
        return [{(seat.chain, gpu) for gpu in gpus_of(self.territory.chains[seat.chain], seat)} for seat in seats]

    @invariant()
    def the_books_are_right_and_every_promise_can_be_kept(self) -> None:
        if not hasattr(self, "hive"):
            return
        type(self).steps += 1
        agree(self.hive)
        assert is_safe(self.hive)
        for index, ground in enumerate(self.hive.estate.grounds):
            assert all(there >= due for there, due in zip(ground.buddies.open, ground.promised, strict=True))
            bad = [self.bad.get((index, node), 0) for node in range(len(ground.chain.nodes))]
            assert ground.buddies.bad_mask == bad
        assert set(self.hive.roster.number) == set(self.arrived)

    @invariant()
    def what_fits_a_private_cluster_fits_here(self) -> None:
        if not hasattr(self, "hive"):
            return
        before = snapshot(self.hive)
        for gang, fits in self.questions():
            if not fits:
                continue
            self.seen["fits a private cluster"] += 1
            answer = self.hive.plan(gang)
            assert isinstance(answer, Placed | Preempts), f"{gang} fits a private cluster, but {answer}"
            self.check_answer(gang, answer)
        assert snapshot(self.hive) == before, "a question changed something"

    def questions(self) -> Iterator[tuple[Gang, bool]]:
        """All that a private cluster has left for some priority, at once; and gangs at random."""
        homes, in_reach = list(compartments_of(self.hive.estate)), self.chains_in_reach()
        if len(homes) > QUESTIONS:
            homes = self.random.sample(homes, QUESTIONS)
        for tenant, pin, compartment in homes:
            doomed = self.hive.doomed(tenant)
            assert in_reach.isdisjoint(kind.chain for kind in doomed), f"no need to doom {doomed}"
            self.seen["doomed"] += sum(doomed.values())
            priority = self.random.randint(0, 4)
            accelerator = compartment.chain.accelerator
            left = [room for room in private_room(self.hive, compartment, priority, doomed) if room]
            if left:
                yield Gang("asks", tenant, tuple(left), priority, accelerator, pin), True
            sizes = tuple(self.random.randint(1, compartment.chain.node_gpus) for _ in range(self.random.randint(1, 4)))
            gang = Gang("asks", tenant, sizes, priority, self.random.choice(["", accelerator]), pin)
            yield gang, fits_private(self.hive, gang, doomed)

    def teardown(self) -> None:
        """Everybody leaves: nothing is left."""
        if not hasattr(self, "hive"):
            return
        assert snapshot(self.hive) == snapshot(self.twin), "questions left something behind"
        for name in list(self.arrived):
            self.end(name)
        agree(self.hive)
        assert all(not each.held[node] for each in self.hive.estate.grounds for node in range(len(each.held)))


def overlap(some: Sequence[Seat], others: Sequence[Seat]) -> bool:
    return any(one[:2] == other[:2] and one.mask & other.mask for one in some for other in others)


def test_whoever_fits_a_private_cluster_is_served_whatever_happens() -> None:
    Machine.steps = 0
    Machine.seen.clear()
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=STEPS_WANTED // 25,
            stateful_step_count=40,
            suppress_health_check=list(HealthCheck),
            derandomize=not NIGHTLY,
            phases=(Phase.generate, Phase.shrink) if NIGHTLY else (Phase.generate,),  # to shrink takes minutes
            database=None,
        ),
    )
    assert Machine.steps >= STEPS_WANTED
    assert min(Machine.seen[what] for what in WANTED) > 0, Machine.seen
