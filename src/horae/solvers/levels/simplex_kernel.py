"""The simplex method for programs of many small classes that only the GPU types tie together, compiled.

Each class has two rows of its own, its time and its speed, so a basis is two `keys` per class and as many further
columns as there are types. Given the prices of the types a class is solved in closed form (`pricing_kernel`): its keys
are an edge of its hull. A step costs a look at some classes and the inverse of a matrix of the size of the number of
types; the cost of a step does not grow with the number of jobs. For the cache of compiled code see `pricing_kernel`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from horae.model.arrays import Floats, Ints
from horae.solvers.levels.pricing_kernel import (
    HAIR,
    LevelData,
    part,
    proper,
    support,
)

REACHED = 1e-14  # a level is feasible if at most this part of the GPUs is missing
_LOOK = 12  # classes examined before the best column among them is taken
_LOOKS_MIN, _LOOKS_EACH = 1_000_000, 50  # classes examined, in total and per class, to allocate what is left
_FEW = 2048  # classes; up to this number all are examined
_SLACK = 0.02  # beyond it: the classes that would move if prices differed by such a part
_STALLED = 50  # steps without progress, after which a rule that cannot cycle is used
_FRESH = 200  # steps, after which values are recomputed


class LevelBasis(NamedTuple):
    key: Ints  # by class: two columns
    value: Floats
    row: Ints  # by type: a further column, of this class; -1: of no class
    column: Ints  # if of no class: the type whose GPUs are idle, or, the last, the part of all types that is
    amount: Floats
    prices: Floats  # by type; at a level they add up to 1


@part
def _time(column: int, last: int) -> float:
    """The time a column takes: 1 for all but the last, running faster than asked."""
    return 0.0 if column == last else 1.0


@part
def _parts(board: LevelData, basis: LevelBasis, row: int, column: int) -> tuple[float, float]:
    """A column of a class as a combination of its keys: the same time, the same speed."""
    last = board.speed.shape[1] - 1
    one, two = basis.key[row, 0], basis.key[row, 1]
    time_one, time_two = _time(one, last), _time(two, last)
    speed_one, speed_two = board.speed[row, one], board.speed[row, two]
    time, speed = _time(column, last), board.speed[row, column]
    width = time_one * speed_two - time_two * speed_one
    return (time * speed_two - speed * time_two) / width, (speed * time_one - time * speed_one) / width


@part
def _net(board: LevelData, basis: LevelBasis, row: int, column: int, use: Floats) -> float:
    """The GPUs of each type that a column takes net of the keys that it replaces, and its gain."""
    for kind in range(len(use)):
        use[kind] = 1.0 if row < 0 and column in (kind, len(use)) else 0.0
    if row < 0:
        return 0.0
    one, two = basis.key[row, 0], basis.key[row, 1]
    part_one, part_two = _parts(board, basis, row, column)
    use[board.kind[row, column]] += board.use[row, column]
    use[board.kind[row, one]] -= board.use[row, one] * part_one
    use[board.kind[row, two]] -= board.use[row, two] * part_two
    return board.gain[row, column] - part_one * board.gain[row, one] - part_two * board.gain[row, two]


@part
def _invert(matrix: Floats, inverse: Floats) -> bool:
    """Invert by Gauss-Jordan elimination with pivoting; the matrix is overwritten."""
    size = len(matrix)
    for index in range(size):
        for column in range(size):
            inverse[index, column] = 1.0 if index == column else 0.0
    for index in range(size):
        pivot = index
        for other in range(index + 1, size):
            if abs(matrix[other, index]) > abs(matrix[pivot, index]):
                pivot = other
        if abs(matrix[pivot, index]) < 1e-300:
            return False
        for column in range(size):
            matrix[index, column], matrix[pivot, column] = matrix[pivot, column], matrix[index, column]
            inverse[index, column], inverse[pivot, column] = inverse[pivot, column], inverse[index, column]
        scale = 1 / matrix[index, index]
        for column in range(size):
            matrix[index, column] *= scale
            inverse[index, column] *= scale
        for other in range(size):
            factor = 0.0 if other == index else matrix[other, index]
            if factor != 0.0:
                for column in range(size):
                    matrix[other, column] -= factor * matrix[index, column]
                    inverse[other, column] -= factor * inverse[index, column]
    return True


@part
def price(board: LevelData, basis: LevelBasis, rest: float, inverse: Floats, matrix: Floats, use: Floats) -> bool:
    """The inverse of the further columns, net of keys, and the prices at which none of them gains anything."""
    size = len(basis.row)
    gains = np.zeros(size)
    for slot in range(size):
        gains[slot] = _net(board, basis, basis.row[slot], basis.column[slot], use)
        for kind in range(size):
            matrix[kind, slot] = use[kind]
        if rest == 0:
            gains[slot] = 1.0 if basis.row[slot] < 0 and basis.column[slot] == size else 0.0
    if not _invert(matrix, inverse):
        return False
    highest = 0.0
    for kind in range(size):
        basis.prices[kind] = 0.0
        for slot in range(size):
            basis.prices[kind] += gains[slot] * inverse[slot, kind]
        highest = max(highest, abs(basis.prices[kind]))
    for kind in range(size):
        if abs(basis.prices[kind]) < HAIR * highest:  # only rounding: a class that pays nothing else would follow it
            basis.prices[kind] = 0.0
    for slot in range(size):
        if basis.row[slot] < 0 and basis.column[slot] < size:
            basis.prices[basis.column[slot]] = 0.0
    return True


@part
def settle(board: LevelData, basis: LevelBasis, asked: Floats, rest: float, inverse: Floats) -> float:
    """Recompute all values and return the least of them; the matrix must have been inverted for these columns."""
    size, last = len(basis.row), board.speed.shape[1] - 1
    left = np.ones(size)
    worst = np.inf
    for row in range(len(asked)):
        one, two = basis.key[row, 0], basis.key[row, 1]
        time_one, time_two = _time(one, last), _time(two, last)
        speed_one, speed_two = board.speed[row, one], board.speed[row, two]
        width = time_one * speed_two - time_two * speed_one
        basis.value[row, 0] = (speed_two - asked[row] * time_two) / width
        basis.value[row, 1] = (asked[row] * time_one - speed_one) / width
        left[board.kind[row, one]] -= board.use[row, one] * basis.value[row, 0]
        left[board.kind[row, two]] -= board.use[row, two] * basis.value[row, 1]
    for slot in range(size):
        basis.amount[slot] = 0.0
        for kind in range(size):
            basis.amount[slot] += inverse[slot, kind] * left[kind]
        row = basis.row[slot]
        if row >= 0:
            one, two = _parts(board, basis, row, basis.column[slot])
            basis.value[row, 0] -= one * basis.amount[slot]
            basis.value[row, 1] -= two * basis.amount[slot]
        if row >= 0 or basis.column[slot] < size or rest > 0:
            worst = min(worst, basis.amount[slot])
    for row in range(len(asked)):
        worst = min(worst, basis.value[row, 0], basis.value[row, 1])
    return worst


@part
def begin(board: LevelData, basis: LevelBasis, prices: Floats, asked: Floats) -> None:
    """Start with every class at its cheapest; the most over-used type sets the part that is idle everywhere."""
    size = len(basis.row)
    used = np.zeros(size)
    for row in range(len(asked)):
        slow, fast = support(board, prices, row, asked[row])
        basis.key[row, 0], basis.key[row, 1] = slow, fast
        width = board.speed[row, fast] - board.speed[row, slow]
        part = (asked[row] - board.speed[row, slow]) / width if width > 0 else 0.0
        used[board.kind[row, slow]] += board.use[row, slow] * (1 - part)
        used[board.kind[row, fast]] += board.use[row, fast] * part
    scarcest = 0
    for kind in range(size):
        basis.row[kind], basis.column[kind] = -1, kind
        if used[kind] > used[scarcest]:
            scarcest = kind
    basis.column[scarcest] = size


@part
def _better(
    board: LevelData, basis: LevelBasis, prices: Floats, row: int, rest: float, slack: float
) -> tuple[float, int]:
    """How much the best column of a class gains over its keys, and which that is.

    -1 if none does; or, with slack, if none would at prices that differ by such a part.
    """
    options = board.speed.shape[1] - 2
    one, two = basis.key[row, 0], basis.key[row, 1]
    time_one, time_two = _time(one, options + 1), _time(two, options + 1)
    speed_one, speed_two = board.speed[row, one], board.speed[row, two]
    cost_one = prices[board.kind[row, one]] * board.use[row, one]
    cost_two = prices[board.kind[row, two]] * board.use[row, two]
    gain_one = rest * board.gain[row, one]
    gain_two = rest * board.gain[row, two]
    width = time_one * speed_two - time_two * speed_one
    time = ((gain_one - cost_one) * speed_two - (gain_two - cost_two) * speed_one) / width
    steep = (time_one * (gain_two - cost_two) - time_two * (gain_one - cost_one)) / width
    hair = (4 * HAIR - slack) * (cost_one + cost_two + gain_one + gain_two + abs(time) + abs(steep))
    best, found = -np.inf, -1
    for column in range(options + 1 if rest == 0 else options + 2):
        speed = board.speed[row, column]
        if column in (one, two) or (column < options and speed <= 0):
            continue
        cost = prices[board.kind[row, column]] * board.use[row, column]
        gain = rest * board.gain[row, column]
        more = gain - cost - steep * speed - time * _time(column, options + 1)
        if more > best and more > hair + 4 * HAIR * (cost + gain) and not _is_in(basis, row, column):
            best, found = more, column
    return best, found


@part
def _is_in(basis: LevelBasis, row: int, column: int) -> bool:
    found = False
    for slot in range(len(basis.row)):
        found = found or (basis.row[slot] == row and basis.column[slot] == column)
    return found


@part
def _gather(board: LevelData, basis: LevelBasis, prices: Floats, rest: float, near: Ints) -> int:
    """Collect the classes that may move at prices near these, and count them; where there are few, all of them."""
    classes, count = len(board.speed), 0
    slack = np.inf if classes <= _FEW else _SLACK
    for row in range(classes):
        if slack == np.inf or _better(board, basis, prices, row, rest, slack)[1] >= 0:
            near[count] = row
            count += 1
    return count


@part
def _entering(
    board: LevelData, basis: LevelBasis, rest: float, near: Ints, cursor: Ints, careful: bool
) -> tuple[int, int]:
    """The class and column that gain most, among a few of those near from the cursor on; -2 if there is none.

    The cursor: where to look next, how many there are, and how many were examined so far.
    """
    prices = basis.prices
    lowest = 0
    for kind in range(len(prices)):
        if prices[kind] < prices[lowest]:
            lowest = kind
    if prices[lowest] < 0:
        return -1, lowest
    looked, best, found, found_column = 0, 0.0, -2, -1
    if careful or cursor[0] >= cursor[1]:
        cursor[0] = 0
    while looked < cursor[1] and not (found >= 0 and (careful or looked >= _LOOK)):
        row = near[cursor[0]]
        more, column = _better(board, basis, prices, row, rest, 0.0)
        if column >= 0 and more > best:
            best, found, found_column = more, row, column
        looked += 1
        cursor[0] += 1
        if cursor[0] == cursor[1]:
            cursor[0] = 0
    cursor[2] += looked
    return found, found_column


@part
def _key_change(
    board: LevelData, basis: LevelBasis, at: int, column: tuple[int, int], change: Floats
) -> tuple[float, float]:
    """How the keys of a class change when a column enters and the further columns give way to it."""
    one, two = 0.0, 0.0
    if column[0] == at:
        part_one, part_two = _parts(board, basis, at, column[1])
        one, two = -part_one, -part_two
    for slot in range(len(change)):
        if basis.row[slot] == at:
            part_one, part_two = _parts(board, basis, at, basis.column[slot])
            one += part_one * change[slot]
            two += part_two * change[slot]
    return one, two


@part
def _nearer(step: float, weight: float, best: float, best_weight: float, careful: bool) -> bool:
    """Whether to take this limit: of equal ones the first if careful, else the one with the best pivot."""
    if step < best - 1e-14:
        return True
    return not careful and step < best + 1e-14 and weight > best_weight


@part
def _leaving(
    board: LevelData, basis: LevelBasis, column: tuple[int, int], change: Floats, rest: float, careful: bool
) -> tuple[float, int, int, int]:
    """The length of the step and what limits it: a slot, or -1 and a class and which of its keys."""
    size = len(change)
    step, weight, slot_out, row_out, key_out = np.inf, 0.0, -1, -1, -1
    for slot in range(size + 1):
        row = column[0] if slot == size else basis.row[slot]
        if slot < size and change[slot] > HAIR and (row >= 0 or basis.column[slot] < size or rest > 0):
            far = max(basis.amount[slot], 0.0) / change[slot]
            if _nearer(far, change[slot], step, weight, careful):
                step, weight, slot_out, row_out = min(far, step), change[slot], slot, -1
        if row < 0:
            continue
        moves = _key_change(board, basis, row, column, change)
        for key in range(2):
            if moves[key] < -HAIR:
                far = max(basis.value[row, key], 0.0) / -moves[key]
                if _nearer(far, -moves[key], step, weight, careful):
                    step, weight, slot_out, row_out, key_out = min(far, step), -moves[key], -1, row, key
    return step, slot_out, row_out, key_out


@part
def _exchange(
    board: LevelData, basis: LevelBasis, column: tuple[int, int], change: Floats, out: tuple[float, int, int, int]
) -> bool:
    """Carry out a step: update the values and exchange one column; return whether the prices change."""
    step, slot_out, row_out, key_out = out
    size = len(change)
    for slot in range(size + 1):
        row = column[0] if slot == size else basis.row[slot]
        seen = row < 0
        for other in range(slot):
            seen = seen or basis.row[other] == row
        if not seen:
            one, two = _key_change(board, basis, row, column, change)
            basis.value[row, 0] += step * one
            basis.value[row, 1] += step * two
    for slot in range(size):
        basis.amount[slot] -= step * change[slot]
    shared = slot_out >= 0
    if slot_out < 0:
        # The key that leaves is replaced by the best suited column of its class.
        best = abs(_parts(board, basis, row_out, column[1])[key_out]) if column[0] == row_out else 0.0
        for slot in range(size):
            if basis.row[slot] == row_out:
                shared = True
                part = abs(_parts(board, basis, row_out, basis.column[slot])[key_out])
                if part > best:
                    best, slot_out = part, slot
        if slot_out < 0:
            basis.key[row_out, key_out] = column[1]
            basis.value[row_out, key_out] = step
            return shared
        basis.key[row_out, key_out] = basis.column[slot_out]
        basis.value[row_out, key_out] = basis.amount[slot_out]
    basis.row[slot_out], basis.column[slot_out], basis.amount[slot_out] = column[0], column[1], step
    return True


@part
def idle_part(basis: LevelBasis) -> float:
    """The part of every type that is not needed at the level; negative where the level is infeasible."""
    size = len(basis.row)
    for slot in range(size):
        if basis.row[slot] < 0 and basis.column[slot] == size:
            return basis.amount[slot]
    return 0.0


@part
def improve(board: LevelData, basis: LevelBasis, guide: Floats, asked: Floats, rest: float) -> bool:
    """Improve a feasible basis: at a level until it is feasible, or to the best; otherwise to the most gain.

    Classes that may move at the prices of the guide are tried before the others.
    """
    size, classes = len(basis.row), len(asked)
    inverse, matrix = np.zeros((size, size)), np.zeros((size, size))
    use, change = np.zeros(size), np.zeros(size)
    near, cursor = np.zeros(classes, dtype=np.int64), np.zeros(3, dtype=np.int64)
    cursor[1] = _gather(board, basis, guide, rest, near)
    stalled, changed, gathered = 0, True, cursor[1] == classes
    fresh, looks_max = _FRESH + classes, _LOOKS_MIN + _LOOKS_EACH * classes
    for step in range(1000 + 100 * (classes + size)):
        if changed and not price(board, basis, rest, inverse, matrix, use):
            return False
        if step % fresh == fresh - 1 or (rest == 0 and idle_part(basis) >= 0):
            settle(board, basis, asked, rest, inverse)
            if rest == 0 and idle_part(basis) >= -REACHED:
                return True
        careful = stalled > _STALLED
        row, column = _entering(board, basis, rest, near, cursor, careful)
        if row == -2 and not gathered:
            cursor[1] = _gather(board, basis, basis.prices, rest, near)
            gathered, changed = True, False
            continue
        if row == -2 or (rest > 0 and cursor[2] > looks_max):  # every basis is feasible; the last gains may be forgone
            settle(board, basis, asked, rest, inverse)
            return True
        gathered = cursor[1] == classes
        _net(board, basis, row, column, use)
        for slot in range(size):
            change[slot] = 0.0
            for kind in range(size):
                change[slot] += inverse[slot, kind] * use[kind]
        out = _leaving(board, basis, (row, column), change, rest, careful)
        if out[0] == np.inf:
            return False
        changed = _exchange(board, basis, (row, column), change, out)
        stalled = stalled + 1 if out[0] < 1e-13 else 0
    return False


@part
def adapt(board: LevelData, basis: LevelBasis, asked: Floats) -> None:
    """Adapt the basis of one level to another: classes off their edge are put on the right one; if need be, all are."""
    size, last = len(basis.row), board.speed.shape[1] - 1
    prices = proper(basis.prices)
    for row in range(len(asked)):
        one, two = basis.key[row, 0], basis.key[row, 1]
        slow = min(board.speed[row, one], board.speed[row, two])
        fast = max(board.speed[row, one], board.speed[row, two])
        off = asked[row] < slow or asked[row] > fast or last in (one, two)
        for slot in range(size):
            off = off and basis.row[slot] != row
        if off:
            basis.key[row, 0], basis.key[row, 1] = support(board, prices, row, asked[row])
    inverse, matrix, use = np.zeros((size, size)), np.zeros((size, size)), np.zeros(size)
    sound = price(board, basis, 0.0, inverse, matrix, use)
    if not sound or settle(board, basis, asked, 0.0, inverse) < -HAIR:
        begin(board, basis, prices, asked)
        price(board, basis, 0.0, inverse, matrix, use)
        settle(board, basis, asked, 0.0, inverse)
