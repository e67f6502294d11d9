"""Virtual private clusters by hand. If not told otherwise, a rack is two nodes of two switches of two GPUs each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from oracles.hive import agree, snapshot

from horae.guarantees.buddies import Buddies
from horae.guarantees.hive import Hive
from horae.guarantees.ledger import Ledger
from horae.model.chains import CellKind, Chain, Pin, Reservation, Territory
from horae.model.errors import BrokenInvariant, ClusterError, JobError
from horae.model.gangs import Answer, Gang, Never, Placed, Preempts, Seat, Waits

GPU, SWITCH, NODE, RACK = range(4)


def chain(racks: int = 1, fanout: Sequence[int] = (1, 2, 2, 2), name: str = "rack", accelerator: str = "v100") -> Chain:
    nodes = tuple(f"{name} node {index}" for index in range(racks * fanout[RACK]))
    return Chain(name, accelerator, ("gpu", "switch", "node", name), tuple(fanout), nodes, NODE)


def hive(tenants: Mapping[str, Mapping[int, int]], racks: int = 1, fanout: Sequence[int] = (1, 2, 2, 2)) -> Hive:
    """Of each tenant: how many cells, by level."""
    return Hive(
        Territory(
            (chain(racks, fanout),),
            tuple(
                Reservation(name, {CellKind(0, level): count for level, count in cells.items()})
                for name, cells in tenants.items()
            ),
        )
    )


def gang(
    name: str, members: int | tuple[int, ...], priority: int = 0, *, tenant: str = "a", lazy: bool = False
) -> Gang:
    return Gang(name, tenant, (members,) if isinstance(members, int) else members, priority, lazy=lazy)


def guest(name: str, *members: int) -> Gang:
    return Gang(name, "a", members, -1)


def gpus(answer: Answer, node_gpus: int = 4) -> set[int]:
    """The GPUs that were given, counted over all nodes."""
    assert isinstance(answer, Placed | Preempts), answer
    return {seat.node * node_gpus + bit for seat in answer.seats for bit in range(node_gpus) if seat.mask >> bit & 1}


# Buddies


def free(buddies: Buddies) -> list[tuple[int, int]]:
    """Level and number of every free cell."""
    return [
        (level, cell)
        for level, by_guests in enumerate(buddies.free)
        for cells in by_guests
        for cell in range(cells.bit_length())
        if cells >> cell & 1
    ]


@pytest.mark.parametrize(
    ("level", "cell", "left", "still_open"),
    [
        (GPU, 0, [(GPU, 1), (SWITCH, 1), (NODE, 1)], [7, 3, 1, 0]),
        (GPU, 6, [(GPU, 7), (SWITCH, 2), (NODE, 0)], [7, 3, 1, 0]),
        (SWITCH, 1, [(SWITCH, 0), (NODE, 1)], [6, 3, 1, 0]),
        (NODE, 1, [(NODE, 0)], [4, 2, 1, 0]),
        (RACK, 0, [], [0, 0, 0, 0]),
    ],
)
def test_taking_a_cell_splits_the_ones_that_hold_it_and_giving_it_back_joins_them(
    level: int, cell: int, left: list[tuple[int, int]], still_open: list[int]
) -> None:
    buddies = Buddies(chain(), Ledger())
    buddies.bind(level, cell)
    assert free(buddies) == left
    assert buddies.open == still_open
    buddies.unbind(level, cell)
    assert free(buddies) == [(RACK, 0)]
    assert buddies.open == [8, 4, 2, 1]


def test_buddies_join_only_when_all_of_them_are_back() -> None:
    buddies = Buddies(chain(), Ledger())
    buddies.bind(GPU, 0)
    buddies.bind(GPU, 2)
    buddies.unbind(GPU, 0)
    assert free(buddies) == [(GPU, 3), (SWITCH, 0), (NODE, 1)]
    buddies.unbind(GPU, 2)
    assert free(buddies) == [(RACK, 0)]


def test_the_smallest_split_is_chosen_and_guests_are_spared() -> None:
    buddies = Buddies(chain(), Ledger())
    buddies.bind(GPU, 0)
    nothing_due = [0, 0, 0, 0]
    assert buddies.choose(GPU, nothing_due) == 1
    assert buddies.choose(SWITCH, nothing_due) == 1
    buddies.set_guests(0, 0b0010)
    assert buddies.choose(GPU, nothing_due) == 2  # of the next switch
    buddies.set_guests(0, 0b1110)
    assert buddies.choose(GPU, nothing_due) == 4  # of the next node


def test_a_cell_is_bound_once() -> None:
    buddies = Buddies(chain(), Ledger())
    buddies.bind(SWITCH, 0)
    for level in (GPU, SWITCH, NODE, RACK):
        with pytest.raises(BrokenInvariant, match="bound twice"):
            buddies.bind(level, 0)


def test_bad_hardware_is_no_free_cell_but_stays_open() -> None:
    buddies = Buddies(chain(), Ledger())
    buddies.set_bad(1, 0b0001)
    assert free(buddies) == [(GPU, 5), (SWITCH, 3), (NODE, 0)]
    assert (buddies.open, buddies.sound) == ([8, 4, 2, 1], [7, 3, 1, 0])
    buddies.set_bad(1, 0)
    assert free(buddies) == [(RACK, 0)]


# Promises


@pytest.mark.parametrize(
    ("promised", "level", "short"),
    [
        ({"a": {RACK: 2}}, "rack", 1),
        ({"a": {NODE: 2}, "b": {NODE: 3}}, "node", 3),
        ({"a": {RACK: 1}, "b": {GPU: 1}}, "gpu", 1),
        ({"a": {NODE: 1}, "b": {SWITCH: 2}, "c": {GPU: 2}}, "gpu", 2),
    ],
)
def test_more_than_there_is_is_not_promised(promised: dict[str, dict[int, int]], level: str, short: int) -> None:
    with pytest.raises(ClusterError, match=f"exceed chain rack at level {level} by {short}:"):
        hive(promised)


def test_a_pinned_cell_is_nobody_elses() -> None:
    pins = (Pin("mine", CellKind(0, NODE), 0),)
    everything = Reservation("b", {CellKind(0, NODE): 1})
    promised = Hive(Territory((chain(),), (Reservation("a", pinned=("mine",)), everything), pins))
    assert gpus(promised.admit(gang("b", 4, tenant="b"))) == {4, 5, 6, 7}
    assert gpus(promised.admit(Gang("a", "a", (4,), pin="mine"))) == {0, 1, 2, 3}
    promised.end("a")
    agree(promised)
    with pytest.raises(ClusterError, match="exceed chain rack at level rack by 1:"):
        Hive(
            Territory((chain(),), (Reservation("a", pinned=("mine",)), Reservation("b", {CellKind(0, RACK): 1})), pins)
        )


def test_a_tenant_gets_its_whole_cell_however_others_are_spread() -> None:
    both = hive({"a": {SWITCH: 2}, "b": {NODE: 1}})
    first, second = both.admit(gang("first", 2)), both.admit(gang("second", 2))
    assert gpus(first) | gpus(second) == {0, 1, 2, 3}
    assert gpus(both.admit(gang("whole", 4, tenant="b"))) == {4, 5, 6, 7}


# Gangs


def test_a_gang_gets_gpus_close_together_in_the_fullest_cell_that_will_do() -> None:
    mine = hive({"a": {NODE: 2}})
    assert gpus(mine.admit(gang("one", 1))) == {0}
    assert gpus(mine.admit(gang("pair", 2))) == {2, 3}
    assert gpus(mine.admit(gang("another", 1))) == {1}
    assert gpus(mine.admit(gang("four", 4))) == {4, 5, 6, 7}
    assert isinstance(mine.admit(gang("more", 1)), Waits)


def test_small_cells_of_a_tenant_are_joined_for_a_larger_member() -> None:
    mine = hive({"a": {GPU: 2}, "b": {NODE: 1}})
    answer = mine.admit(gang("pair", 2))
    assert answer == Placed((Seat(0, 0, 0b0011, GPU),))
    assert isinstance(mine.admit(gang("more", 1)), Waits)
    agree(mine)
    assert gpus(mine.admit(gang("whole", 4, tenant="b"))) == {4, 5, 6, 7}
    mine.end("pair")
    assert isinstance(mine.admit(gang("more", 1)), Placed)


@pytest.mark.parametrize(
    ("cells", "members", "largest"),
    [
        ({NODE: 1}, (5,), 4),
        ({SWITCH: 1}, (2, 1), 2),
        ({SWITCH: 1, GPU: 1}, (2, 2), 2),
        ({RACK: 1}, (4, 4, 1), 4),
        ({GPU: 2}, (3,), 2),  # two of them side by side
    ],
)
def test_who_can_never_be_placed_is_told_the_largest_that_fits(
    cells: dict[int, int], members: tuple[int, ...], largest: int
) -> None:
    mine = hive({"a": cells})
    answer = mine.plan(gang("huge", members))
    assert isinstance(answer, Never)
    assert answer.largest == largest
    assert isinstance(mine.plan(gang("fits", largest)), Placed)


def test_who_asks_for_what_its_tenant_has_not_is_told_so() -> None:
    two = Territory((chain(), chain(name="other", accelerator="k80")), (Reservation("a", {CellKind(0, NODE): 1}),))
    for wrong in (
        Gang("g", "nobody", (1,)),
        Gang("g", "a", (1,), accelerator="k80"),
        Gang("g", "a", (1,), accelerator="none"),
        Gang("g", "a", (1,), pin="none"),
        Gang("g", "a", ()),
        Gang("g", "a", (0,)),
        Gang("g", "a", (1,), priority=1001),
    ):
        with pytest.raises(JobError):
            Hive(two).admit(wrong)


# Guests


def test_guests_stay_away_from_the_cells_of_tenants() -> None:
    mine = hive({"a": {NODE: 1}})
    assert gpus(mine.admit(gang("a", 1))) == {0}
    assert gpus(mine.admit(guest("first", 1))) == {4}
    assert gpus(mine.admit(guest("second", 3))) == {5, 6, 7}
    assert gpus(mine.admit(guest("third", 2))) == {2, 3}  # only here something is left
    assert isinstance(mine.admit(guest("fourth", 2)), Waits)


def test_guests_leave_for_whoever_has_a_guarantee_and_as_few_as_possible() -> None:
    mine = hive({"a": {SWITCH: 3}})
    mine.admit(guest("large", 4))
    mine.admit(guest("small", 1))
    assert gpus(mine.admit(gang("first", 2))) == {6, 7}
    answer = mine.admit(gang("second", 2))
    assert isinstance(answer, Preempts)
    assert (gpus(answer), answer.victims) == ({4, 5}, ("small",))
    assert mine.is_being_preempted("small")
    assert not mine.is_being_preempted("large")
    assert mine.admit(guest("third", 1)) == Waits("not enough GPUs are idle")  # the one that is left is kept
    mine.end("small")
    assert mine.admit(gang("second", 2)) == Placed(answer.seats)


# Preemption inside a tenant's cells


@pytest.mark.parametrize(
    ("running", "asks", "victims"),
    [
        ([(4, 0), (2, 0), (2, 0)], 4, {"0"}),  # one that is large rather than two that are small
        ([(2, 1), (2, 1), (4, 0)], 4, {"2"}),
        ([(2, 1), (1, 1), (1, 1), (4, 3)], 2, {"0"}),
        ([(1, 0), (3, 1), (4, 3)], 1, {"0"}),  # of two that would do the smaller one, whose priority is lower, too
        ([(4, 3), (4, 3)], 1, None),  # only equals
    ],
)
def test_few_victims_are_chosen(running: list[tuple[int, int]], asks: int, victims: set[str] | None) -> None:
    mine = hive({"a": {NODE: 2}})
    for number, (size, priority) in enumerate(running):
        assert isinstance(mine.admit(gang(str(number), size, priority)), Placed)
    answer = mine.plan(gang("asks", asks, 3))
    assert victims is None or isinstance(answer, Preempts)
    assert (set(answer.victims) if isinstance(answer, Preempts) else None) == victims


def test_a_lazy_gang_goes_on_without_its_guarantee() -> None:
    mine = hive({"a": {NODE: 1}})
    mine.admit(gang("lazy", 4, lazy=True))
    assert mine.admit(gang("higher", 4, 1)) == Placed((Seat(0, 1, 0b1111, NODE),), downgraded=("lazy",))
    assert mine.record("lazy").downgraded
    assert not mine.is_being_preempted("lazy")
    agree(mine)


def test_a_lazy_gang_leaves_when_its_gpus_are_needed() -> None:
    both = hive({"a": {NODE: 1}, "b": {NODE: 1}})
    both.admit(gang("lazy", 4, lazy=True))
    both.admit(gang("higher", 4, 1))
    answer = both.admit(gang("neighbour", 4, tenant="b"))
    assert isinstance(answer, Preempts)
    assert (gpus(answer), answer.victims) == ({0, 1, 2, 3}, ("lazy",))


def test_nobody_preempts_across_tenants() -> None:
    both = hive({"a": {NODE: 1}, "b": {NODE: 1}})
    both.admit(gang("low", 4, 0, tenant="b"))
    both.admit(gang("first", 4, 5))
    assert isinstance(both.plan(gang("second", 1, 5)), Waits)


def test_who_gives_up_waiting_gives_the_gpus_back() -> None:
    mine = hive({"a": {NODE: 1}})
    mine.admit(gang("low", 3))
    before = snapshot(mine)
    answer = mine.admit(gang("higher", 4, 1))
    assert isinstance(answer, Preempts)
    assert isinstance(mine.admit(gang("next", 1)), Waits)  # the fourth is kept
    mine.end("higher")
    agree(mine)
    assert not mine.is_being_preempted("low")
    after = snapshot(mine)
    assert {**after["roster"], "_next": 0} == {**before["roster"], "_next": 0}
    assert after["estate"] == before["estate"]
    assert gpus(mine.admit(gang("next", 1))) == {3}


def test_a_higher_gang_takes_the_place_of_one_that_waits() -> None:
    mine = hive({"a": {NODE: 1}})
    mine.admit(gang("low", 4))
    mine.admit(gang("middle", 4, 1))
    answer = mine.admit(gang("high", 4, 2))
    assert answer == Preempts((Seat(0, 0, 0b1111, NODE),), ("low",), cancelled=("middle",))
    mine.end("low")
    assert isinstance(mine.admit(gang("high", 4, 2)), Placed)
    assert "middle" not in mine.roster.number


@pytest.mark.parametrize("first", ["lazy", "firm"])
def test_a_lazy_and_a_firm_gang_in_one_cell_both_make_room(first: str) -> None:
    mine = hive({"a": {NODE: 1}})
    for name in sorted(("lazy", "firm"), key=lambda name: name != first):
        mine.admit(gang(name, 2, lazy=name == "lazy"))
    answer = mine.admit(gang("higher", 4, 1))
    agree(mine)
    assert isinstance(answer, Preempts)
    assert "firm" in answer.victims


def test_a_victim_with_cells_elsewhere_keeps_them_until_it_leaves() -> None:
    both = hive({"a": {NODE: 2}, "b": {NODE: 1}}, racks=2)
    both.admit(gang("wide", (4, 4)))
    both.set_bad(0, 2, 0b0001)
    both.set_bad(0, 3, 0b0001)
    assert isinstance(both.admit(gang("higher", 4, 1)), Preempts)
    agree(both)


# Bad hardware


def test_doomed_cells_appear_and_vanish_with_the_hardware() -> None:
    both = hive({"a": {NODE: 1}, "b": {SWITCH: 2}})
    node, switch = CellKind(0, NODE), CellKind(0, SWITCH)
    assert (both.doomed("a"), both.doomed("b")) == ({}, {})
    both.set_bad(0, 0, 0b0001)
    assert (both.doomed("a"), both.doomed("b")) == ({}, {switch: 1})
    both.set_bad(0, 1, 0b1000)
    assert (both.doomed("a"), both.doomed("b")) == ({node: 1}, {switch: 1})
    both.set_bad(0, 0, 0)
    assert both.doomed("a") == {}
    both.set_bad(0, 1, 0)
    assert (both.doomed("a"), both.doomed("b")) == ({}, {})


def test_whoever_runs_on_hardware_that_goes_bad_goes_on_and_nobody_else_is_put_there() -> None:
    mine = hive({"a": {NODE: 1}})
    mine.admit(gang("runs", 1))
    mine.set_bad(0, 0, 0b1111)
    assert isinstance(mine.admit(gang("next", 1)), Waits)
    assert isinstance(mine.admit(gang("runs", 1)), Placed)
    mine.end("runs")
    assert gpus(mine.admit(gang("next", 1))) == {4}


def test_nobody_starts_on_hardware_that_went_bad_while_it_waited() -> None:
    mine = hive({"a": {NODE: 1}})
    mine.admit(gang("low", 4))
    assert gpus(mine.admit(gang("higher", 4, 1))) == {0, 1, 2, 3}
    mine.set_bad(0, 0, 0b1111)
    mine.end("low")
    assert gpus(mine.admit(gang("higher", 4, 1))) == {4, 5, 6, 7}


def test_making_a_lazy_gang_leave_dooms_no_cell_that_was_good() -> None:
    both = hive({"a": {GPU: 2}, "b": {SWITCH: 1}}, fanout=(1, 2, 2, 1))
    assert gpus(both.admit(gang("lazy", 1, lazy=True))) == {0}
    both.set_bad(0, 0, 0b0100)
    assert both.doomed("a") == {}
    assert gpus(both.plan(gang("higher", (1, 1), 1))) == {0, 1}


@pytest.mark.parametrize("asks", ["joined cells", "one cell on suggested nodes"])
def test_nobody_takes_the_last_good_hardware_that_was_promised_to_others(asks: str) -> None:
    both = hive({"a": {GPU: 2}, "b": {SWITCH: 1}}, fanout=(1, 2, 3, 1))
    both.set_bad(0, 0, 0b101000)  # GPUs 2 and 4 are for a, 0 and 1 for b
    assert both.doomed("b") == {}
    if asks == "joined cells":
        answer = both.admit(gang("pair", 2))
        assert isinstance(answer, Waits) or gpus(answer, node_gpus=6) == {2, 4}
    else:
        assert gpus(both.admit(gang("one", 1), ["rack node 0"]), node_gpus=6) <= {2, 4}
    assert both.doomed("b") == {}
    assert gpus(both.admit(gang("b", 2, tenant="b")), node_gpus=6) == {0, 1}


def test_a_gang_over_several_chains_binds_no_cell_that_it_does_not_use() -> None:
    chains = (chain(fanout=(1, 1, 1, 2)), chain(name="other", fanout=(1, 1, 1, 1)))
    mine = Hive(Territory(chains, (Reservation("a", {CellKind(0, NODE): 2, CellKind(1, NODE): 1}),)))
    mine.set_bad(0, 1, 1)
    answer = mine.admit(Gang("wide", "a", (1, 1), mixed=True))
    assert answer == Placed((Seat(0, 0, 1, NODE), Seat(1, 0, 1, NODE)))
    agree(mine)


# Crashes


def test_everybody_is_found_again_after_a_crash() -> None:
    promised: dict[str, dict[int, int]] = {"a": {NODE: 1}, "b": {SWITCH: 1}}
    before, after = hive(promised), hive(promised)
    asked = [gang("a", 3), gang("b", 2, tenant="b"), guest("guest", 2)]
    answers = [before.admit(each) for each in asked]
    for each, answer in zip(asked, answers, strict=True):
        assert isinstance(answer, Placed)
        assert after.restore(each, answer.seats)
    agree(after)
    assert snapshot(after) == snapshot(before)


def test_who_is_covered_no_more_goes_on_without_a_guarantee() -> None:
    before, after = hive({"a": {NODE: 2}}), hive({"a": {NODE: 1}, "b": {NODE: 1}})
    for name in ("first", "second"):
        answer = before.admit(gang(name, 4))
        assert isinstance(answer, Placed)
        assert after.restore(gang(name, 4), answer.seats) == (name == "first")
    assert after.record("second").downgraded
    answer = after.admit(gang("whole", 4, tenant="b"))
    assert isinstance(answer, Preempts)
    assert answer.victims == ("second",)
    agree(after)


def test_the_same_requests_get_the_same_answers_whatever_was_asked_between() -> None:
    requests = [
        gang("one", 1), guest("guest", 3, 1), gang("lazy", 2, lazy=True), gang("b", 2, tenant="b"),
        gang("two", (2, 1), 1), gang("three", 4, 2), gang("four", (2, 2), 3),
    ]  # fmt: skip
    quiet, asked = (hive({"a": {NODE: 2}, "b": {SWITCH: 1}}, racks=2) for _ in range(2))
    for request in requests:
        for other in reversed(requests):
            asked.plan(other)
        assert asked.admit(request) == quiet.admit(request)
    assert snapshot(asked) == snapshot(quiet)
