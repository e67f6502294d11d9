"""Shares of time become turns: the order in which jobs run next, by their shares and the time they have received.

Gavel (section 5) takes the target over the time received since the shares were computed, then what is owed from before.
Where shares change with every job that arrives or ends, nothing has been received yet most of the time, and what is
owed decides. So that is the order here: total seconds owed, as far back as matters, and a running job may continue
until it is ahead of the others by a turn, even if the present shares give it nothing there: of many optimal answers a
solver may return a different one each time. Only to a faster type where it is owed more does a job move as soon as
there is room. Jobs move once per turn instead of once per round, and no job stays behind its share by much more than
that.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from horae.mechanism.turn_rules import head_start, owed_seconds, pays_to_move
from horae.model.arrays import Bools, Floats, Ints
from horae.model.decisions import Pairs, Shares
from horae.model.job_table import NONE, JobColumns
from horae.model.plans import Claims
from horae.model.setup import RoundRules

_NOBODY_AT_ALL: Ints = np.empty(0, dtype=np.int64)


class Standing(NamedTuple):
    """The state of the shares in force."""

    rules: RoundRules = RoundRules(turn_rounds=0.0)
    round_seconds: float = 360.0
    elapsed_seconds: float = 0.0  # since they were computed
    pair_seconds: Floats = np.empty(0)  # by pair: time shared since then
    shape_turn: Ints = _NOBODY_AT_ALL  # by shape: when its GPU type is allocated; none: all types together


BY_PRIORITY = Standing()
DEBT_TURNS_MAX = 2.0  # debts and credits count no further back than that


class _Lots(NamedTuple):
    """All possible claims: single jobs and pairs, each in one option."""

    row: Ints
    option: Ints
    partner: Ints
    partner_option: Ints
    fraction: Floats
    received: Floats  # seconds since the shares were computed
    deficit: Floats  # seconds owed from before
    ahead: Floats  # seconds: the head start of holders and of jobs that have never run
    moves: Bools  # its job would move there from where it is, as soon as there is room


def round_priorities(fraction: Floats, received_seconds: Floats) -> Floats:
    """Gavel, section 5: the target over the time received; infinite for a positive target with nothing received."""
    with np.errstate(divide="ignore", invalid="ignore"):
        priority = fraction / received_seconds
    return np.where(fraction > 0, priority, 0.0)


def claims_of_shares(shares: Shares, jobs: JobColumns, standing: Standing) -> Claims:
    rules = standing.rules
    if shares.pairs is None and rules.turn_rounds and not rules.fill and not rules.type_order:
        return _plain_turns(shares, jobs, standing)
    lots = _alone(shares, jobs, standing)
    if shares.pairs is not None and len(shares.pairs.first):
        both = zip(lots, _together(shares.pairs, jobs, standing), strict=True)
        lots = _Lots(*(np.concatenate(columns) for columns in both))
    if standing.rules.turn_rounds and shares.pairs is not None:
        both = zip(lots, _still_together(shares.pairs, jobs, standing), strict=True)
        lots = _Lots(*(np.concatenate(columns) for columns in both))
    order = _order(lots, jobs, standing)
    row, option = lots.row[order], lots.option[order]
    partner, partner_option, moves = lots.partner[order], lots.partner_option[order], lots.moves[order]
    if standing.rules.fill:
        more = _unclaimed(shares, jobs, standing)
        row, option = np.concatenate((row, more[0])), np.concatenate((option, more[1]))
        no_pairs = np.full(len(more[0]), NONE)
        partner, partner_option = np.concatenate((partner, no_pairs)), np.concatenate((partner_option, no_pairs))
        moves = np.concatenate((moves, no_pairs > NONE))
    company = shares.pairs is not None
    # Where types have an order, a job would return to the first one as soon as it has moved elsewhere.
    moving = moves if rules.turn_rounds and not rules.type_order else None
    return Claims(row, option, None, True, False, None, partner if company else None, partner_option, moving)


def _plain_turns(shares: Shares, jobs: JobColumns, standing: Standing) -> Claims:
    """The claims by turns in the usual case, compiled."""
    from horae.mechanism.turns_kernel import order_of_turns  # noqa: PLC0415  numba is slow to import

    ahead = _run_alone(jobs) + 2 * _is_new(jobs)
    row, option, moves = order_of_turns(
        np.array((shares.fraction, jobs.deficit, jobs.received_base, jobs.received_mark, jobs.speed)),
        np.array((jobs.since, _turn_seconds(jobs, standing), jobs.restart_seconds)),
        np.array((jobs.option, ahead, jobs.serial)),
        np.array((jobs.now, standing.elapsed_seconds), dtype=np.float64),  # whole seconds may come as integers
    )
    return Claims(row, option, None, True, False, moves=moves)


def _order(lots: _Lots, jobs: JobColumns, standing: Standing) -> Ints:
    ties = (lots.partner, lots.option, jobs.serial[lots.row], -lots.fraction)
    if standing.rules.turn_rounds:
        owed = owed_seconds(lots.deficit, lots.fraction, standing.elapsed_seconds, lots.received)
        keys: tuple[Floats | Ints, ...] = (*ties, -(owed + lots.ahead))
    else:
        keys = (*ties, -lots.deficit, -round_priorities(lots.fraction, lots.received))
    if len(standing.shape_turn):
        keys = (*keys, standing.shape_turn[jobs.shape[lots.row, lots.option]])
    return np.lexsort(keys)


def _alone(shares: Shares, jobs: JobColumns, standing: Standing) -> _Lots:
    claimed = shares.fraction > 0
    if standing.rules.turn_rounds and shares.pairs is None:
        # Beside pairs, a job that stays alone against the present shares would keep GPUs from two.
        alone = np.flatnonzero(_run_alone(jobs))
        claimed[alone, jobs.option[alone]] = True
    row, option = np.nonzero(claimed)
    received = jobs.received_seconds - jobs.received_mark
    if shares.pairs is not None:
        received -= in_company(shares.pairs, standing.pair_seconds, received.shape)
    no_pairs = np.full(len(row), NONE)
    held = _run_alone(jobs)[row] & (jobs.option[row] == option)
    turn = _turn_seconds(jobs, standing)
    owed = owed_seconds(jobs.deficit, shares.fraction, standing.elapsed_seconds, received)
    return _Lots(
        row, option, no_pairs, no_pairs, shares.fraction[row, option], received[row, option], jobs.deficit[row, option],
        head_start(held, _is_new(jobs)[row], turn[row]), _moves(row, option, owed, jobs, turn),
    )  # fmt: skip


def _moves(row: Ints, option: Ints, owed: Floats, jobs: JobColumns, turn: Floats) -> Bools:
    """By claim: whether its job runs alone and elsewhere, and would rather be here."""
    held = jobs.option[row]
    speeds = jobs.speed[row, option], jobs.speed[row, held]
    alone = _run_alone(jobs)[row] & (held != option)
    return alone & pays_to_move(*speeds, turn[row], jobs.restart_seconds[row], owed[row, option], owed[row, held])


def _together(pairs: Pairs, jobs: JobColumns, standing: Standing) -> _Lots:
    first, second = pairs.first, pairs.second
    deficit = (jobs.deficit[first, pairs.first_option] + jobs.deficit[second, pairs.second_option]) / 2
    turns = _turn_seconds(jobs, standing)
    turn = np.maximum(turns[first], turns[second])
    # If one of the two runs, starting them costs a restart.
    is_new = (_is_new(jobs)[first] & ~jobs.on_gpus[second]) | (_is_new(jobs)[second] & ~jobs.on_gpus[first])
    return _Lots(
        first, pairs.first_option, second, pairs.second_option, pairs.fraction, standing.pair_seconds, deficit,
        head_start(pairs_held(pairs, jobs), is_new, turn), np.zeros(len(first), dtype=bool),
    )  # fmt: skip


def _still_together(pairs: Pairs, jobs: JobColumns, standing: Standing) -> _Lots:
    """Pairs that share GPUs now although the present shares do not name them."""
    named = pairs.first * len(jobs) + pairs.second, pairs.second * len(jobs) + pairs.first
    first = np.flatnonzero(jobs.running & (jobs.partner > np.arange(len(jobs))))
    first = first[~np.isin(first * len(jobs) + jobs.partner[first], np.concatenate(named))]
    second = jobs.partner[first]
    options, nothing = (jobs.option[first], jobs.option[second]), np.zeros(len(first))
    unnamed = Pairs(first, second, *options, nothing)
    return _together(unnamed, jobs, standing._replace(pair_seconds=nothing))


def _run_alone(jobs: JobColumns) -> Bools:
    """By job: whether it runs on GPUs that it does not share."""
    return jobs.running & (jobs.partner == NONE) if jobs.bundles else jobs.running


def _is_new(jobs: JobColumns) -> Bools:
    """By job: whether it has never run: starting it costs no restart, so it need not wait for a whole turn."""
    return (jobs.run_base == 0) & ~jobs.on_gpus


def _turn_seconds(jobs: JobColumns, standing: Standing) -> Floats:
    return turn_seconds(jobs, standing.rules, standing.round_seconds)


def turn_seconds(jobs: JobColumns, rules: RoundRules, round_seconds: float) -> Floats:
    """By job: how far ahead of the others it may get; a job that is slow to restart continues for longer."""
    return np.maximum(jobs.restart_seconds / rules.restart_share_max, rules.turn_rounds * round_seconds)


def bounded_debts(deficit: Floats, jobs: JobColumns, rules: RoundRules, round_seconds: float) -> Floats:
    """The seconds owed, limited to two turns either way.

    A debt may be impossible to pay, where gangs do not fill the nodes, and a credit may be for GPUs that no other job
    wanted. Without a bound, jobs that arrive later would have to wait for as long as that has gone on.
    """
    if not rules.turn_rounds:
        return deficit
    most = DEBT_TURNS_MAX * turn_seconds(jobs, rules, round_seconds)[:, None]
    return np.minimum(np.maximum(deficit, -most), most)  # on a few rows faster than np.clip


def _unclaimed(shares: Shares, jobs: JobColumns, standing: Standing) -> tuple[Ints, Ints]:
    """Jobs in shapes of which they have no share, for GPUs that no other job claims: the most owed first."""
    row, option = np.nonzero((shares.fraction <= 0) & (jobs.shape >= 0))
    received = jobs.received_seconds - jobs.received_mark
    owed = (jobs.deficit + jobs.target * standing.elapsed_seconds - received).sum(axis=1)
    held = jobs.running[row] & (jobs.option[row] == option)
    order = np.lexsort((option, -jobs.speed[row, option], jobs.serial[row], -owed[row], ~held))
    return row[order], option[order]


def pairs_held(pairs: Pairs, jobs: JobColumns) -> Bools:
    """By pair: whether the two are on the same GPUs now, in these options."""
    first, second = pairs.first, pairs.second
    return (
        jobs.running[first]
        & (jobs.partner[first] == second)
        & (jobs.option[first] == pairs.first_option)
        & (jobs.option[second] == pairs.second_option)
    )


def in_company(pairs: Pairs, amount: Floats, shape: tuple[int, ...]) -> Floats:
    """The amounts of pairs, added by the row and option of both of their jobs."""
    total = np.zeros(shape)
    np.add.at(total, (pairs.first, pairs.first_option), amount)
    np.add.at(total, (pairs.second, pairs.second_option), amount)
    return total


def time_targets(shares: Shares) -> Floats:
    """By row and option: the fraction of time on GPUs, alone or shared."""
    if shares.pairs is None:
        return shares.fraction
    return shares.fraction + in_company(shares.pairs, shares.pairs.fraction, shares.fraction.shape)


def turns_go_on(shares: Shares, jobs: JobColumns) -> bool:
    """Whether the next round may differ from this one although no event happens and the shares stand."""
    row, option = (shares.fraction > 0).nonzero()
    pairs, served = shares.pairs, row
    if pairs is not None and len(pairs.first):
        if not pairs_held(pairs, jobs).all():
            return True
        served = np.sort(np.concatenate((row, pairs.first, pairs.second)))
    if np.count_nonzero(served[1:] == served[:-1]):  # a job with several shares takes turns between them
        return True
    there = _run_alone(jobs)[row] & (jobs.option[row] == option)
    return not there.all()
