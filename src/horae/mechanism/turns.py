"""Shares of time become turns: who should run next, by what it was promised and what it has had.

Gavel (section 5) takes the target over the time received since the shares were computed, then what is owed from
before. Where shares change with every job that comes or goes, nothing has been received yet most of the time, and what
is owed decides. So that is our order: seconds owed in all, and whoever runs may go on until it is ahead of the others
by a turn, even if the shares of the moment give it nothing there: of many best answers a solver takes one today and
another tomorrow. Jobs move once a turn instead of once a round, and no job is ever behind by much more than that.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from horae.model.arrays import Bools, Floats, Ints
from horae.model.decisions import Pairs, Shares
from horae.model.plans import Claims
from horae.model.pools import RoundRules
from horae.model.table import NOBODY, JobColumns

_NOBODY_AT_ALL: Ints = np.empty(0, dtype=np.int64)


class Standing(NamedTuple):
    """How things stand with the shares in force."""

    rules: RoundRules = RoundRules(turn_rounds=0.0)
    round_seconds: float = 360.0
    elapsed_seconds: float = 0.0  # since they were computed
    pair_seconds: Floats = np.empty(0)  # by pair: time in company since then
    shape_turn: Ints = _NOBODY_AT_ALL  # by shape: when its GPU type is given out; none: all types together


BY_PRIORITY = Standing()


class _Lots(NamedTuple):
    """All that may be claimed: jobs alone and pairs, each in one option."""

    row: Ints
    option: Ints
    partner: Ints
    partner_option: Ints
    fraction: Floats
    received: Floats  # seconds since the shares were computed
    deficit: Floats  # seconds owed from before
    held: Bools  # or by one that has never run
    turn: Floats  # seconds


def round_priorities(fraction: Floats, received_seconds: Floats) -> Floats:
    """Gavel, section 5: the target over what was received; endless where nothing was received of a positive target."""
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
    partner, partner_option = lots.partner[order], lots.partner_option[order]
    if standing.rules.fill:
        more = _unclaimed(shares, jobs, standing)
        row, option = np.concatenate((row, more[0])), np.concatenate((option, more[1]))
        nobody = np.full(len(more[0]), NOBODY)
        partner, partner_option = np.concatenate((partner, nobody)), np.concatenate((partner_option, nobody))
    company = shares.pairs is not None
    return Claims(row, option, None, True, False, None, partner if company else None, partner_option)


def _plain_turns(shares: Shares, jobs: JobColumns, standing: Standing) -> Claims:
    """The same as below in the usual case, compiled."""
    from horae.mechanism.turns_kernel import order_of_turns  # noqa: PLC0415  numba is slow to import

    ahead = (jobs.running & (jobs.partner == NOBODY)) + 2 * _is_new(jobs)
    row, option = order_of_turns(
        np.array((shares.fraction, jobs.deficit, jobs.received_base, jobs.received_mark)),
        np.array((jobs.since, _turn_seconds(jobs, standing))),
        np.array((jobs.option, ahead, jobs.serial)),
        jobs.now,
        standing.elapsed_seconds,
    )
    return Claims(row, option, None, True, False)


def _order(lots: _Lots, jobs: JobColumns, standing: Standing) -> Ints:
    ties = (lots.partner, lots.option, jobs.serial[lots.row], -lots.fraction)
    if standing.rules.turn_rounds:
        owed = lots.deficit + lots.fraction * standing.elapsed_seconds - lots.received
        keys: tuple[Floats | Ints, ...] = (*ties, -(owed + lots.held * lots.turn))
    else:
        keys = (*ties, -lots.deficit, -round_priorities(lots.fraction, lots.received))
    if len(standing.shape_turn):
        keys = (*keys, standing.shape_turn[jobs.shape[lots.row, lots.option]])
    return np.lexsort(keys)


def _alone(shares: Shares, jobs: JobColumns, standing: Standing) -> _Lots:
    claimed = shares.fraction > 0
    if standing.rules.turn_rounds:
        alone = np.flatnonzero(jobs.running & (jobs.partner == NOBODY))
        claimed[alone, jobs.option[alone]] = True
    row, option = np.nonzero(claimed)
    received = jobs.received_seconds - jobs.received_mark
    if shares.pairs is not None:
        received -= in_company(shares.pairs, standing.pair_seconds, received.shape)
    nobody = np.full(len(row), NOBODY)
    held = jobs.running[row] & (jobs.option[row] == option) & (jobs.partner[row] == NOBODY)
    held |= _is_new(jobs)[row]
    return _Lots(
        row, option, nobody, nobody, shares.fraction[row, option], received[row, option], jobs.deficit[row, option],
        held, _turn_seconds(jobs, standing)[row],
    )  # fmt: skip


def _together(pairs: Pairs, jobs: JobColumns, standing: Standing) -> _Lots:
    first, second = pairs.first, pairs.second
    held = pairs_held(pairs, jobs) | _is_new(jobs)[first] | _is_new(jobs)[second]
    deficit = (jobs.deficit[first, pairs.first_option] + jobs.deficit[second, pairs.second_option]) / 2
    turn = _turn_seconds(jobs, standing)
    return _Lots(
        first, pairs.first_option, second, pairs.second_option, pairs.fraction, standing.pair_seconds, deficit,
        held, np.maximum(turn[first], turn[second]),
    )  # fmt: skip


def _still_together(pairs: Pairs, jobs: JobColumns, standing: Standing) -> _Lots:
    """Two who share GPUs now, though the shares of the moment do not name them."""
    named = pairs.first * len(jobs) + pairs.second, pairs.second * len(jobs) + pairs.first
    first = np.flatnonzero(jobs.running & (jobs.partner > np.arange(len(jobs))))
    first = first[~np.isin(first * len(jobs) + jobs.partner[first], np.concatenate(named))]
    second = jobs.partner[first]
    options, nothing = (jobs.option[first], jobs.option[second]), np.zeros(len(first))
    unnamed = Pairs(first, second, *options, nothing)
    return _together(unnamed, jobs, standing._replace(pair_seconds=nothing))


def _is_new(jobs: JobColumns) -> Bools:
    """Never run yet: to start it costs no restart, so it need not wait for a turn."""
    return (jobs.run_base == 0) & ~jobs.on_gpus


def _turn_seconds(jobs: JobColumns, standing: Standing) -> Floats:
    """By job: how far ahead of the others it may get; one that is slow to restart goes on for longer."""
    rules = standing.rules
    worth = jobs.restart_seconds / rules.restart_share_max
    return np.maximum(worth, rules.turn_rounds * standing.round_seconds)


def _unclaimed(shares: Shares, jobs: JobColumns, standing: Standing) -> tuple[Ints, Ints]:
    """Jobs in shapes of which they have no share, for GPUs that nobody else claims: those who are owed most first."""
    row, option = np.nonzero((shares.fraction <= 0) & (jobs.shape >= 0))
    received = jobs.received_seconds - jobs.received_mark
    owed = (jobs.deficit + jobs.target * standing.elapsed_seconds - received).sum(axis=1)
    held = jobs.running[row] & (jobs.option[row] == option)
    order = np.lexsort((option, -jobs.speed[row, option], jobs.serial[row], -owed[row], ~held))
    return row[order], option[order]


def pairs_held(pairs: Pairs, jobs: JobColumns) -> Bools:
    """By pair: the two are on the same GPUs now, in these options."""
    first, second = pairs.first, pairs.second
    return (
        jobs.running[first]
        & (jobs.partner[first] == second)
        & (jobs.option[first] == pairs.first_option)
        & (jobs.option[second] == pairs.second_option)
    )


def in_company(pairs: Pairs, amount: Floats, shape: tuple[int, ...]) -> Floats:
    """What pairs have, by the row and option of both of their jobs."""
    total = np.zeros(shape)
    np.add.at(total, (pairs.first, pairs.first_option), amount)
    np.add.at(total, (pairs.second, pairs.second_option), amount)
    return total


def time_targets(shares: Shares) -> Floats:
    """By row and option: the fraction of time on GPUs, alone or in company."""
    if shares.pairs is None:
        return shares.fraction
    return shares.fraction + in_company(shares.pairs, shares.pairs.fraction, shares.fraction.shape)


def turns_go_on(shares: Shares, jobs: JobColumns) -> bool:
    """Whether the next round may differ from this one although nothing happens and the shares stand."""
    if shares.pairs is not None and len(shares.pairs.first):
        return True
    row, _ = np.nonzero(shares.fraction > 0)
    return bool((row[1:] == row[:-1]).any()) or not bool(jobs.running[row].all())
