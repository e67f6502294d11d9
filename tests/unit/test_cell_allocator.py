"""Free cells as a buddy system, what may be promised, and how a tenant's cell is mapped onto a real one.

If not told otherwise, a rack is two nodes of two switches of two GPUs each.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from horae.cells.allocator import CellAllocator
from horae.cells.buddies import Buddies
from horae.cells.gpu_mapping import map_cell
from horae.cells.undo_log import UndoLog
from horae.model.arrays import Bools, Ints
from horae.model.chains import CellKind, Chain, Pin, Reservation, Territory
from horae.model.errors import BrokenInvariant, ClusterError

GPU, SWITCH, NODE, RACK = range(4)


def chain(racks: int = 1) -> Chain:
    nodes = tuple(f"node {index}" for index in range(racks * 2))
    return Chain("rack", "v100", ("gpu", "switch", "node", "rack"), (1, 2, 2, 2), nodes, NODE)


def allocator(tenants: Mapping[str, Mapping[int, int]], pins: tuple[Pin, ...] = ()) -> CellAllocator:
    """Of each tenant: how many cells, by level; pins are the first tenant's."""
    names = tuple(pin.name for pin in pins)
    reservations = tuple(
        Reservation(name, {CellKind(0, level): count for level, count in cells.items()}, () if number else names)
        for number, (name, cells) in enumerate(tenants.items())
    )
    return CellAllocator(Territory((chain(),), reservations, pins))


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
    buddies = Buddies(chain(), UndoLog())
    buddies.bind(level, cell)
    assert free(buddies) == left
    assert buddies.open == still_open
    buddies.unbind(level, cell)
    assert free(buddies) == [(RACK, 0)]
    assert buddies.open == [8, 4, 2, 1]


def test_buddies_join_only_when_all_of_them_are_back() -> None:
    buddies = Buddies(chain(), UndoLog())
    buddies.bind(GPU, 0)
    buddies.bind(GPU, 2)
    buddies.unbind(GPU, 0)
    assert free(buddies) == [(GPU, 3), (SWITCH, 0), (NODE, 1)]
    buddies.unbind(GPU, 2)
    assert free(buddies) == [(RACK, 0)]


def test_the_smallest_split_is_chosen_and_guests_are_spared() -> None:
    buddies = Buddies(chain(), UndoLog())
    buddies.bind(GPU, 0)
    nothing_due = [0, 0, 0, 0]
    assert buddies.choose(GPU, nothing_due) == 1
    assert buddies.choose(SWITCH, nothing_due) == 1
    buddies.set_guests(0, 0b0010)
    assert buddies.choose(GPU, nothing_due) == 2  # of the next switch
    buddies.set_guests(0, 0b1110)
    assert buddies.choose(GPU, nothing_due) == 4  # of the next node


def test_a_cell_is_bound_once() -> None:
    buddies = Buddies(chain(), UndoLog())
    buddies.bind(SWITCH, 0)
    for level in (GPU, SWITCH, NODE, RACK):
        with pytest.raises(BrokenInvariant, match="bound twice"):
            buddies.bind(level, 0)


def test_bad_hardware_is_no_free_cell_but_stays_open() -> None:
    buddies = Buddies(chain(), UndoLog())
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
        allocator(promised)


def test_a_pinned_cell_is_bound_for_good_and_no_other_tenants() -> None:
    pin = Pin("mine", CellKind(0, NODE), 0)
    found = allocator({"a": {}, "b": {NODE: 1}}, (pin,))
    assert found.bind_any(found.cells[1][0], NODE) == 1
    with pytest.raises(ClusterError, match="exceed chain rack at level rack by 1:"):
        allocator({"a": {}, "b": {RACK: 1}}, (pin,))
    with pytest.raises(ClusterError, match="'inside' overlaps another"):
        allocator({"a": {}}, (pin, Pin("inside", CellKind(0, GPU), 3)))


def test_what_was_tried_is_undone_as_a_whole() -> None:
    found = allocator({"a": {SWITCH: 2}, "b": {NODE: 1}})
    state, mine = found.chains[0], found.cells[0][0]
    before = (free(state.buddies), list(state.promised), list(mine.unbound))
    mark = found.ledger.mark()
    assert found.bind_any(mine, SWITCH) == 0
    assert not found.can_bind(mine, SWITCH, 2)  # it would split the node that the other tenant was promised
    found.bind_any(mine, SWITCH)
    found.ledger.undo(mark)
    assert (free(state.buddies), state.promised, mine.unbound) == before


# Mapping

SIZES = (1, 2, 4, 8)


def mapped(wanted: set[int], guests: set[int], fixed: Mapping[int, int] | None = None, top: int = 9) -> list[int]:
    """The mapping of eight GPUs where those that are fixed are where they are, and all others in their order."""
    present = np.arange(8)
    for gpu, real in (fixed or {}).items():
        other = int(np.flatnonzero(present == real)[0])
        present[[gpu, other]] = present[[other, gpu]]
    is_fixed, is_wanted, has_guest = (np.isin(np.arange(8), list(each)) for each in (fixed or {}, wanted, guests))
    return map_cell(SIZES, present, is_fixed, is_wanted, has_guest, top).tolist()


@pytest.mark.parametrize(
    ("wanted", "guests", "expected"),
    [
        (set(), {0, 1}, [0, 1, 2, 3, 4, 5, 6, 7]),
        ({0, 1}, {0, 1}, [2, 3, 0, 1, 4, 5, 6, 7]),
        ({0}, {0, 2, 3}, [1, 0, 2, 3, 4, 5, 6, 7]),
        ({0, 1, 2, 3}, {1}, [4, 5, 6, 7, 0, 1, 2, 3]),
        ({0, 1, 2, 3}, {0, 4, 5}, [2, 3, 1, 0, 4, 5, 6, 7]),
        ({0, 2}, {0, 1, 2, 3, 6}, [4, 5, 7, 6, 0, 1, 2, 3]),
    ],
)
def test_wanted_gpus_go_where_few_guests_are(wanted: set[int], guests: set[int], expected: list[int]) -> None:
    assert mapped(wanted, guests) == expected


def test_cells_above_a_level_stay_where_they_are() -> None:
    assert mapped({0, 1}, {0, 1, 2, 3}, top=2) == list(range(8))


@given(st.data())
def test_a_mapping_keeps_distances_and_what_is_fixed_and_costs_no_more_guests(data: st.DataObject) -> None:
    order = _shuffled(data, len(SIZES) - 1, 0)  # a mapping that former jobs have left behind
    draw = st.lists(st.booleans(), min_size=8, max_size=8).map(np.array)
    fixed, wanted, guests = data.draw(draw), data.draw(draw), data.draw(draw)
    wanted &= ~fixed
    found = map_cell(SIZES, order, fixed, wanted, guests, 9)
    assert sorted(found.tolist()) == list(range(8))
    assert (found[fixed] == order[fixed]).all()
    for one in range(8):
        for other in range(8):
            assert _distance(one, other) == _distance(int(found[one]), int(found[other]))
    if np.count_nonzero(wanted) == 1 and not fixed.any():
        assert bool(guests[found[wanted]].all()) == bool(guests.all())  # one GPU is never where a guest is in vain


def _shuffled(data: st.DataObject, level: int, first: int) -> Ints:
    """The GPUs of a cell, its children in any order."""
    if level == 0:
        return np.array([first])
    children = [_shuffled(data, level - 1, first + part * SIZES[level - 1]) for part in range(2)]
    return np.concatenate(children[::-1] if data.draw(st.booleans()) else children)


def _distance(one: int, other: int) -> int:
    return next(level for level, size in enumerate(SIZES) if one // size == other // size)


def test_the_distance_of_a_gpu_to_itself_is_none() -> None:
    nothing: Bools = np.zeros(8, dtype=bool)
    assert [_distance(0, other) for other in range(8)] == [0, 1, 2, 2, 3, 3, 3, 3]
    assert map_cell(SIZES, np.arange(8), nothing, nothing, nothing, 9).tolist() == list(range(8))
