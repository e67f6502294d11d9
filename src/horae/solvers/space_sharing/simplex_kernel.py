"""The program of `highs_master` as a kernel, for as many classes as a dense inverse is fast for.

It is the primal simplex method with an explicit inverse. Its columns are numbers: the slack of each row, t, the cells,
and then the pairs, which are written out only when they are examined. A step examines all cells and the pairs that were
best at the last full pricing; all are priced again when none of those gains, until at the end no pair gains.

Rows are the time of each class, the GPUs of each type and the level of each class, as there.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from horae.compiling import kernel
from horae.model.arrays import Bools, Floats, Ints
from horae.solvers.space_sharing.pricing_kernel import best_pairs

GAIN_MIN = 1e-9  # relative to the largest gain of a cell: minimum gain for a column to enter
_PIVOT_MIN = 1e-9  # less is rounding
_WITHIN = 1e-10  # of a right side: allowed excess of a row
_ENTRIES_MAX = 5  # of a pair; t has at most one entry per row
_ERROR = 1e-12  # error relative to a right side at which the inverse is recomputed
_FRESH = 100  # steps after which the amounts are checked
_PROGRESS_MIN = 1e-13  # less counts as none
_STALLED = 100  # steps without progress, plus two per row, after which it may be cycling

part = kernel()


class SharingData(NamedTuple):
    """Constant data, by cell; and by berth, place and partner's place."""

    row: Ints  # its class
    kind: Ints  # its GPU type
    time: Floats  # entries in the three rows
    use: Floats
    level: Floats
    cell: Ints
    kept: Floats
    possible: Bools


class RightHandSide(NamedTuple):
    """The objective and right sides of the program."""

    need: Floats  # by class, in units of t
    side: Floats  # by row
    aim: float  # value of t
    value: Floats  # by cell


class SharingBasis(NamedTuple):
    """By row: the number of the column that belongs to it, its amount, and the price of the row."""

    column: Ints
    amount: Floats
    price: Floats
    inverse: Floats


@part
def _places(board: SharingData, number: int) -> tuple[int, int, int]:
    """The berth of a pair and the places of its two cells."""
    places = board.cell.shape[1]
    return number // places // places, number // places % places, number % places


@part
def _write(board: SharingData, need: Floats, column: int, index: Ints, entry: Floats) -> int:
    """Write the rows and entries of a column, and return their number; a row that occurs twice counts twice."""
    classes = len(need)
    size = len(index) - _ENTRIES_MAX
    levels = size - classes
    if column < size:
        index[0], entry[0] = column, -1.0 if column >= levels else 1.0
        return 1
    if column == size:
        count = 0
        for number in range(classes):
            if need[number] > 0:
                index[count], entry[count] = levels + number, -need[number]
                count += 1
        return count
    cell = column - size - 1
    if cell < len(board.row):
        index[0], entry[0] = board.row[cell], board.time[cell]
        index[1], entry[1] = classes + board.kind[cell], board.use[cell]
        index[2], entry[2] = levels + board.row[cell], board.level[cell]
        return 3
    berth, first, second = _places(board, cell - len(board.row))
    one, other = board.cell[berth, first], board.cell[berth, second]
    index[0], entry[0] = board.row[one], board.time[one]
    index[1], entry[1] = classes + board.kind[one], board.use[one]
    index[2], entry[2] = levels + board.row[one], board.level[one] * board.kept[berth, first, second]
    index[3], entry[3] = board.row[other], board.time[other]
    index[4], entry[4] = levels + board.row[other], board.level[other] * board.kept[berth, second, first]
    return 5


@part
def _value(board: SharingData, task: RightHandSide, size: int, column: int) -> float:
    if column < size:
        return 0.0
    if column == size:
        return task.aim
    cell = column - size - 1
    if cell < len(board.row):
        return float(task.value[cell])
    berth, first, second = _places(board, cell - len(board.row))
    mine = task.value[board.cell[berth, first]] * board.kept[berth, first, second]
    return float(mine + task.value[board.cell[berth, second]] * board.kept[berth, second, first])


@part
def _change(basis: SharingBasis, index: Ints, entry: Floats, count: int, change: Floats) -> None:
    """By row: how much of its column is displaced by one unit of another."""
    for row in range(len(change)):
        change[row] = 0.0
        for number in range(count):
            change[row] += entry[number] * basis.inverse[row, index[number]]


@part
def _exchange(basis: SharingBasis, row: int, column: int, change: Floats, filled: Ints) -> None:
    """Replace the column of a row by another: update the inverse."""
    inverse = basis.inverse
    count = 0
    for other in range(len(change)):
        if inverse[row, other] != 0.0:
            inverse[row, other] /= change[row]
            filled[count] = other
            count += 1
    for other in range(len(change)):
        factor = change[other]
        if other != row and factor != 0.0:
            for number in range(count):
                inverse[other, filled[number]] -= factor * inverse[row, filled[number]]
    basis.column[row] = column


@part
def renew(board: SharingData, task: RightHandSide, basis: SharingBasis) -> float:
    """Recompute the inverse and all amounts, and return the least amount; -inf if these columns are no basis."""
    size = len(basis.column)
    levels = size - len(task.need)
    index, entry = np.empty(size + _ENTRIES_MAX, dtype=np.int64), np.empty(size + _ENTRIES_MAX)
    change, filled = np.empty(size), np.empty(size, dtype=np.int64)
    taken = np.zeros(size, dtype=np.bool_)
    columns = basis.column.copy()
    basis.inverse[:] = 0.0
    for row in range(size):
        basis.column[row] = row
        basis.inverse[row, row] = -1.0 if row >= levels else 1.0
    for column in columns:
        if column < size:
            taken[column] = True
    for column in columns:
        if column < size:
            continue
        _change(basis, index, entry, _write(board, task.need, column, index, entry), change)
        best, found = _PIVOT_MIN, -1
        for row in range(size):
            if not taken[row] and abs(change[row]) > best:
                best, found = abs(change[row]), row
        if found < 0:
            basis.column[:] = columns
            return -np.inf
        taken[found] = True
        _exchange(basis, found, column, change, filled)
    return _settle(task, basis)


@part
def _settle(task: RightHandSide, basis: SharingBasis) -> float:
    least = np.inf
    for row in range(len(task.side)):
        amount = 0.0
        for other in range(len(task.side)):
            amount += basis.inverse[row, other] * task.side[other]
        basis.amount[row] = amount
        least = min(least, amount)
    return least


@part
def _price(board: SharingData, task: RightHandSide, basis: SharingBasis) -> None:
    size = len(basis.column)
    basis.price[:] = 0.0
    for row in range(size):
        value = _value(board, task, size, basis.column[row])
        if value != 0.0:
            for other in range(size):
                basis.price[other] += value * basis.inverse[row, other]
    for row in range(size):
        if basis.column[row] < size:
            basis.price[basis.column[row]] = 0.0


@part
def _at_prices(board: SharingData, task: RightHandSide, price: Floats, gain: Floats, cost: Floats) -> float:
    """By cell, what its time adds and, with half of its GPUs, what it costs; and the largest gain."""
    classes = len(task.need)
    levels = len(price) - classes
    most = 0.0
    for cell in range(len(gain)):
        row = board.row[cell]
        gain[cell] = task.value[cell] - price[levels + row] * board.level[cell]
        cost[cell] = price[row] * board.time[cell] + price[classes + board.kind[cell]] * board.use[cell] / 2
        most = max(most, gain[cell])
    return most


@part
def _of_t(task: RightHandSide, price: Floats) -> float:
    """The net gain of one more unit of t."""
    levels = len(price) - len(task.need)
    more = task.aim
    for number in range(len(task.need)):
        more += price[levels + number] * task.need[number]
    return more


@part
def _best_alone(
    board: SharingData, task: RightHandSide, price: Floats, gain: Floats, cost: Floats, least: float
) -> tuple[float, int]:
    """The most that a column without a pair adds, if more than the least, and which that is; -1 for none."""
    size, classes = len(price), len(task.need)
    best, found = least, -1
    highest = task.aim
    for row in range(size):
        highest = max(highest, abs(price[row]))
    for row in range(size):
        more = price[row] if row >= size - classes else -price[row]
        if more > best and more > _ERROR * highest:
            best, found = more, row
    more = _of_t(task, price)
    if more > best and more > _ERROR * highest:
        best, found = more, size
    kind, use = board.kind, board.use
    for cell in range(len(gain)):
        more = gain[cell] - cost[cell] - price[classes + kind[cell]] * use[cell] / 2
        if more > best:
            best, found = more, size + 1 + cell
    return best, found


@part
def _entering(
    board: SharingData, task: RightHandSide, price: Floats, pairs: Ints, gain: Floats, cost: Floats, least: float
) -> tuple[float, int]:
    """The column that adds most, of all without pairs and of these pairs, and how much; -1 for none."""
    best, found = _best_alone(board, task, price, gain, cost, least)
    cell, kept = board.cell, board.kept
    places = cell.shape[1]
    for number in pairs:
        berth, first, second = number // places // places, number // places % places, number % places
        one, other = cell[berth, first], cell[berth, second]
        more = gain[one] * kept[berth, first, second] - cost[one]
        more += gain[other] * kept[berth, second, first] - cost[other]
        if more > best:
            best, found = more, len(price) + 1 + len(gain) + number
    return best, found


@part
def _leaving(amount: Floats, change: Floats) -> int:
    """The row whose column is used up first; of about equal ones the one with the best pivot (Harris)."""
    reach = np.inf
    for row in range(len(change)):
        if change[row] > _PIVOT_MIN:
            reach = min(reach, (max(amount[row], 0.0) + _WITHIN) / change[row])
    best, found = 0.0, -1
    for row in range(len(change)):
        if change[row] > max(best, _PIVOT_MIN) and max(amount[row], 0.0) <= reach * change[row]:
            best, found = change[row], row
    return found


@part
def _error(board: SharingData, task: RightHandSide, basis: SharingBasis, index: Ints, entry: Floats) -> float:
    """The largest error of the amounts in any row."""
    left = task.side.copy()
    for row in range(len(left)):
        for number in range(_write(board, task.need, basis.column[row], index, entry)):
            left[index[number]] -= entry[number] * basis.amount[row]
    worst = 0.0
    for row in range(len(left)):
        worst = max(worst, abs(left[row]), -basis.amount[row] / 10)
    return worst


@part
def _most(board: SharingData, task: RightHandSide, basis: SharingBasis, gain: Floats, cost: Floats) -> float:
    """The most that any column adds at these prices, once none of them has the wrong sign."""
    size = len(basis.column)
    for row in range(size):
        is_level = row >= size - len(task.need)
        basis.price[row] = min(basis.price[row], 0.0) if is_level else max(basis.price[row], 0.0)
    _at_prices(board, task, basis.price, gain, cost)
    _, most = best_pairs(gain, cost, board.cell, board.kept, board.possible, np.inf)
    for cell in range(len(gain)):
        half = basis.price[len(task.need) + board.kind[cell]] * board.use[cell] / 2
        most = max(most, gain[cell] - cost[cell] - half)
    return most


@part
def improve(board: SharingData, task: RightHandSide, basis: SharingBasis) -> float:
    """Improve a feasible basis to the optimum; return the most that any column would still add, inf on failure."""
    size, cells = len(basis.column), len(board.row)
    index, entry = np.empty(size + _ENTRIES_MAX, dtype=np.int64), np.empty(size + _ENTRIES_MAX)
    change, filled = np.empty(size), np.empty(size, dtype=np.int64)
    gain, cost = np.empty(cells), np.empty(cells)
    pairs = np.empty(0, dtype=np.int64)
    amount, price, inverse = basis.amount, basis.price, basis.inverse
    stalled, steps, looked = 0, 0, False
    _price(board, task, basis)
    for _ in range(1000 + 100 * size):
        least = GAIN_MIN * _at_prices(board, task, price, gain, cost)
        more, column = _entering(board, task, price, pairs, gain, cost, least)
        if column < 0 and not looked:
            pairs, _ = best_pairs(gain, cost, board.cell, board.kept, board.possible, least)
            looked = True
            continue
        if column < 0 or steps == _FRESH:
            renewed = steps > 0 and _error(board, task, basis, index, entry) > _ERROR
            if renewed and (
                renew(board, task, basis) < -10 * _WITHIN or _error(board, task, basis, index, entry) > _WITHIN
            ):
                return np.inf
            steps, looked = 0, looked and not renewed
            _price(board, task, basis)
            if column < 0 and not renewed:
                return _most(board, task, basis, gain, cost)
            continue
        _change(basis, index, entry, _write(board, task.need, column, index, entry), change)
        row = _leaving(amount, change)
        if row < 0 or stalled > _STALLED + 2 * size:
            break
        far = max(amount[row], 0.0) / change[row]
        for other in range(size):
            amount[other] -= far * change[other]
        _exchange(basis, row, column, change, filled)
        amount[row] = far
        for other in range(size):
            price[other] += more * inverse[row, other]
        stalled = stalled + 1 if far < _PROGRESS_MIN else 0
        steps += 1
        looked = False
    return np.inf


@part
def stay(basis: SharingBasis, held: Bools) -> bool:
    """Take t, which keeps its value, out of the basis, in exchange for the slack of a held level."""
    size = len(basis.column)
    levels = size - len(held)
    for row in range(size):
        if basis.column[row] == size:
            best, found = _PIVOT_MIN, -1
            for number in range(len(held)):
                if held[number] and abs(basis.inverse[row, levels + number]) > best:
                    best, found = abs(basis.inverse[row, levels + number]), levels + number
            if found < 0:
                return False
            change = -basis.inverse[:, found]
            _exchange(basis, row, found, change, np.empty(size, dtype=np.int64))
            basis.amount[row] = 0.0
            return True
    return False


@part
def raise_others(board: SharingData, task: RightHandSide, basis: SharingBasis, price_min: float, t: float) -> float:
    """From the best t on, hold the classes that limit the others, stage by stage, until all are; return the last t.

    Needs and sides are changed. They are consistent with each other and with t even if a class still rises at the end,
    because the kernel fails to progress.
    """
    classes, size = len(task.need), len(task.side)
    levels = size - classes
    held = np.zeros(classes, dtype=np.bool_)
    for _ in range(classes + 1):  # each stage holds a class, or it is the last
        if not task.need.any():
            break
        for row in range(size):
            t += basis.amount[row] if basis.column[row] == size else 0.0
        for number in range(classes):
            held[number] = task.need[number] > 0 and -basis.price[levels + number] > price_min
        stays = stay(basis, held)
        for number in range(classes):
            if task.need[number] > 0:
                task.side[levels + number] = task.need[number] * t
            if held[number]:
                task.need[number] = 0.0
        if not stays or (task.need.any() and improve(board, task, basis) == np.inf):
            break
    return t
