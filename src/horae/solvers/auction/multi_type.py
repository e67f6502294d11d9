"""A partial-allocation auction (Themis, NSDI'20) over several GPU types: the bundle each app wins, and what it keeps.

Every app bids values for bundles of GPUs, the logarithm of 1 / rho with each of them. The allocation is the one with
the largest welfare, the sum of values. An app pays with a part of what it wins and keeps

    kept(i) = exp(welfare of the others with it - the best welfare of the others without it),

at most all of it. Both are hard to find in general: bundles are indivisible, and values need not be concave. Where the
offer is small a table of all its parts is exact; otherwise prices of the types decompose the problem, and branch and
bound closes the gap. Every answer comes with its proof: see `TypesOutcome`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from horae.model.arrays import Bools, Floats, Ints

if TYPE_CHECKING:
    from horae.solvers.auction.branch_and_bound_kernel import Settled
    from horae.solvers.auction.prices_kernel import Lots


import highspy

TYPES_MAX = 4
WIDTH_MAX = 0.01  # maximum distance between the bounds of what an app keeps
WELFARE_GAP_MAX = 0.01
EXACT_GAP = 1e-9  # rounding error of a gap of zero

_WIDTH = 0.98 * WIDTH_MAX  # the width requested: slightly less, because sums are rounded
_ROUNDING = 1e-13  # of sums
_NODES_MAX_WHOLE, _NODES_MAX_EACH = 4000, 1000  # of branch and bound
_STEPS_MAX = 40_000_000  # of a table: its cells x bundles
_CELLS_MAX = 4_000_000  # of all tables


class BundleBid(NamedTuple):
    """The bid of an app: row 0 is nothing; more GPUs are never worth less."""

    gpus: Ints  # by bundle and type
    value: Floats  # by bundle, finite


class TypesOutcome(NamedTuple):
    """The allocation and the payments, with what is proved of them.

    Proved, up to rounding: no allocation has a welfare above `welfare_bound`; and for the allocation that was chosen,
    optimal or not, the exact kept part of every app is within `kept_low` and `kept_high`. The exact part depends on the
    best welfare of the others without the app: any allocation of theirs bounds it from below, hence `kept_high`, and
    prices (after branching, or a solver's) bound it from above, hence `kept_low`. `payment_kept` is `kept_high`: it
    follows from the best allocation that was found for the others.
    """

    choice: Ints  # by app: the row of its bid
    payment_kept: Floats  # by app: the fraction of its bundle that it keeps
    welfare: float
    welfare_bound: float
    kept_low: Floats
    kept_high: Floats

    @property
    def is_exact(self) -> bool:
        """Whether no other allocation has a larger welfare."""
        return self.welfare_bound - self.welfare <= EXACT_GAP

    @property
    def width(self) -> float:
        """The largest distance between the bounds of what an app keeps."""
        return float((self.kept_high - self.kept_low).max(initial=0.0))

    @property
    def is_certified(self) -> bool:
        return self.width <= WIDTH_MAX and self.welfare_bound - self.welfare <= WELFARE_GAP_MAX


class _Brackets(NamedTuple):
    """Welfare and its bounds: of all apps, and of the others without each."""

    pick: Ints  # by app: its bundle in the lots
    welfare: float
    bound: float
    others: Floats
    others_bound: Floats


def settle_types(bids: Sequence[BundleBid], offer: Ints) -> TypesOutcome:
    """Settle the auction; the same bids in the same order give the same outcome.

    Which of several equal allocations is chosen is not specified.
    """
    offer = np.maximum(np.asarray(offer, dtype=np.int64), 0)
    if len(bids) == 0:
        nothing = np.empty(0)
        return TypesOutcome(np.empty(0, dtype=np.int64), nothing, 0.0, 0.0, nothing, nothing)
    lots, row = _lots(bids, offer)
    useful = np.minimum(offer, np.maximum.reduceat(lots.gpus, lots.start[:-1]).sum(axis=0))
    cells = float(np.prod(useful + 1.0))
    is_small = cells * len(row) <= _STEPS_MAX and cells * (len(bids) + 3) <= _CELLS_MAX
    found = _by_table(lots, useful) if is_small else _by_prices(lots, useful)
    high, low = _kept(lots, found, found.others), _kept(lots, found, found.others_bound)
    return TypesOutcome(row[found.pick], high, found.welfare, found.bound, low, high)


def _lots(bids: Sequence[BundleBid], offer: Ints) -> tuple[Lots, Ints]:
    """All bundles that fit into the offer, the small ones of each app first, and the row of each in its bid.

    Of bundles of equal worth the first is tried first, and the smallest leaves most to others.
    """
    from horae.solvers.auction.prices_kernel import Lots  # noqa: PLC0415  numba is slow to import

    app = np.repeat(np.arange(len(bids)), [len(bid.value) for bid in bids])
    row = np.concatenate([np.arange(len(bid.value)) for bid in bids])
    gpus = np.concatenate([bid.gpus for bid in bids]).astype(np.int64)
    value = np.concatenate([bid.value for bid in bids]).astype(np.float64)
    fits = np.flatnonzero((gpus <= offer).all(axis=1))
    part_of_offer = (gpus[fits] / np.maximum(offer, 1)).sum(axis=1)
    order = fits[np.lexsort((part_of_offer, app[fits]))]
    start = np.concatenate([[0], np.cumsum(np.bincount(app[order], minlength=len(bids)))])
    return Lots(start, gpus[order], value[order]), row[order]


def _kept(lots: Lots, found: _Brackets, others: Floats) -> Floats:
    """By app: the fraction kept if the others can have that welfare without it; a lower welfare is rounding."""
    less = found.welfare - lots.value[found.pick] - others
    kept: Floats = np.exp(np.where(less < -_ROUNDING * (1 + abs(found.welfare)), less, 0.0))
    return kept


def _by_table(lots: Lots, offer: Ints) -> _Brackets:
    from horae.solvers.auction.exact_table_kernel import settle_by_table  # noqa: PLC0415

    exact = settle_by_table(lots, offer)
    return _Brackets(exact.pick, exact.welfare, exact.welfare, exact.others, exact.others)


def _by_prices(lots: Lots, offer: Ints) -> _Brackets:
    from horae.solvers.auction.branch_and_bound_kernel import Effort, settle  # noqa: PLC0415

    whole = Effort(nodes_max=_NODES_MAX_WHOLE, beam=128, moves_max=128)
    each = Effort(nodes_max=_NODES_MAX_EACH, beam=256, moves_max=128)
    found = settle(lots, offer, lots.start[:-1].copy(), np.inf, _WIDTH, whole, each)
    if found.bound - found.welfare > WELFARE_GAP_MAX:
        table = Table(lots.start[:-1], lots.gpus, lots.value)
        better = bracket_by_program(table, offer, found.price, found.welfare, WELFARE_GAP_MAX / 2)
        known = better.pick if better.welfare > found.welfare else found.pick
        found = settle(lots, offer, known, min(better.bound, found.bound), _WIDTH, whole, each)
    return _tightened(lots, offer, found)


def _tightened(lots: Lots, offer: Ints, found: Settled) -> _Brackets:
    """Tighten the bounds of the apps where they are too far apart, by HiGHS."""
    brackets = _Brackets(found.pick, found.welfare, found.bound, found.others.copy(), found.others_bound.copy())
    high, low = _kept(lots, brackets, brackets.others), _kept(lots, brackets, brackets.others_bound)
    for app in np.flatnonzero(high - low > WIDTH_MAX).tolist():
        slack = -float(np.log1p(-_WIDTH / high[app])) / 2
        known, price = brackets.others[app], found.others_price[app]
        better = bracket_by_program(_table_without(lots, app), offer, price, known, slack)
        brackets.others[app] = max(known, better.welfare)
        brackets.others_bound[app] = max(min(brackets.others_bound[app], better.bound), brackets.others[app])
    return brackets


def _table_without(lots: Lots, app: int) -> Table:
    is_other: Bools = np.ones(len(lots.value), dtype=np.bool_)
    first, last = lots.start[app], lots.start[app + 1]
    is_other[first:last] = False
    start = np.concatenate([lots.start[:app], lots.start[app + 1 : -1] - (last - first)])
    return Table(start, lots.gpus[is_other], lots.value[is_other])


# The best welfare of an auction as an integer program for HiGHS, where the compiled branch and bound gives up.

_NODES_MAX = 20_000  # a wall-clock limit would make results depend on the machine
_OUT_MAX = 1e-6  # numerical error allowed in the solver's results


class Table(NamedTuple):
    """The bundles of all participating apps, one app after the other."""

    start: Ints  # by app
    gpus: Ints  # by bundle and type
    value: Floats


class WelfareBracket(NamedTuple):
    welfare: float  # -infinity: no allocation was found
    bound: float
    pick: Ints  # by app: its bundle


def bracket_by_program(table: Table, offer: Ints, price: Floats, known: float, slack: float) -> WelfareBracket:
    """An allocation and a bound no further apart than the slack, if possible. `known`: some welfare."""
    worth = table.value - table.gpus @ price
    best = np.maximum.reduceat(worth, table.start)
    app = np.searchsorted(table.start, np.arange(len(worth)), side="right") - 1
    gap = float(price @ offer + best.sum()) - known
    columns = np.flatnonzero(best[app] - worth <= max(gap, 0.0) + _OUT_MAX)
    solver = _solver(table, offer, columns, app[columns], slack)
    solver.run()
    bound = solver.getInfo().mip_dual_bound + _OUT_MAX
    taken = np.array(solver.getSolution().col_value)
    pick = np.full(len(table.start), -1, dtype=np.int64)
    if len(taken) == len(columns):
        chosen = columns[taken > 0.5]
        pick[app[chosen]] = chosen
    if (pick < 0).any() or (table.gpus[pick].sum(axis=0) > offer).any():
        return WelfareBracket(-np.inf, max(bound, known), pick)
    welfare = float(table.value[pick].sum())
    return WelfareBracket(welfare, max(bound, known, welfare), pick)


def _solver(table: Table, offer: Ints, columns: Ints, app: Ints, slack: float) -> highspy.Highs:
    program = highspy.HighsLp()
    program.sense_ = highspy.ObjSense.kMaximize
    apps, types, count = len(table.start), len(offer), len(columns)
    program.num_col_, program.num_row_ = count, apps + types
    program.col_cost_ = table.value[columns]
    program.col_lower_, program.col_upper_ = np.zeros(count), np.ones(count)
    program.integrality_ = [highspy.HighsVarType.kInteger] * count
    program.row_lower_ = np.concatenate([np.ones(apps), np.full(types, -highspy.kHighsInf)])
    program.row_upper_ = np.concatenate([np.ones(apps), offer.astype(np.float64)])
    program.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    program.a_matrix_.start_ = np.arange(count + 1) * (types + 1)
    rows = np.hstack([app[:, None], np.broadcast_to(apps + np.arange(types), (count, types))])
    program.a_matrix_.index_ = rows.ravel()
    program.a_matrix_.value_ = np.hstack([np.ones((count, 1)), table.gpus[columns].astype(np.float64)]).ravel()
    solver = highspy.Highs()  # type: ignore[no-untyped-call]
    options = {"output_flag": False, "threads": 1, "mip_max_nodes": _NODES_MAX, "mip_rel_gap": 0.0}
    for option, value in options.items():
        solver.setOptionValue(option, value)
    solver.setOptionValue("mip_abs_gap", max(slack, 1e-9))
    solver.passModel(program)
    return solver
