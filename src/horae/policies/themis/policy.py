"""Themis (NSDI'20): finish-time fairness by auction.

Whenever GPUs are available, the apps that are worst off are offered all of them, and bid. The auction allocates them to
the apps whose rho they improve most in proportion; each winner keeps its gangs for a lease, shortened by the
externality it imposes on the others, and may not win again before the full lease would have ended. GPUs that none of
them wants are auctioned among the other apps, and the remainder is backfilled with any job, so that no GPU idles.

The higher `f`, the fewer apps receive an offer: fairer, and less efficient.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import ClassVar, NamedTuple

import numpy as np

from horae.model.arrays import Bools, Floats, Ints
from horae.model.decisions import Grants, Notice, Ranking
from horae.model.errors import PolicyError
from horae.model.view import View
from horae.policies.themis import valuation
from horae.policies.themis.agent_bids import merge_agent_bids
from horae.policies.themis.bundles import Outlook, ladder, outlook
from horae.policies.themis.offer_filter import HIDDEN_SHARE, owners, seated, weights
from horae.policies.themis.trial_levels import fastest, placed, revalued
from horae.policies.themis.valuation import RENEWS, WAITS, AuctionLedger, AuctionTerms
from horae.solvers.auction.multi_type import settle_types
from horae.solvers.auction.single_type import Bids, settle_bids

_TRIALS = 3  # how often the levels assumed in bids are corrected and the auctions repeated
_WHOLE = 1 - 1e-9  # of a lease, up to rounding


class _Won(NamedTuple):
    """The outcome of the auctions."""

    wins: Bools  # by sorted row: whether it wins GPUs or keeps those that it has
    kind: Ints  # by sorted row: of which type; -1: any
    kept: Floats  # by app: the fraction of its lease that it keeps


class _Hall(NamedTuple):
    """The bidders of the auctions, the GPUs on offer, and the weights of the apps."""

    bidders: tuple[Ints, Ints]  # apps, the worst first: those that receive the offer, then the others
    offer: Ints  # by accelerator
    weight: Floats  # by app


@dataclass(frozen=True)
class Themis:
    name: ClassVar[str] = "themis"
    uses_lengths: ClassVar[bool] = True
    f: float = HIDDEN_SHARE  # the worst (1 - f) of the apps receive an offer
    lease_seconds: float = 1200.0
    payments: bool = True  # if not, every winner keeps its whole lease
    aim: str = "chain"  # which T_id: of the paper, of the app's share (private), or that but at least its longest chain
    to_the_end: bool = False  # the paper's bids: GPUs won are held until the app has finished
    restarts: bool = True  # whether bids account for the restart
    by_tenant: bool = False  # shares, offers and weights by tenant, so that splitting an app gains nothing
    poll: str = "books"  # whose rho selects the apps that receive an offer: the arbiter's own, or the agents' (said)
    window_leases: float = 1.0  # how many leases ahead a bid looks
    band: float = 0.0  # jobs of unknown length are assumed to have this fraction more left than they have had

    def __post_init__(self) -> None:
        for field, is_right, remedy in (
            ("f", 0 <= self.f <= 1, "give a number from 0 to 1"),
            ("lease_seconds", 0 < self.lease_seconds < inf, "give a positive number"),
            ("aim", self.aim in ("paper", "private", "chain"), "choose paper, private or chain"),
            ("poll", self.poll in ("books", "said"), "choose books or said"),
            ("window_leases", 1 <= self.window_leases < inf, "give 1 or more"),
            ("band", 0 <= self.band < inf, "give 0 or more"),
        ):
            if not is_right:
                raise PolicyError(f"{field} is {getattr(self, field)}", field=field, remedy=remedy)

    def decide(self, view: View) -> Grants:
        jobs = view.jobs
        nothing: Ints = np.empty(0, dtype=np.int64)
        if not jobs.waiting.any():  # leases expire; the next job to arrive can be served at once
            running = np.flatnonzero(jobs.running)
            order = running[np.argsort(jobs.serial[running])]
            return Grants(nothing, nothing, np.empty(0), Ranking(order, preemptive=True))
        books = self.open_books(view)
        option = valuation.option_of(view, books)
        won, rho, notices = self._auctions(view, books, self.terms, option)
        return self._grants(view, books, won, rho)._replace(notices=notices)

    def ask(self, view: View, apps: Ints) -> dict[int, tuple[tuple[int, ...], tuple[float, ...]]]:
        """By app: the GPU counts its agent may bid for, and the values assumed if it does not answer.

        With several types of GPUs agents are not asked: bundles are valued by the arbiter's own estimates.
        """
        if not view.jobs.waiting.any() or _has_several_types(view):
            return {}
        terms, books = self.terms, self.open_books(view)
        seen = valuation.prospects(view, books, terms, valuation.option_of(view, books))
        asked = np.flatnonzero(np.isin(books.app, apps))
        bids, _ = valuation.bid(books, seen, terms, asked)
        tables = [bids.of(place) for place in range(len(asked))]
        return {
            int(books.app[app]): (tuple(table.gpus.tolist()), tuple(np.exp(-table.value).tolist()))
            for app, table in zip(asked.tolist(), tables, strict=True)
            if len(table.gpus) > 1
        }

    @property
    def terms(self) -> AuctionTerms:
        seconds = self.lease_seconds * self.window_leases
        return AuctionTerms(seconds, self.aim, self.to_the_end, self.restarts, self.by_tenant, self.band)

    def open_books(self, view: View) -> AuctionLedger:
        """The books of all apps, by the estimates on which bids are based."""
        return valuation.open_books(view, self.terms)

    def filter_rho(self, view: View, bids: Bids, option: Ints) -> Floats:
        """By app: rho with what it keeps in any case, by the arbiter's own estimates, whatever the agents answer."""
        return rho_of(bids)

    def _auctions(
        self, view: View, books: AuctionLedger, terms: AuctionTerms, option: Ints
    ) -> tuple[_Won, Floats, tuple[Notice, ...]]:
        """The outcome, rho by app, and notices; auctions are repeated where winners get other levels than assumed."""
        everybody = np.arange(len(books.app))
        able = np.add.reduceat((books.standing == RENEWS) | (books.standing == WAITS), books.first[:-1]) > 0
        candidates = np.flatnonzero(able & (view.app.closed_until[books.app] <= view.now))
        bids, before = valuation.bid(books, valuation.prospects(view, books, terms, option), terms, everybody)
        rho = self.filter_rho(view, bids, option)
        notices = merge_agent_bids(bids, books.app, view) if len(view.asked) else ()
        rho = rho if self.poll == "books" else rho_of(bids)
        weight = weights(view, books) if self.by_tenant else np.ones(len(books.app))
        groups = seated(candidates, rho, self.f, owners(view, books) if self.by_tenant else None)
        hall = _Hall(groups, valuation.offer(view), weight)
        if _has_several_types(view):
            return self._of_several(view, books, terms, hall, rho), rho, notices
        for trial in range(1, _TRIALS + 1):
            won = self._two(books, bids.weighted(weight), before, hall)
            obtained = self._obtained(view, books, won, option)
            if trial == _TRIALS or (obtained == option).all():
                break
            option = obtained
            bids, before = valuation.bid(books, valuation.prospects(view, books, terms, option), terms, everybody)
            merge_agent_bids(bids, books.app, view)
        return won, rho, notices

    def _two(self, books: AuctionLedger, bids: Bids, before: Ints, hall: _Hall) -> _Won:
        """Hold one auction among the apps that are worst off, and one among the others."""
        rows, kept = np.zeros(len(before), dtype=np.int64), np.ones(len(before))
        offer, weight = int(hall.offer.sum()), hall.weight
        for group in hall.bidders:
            if offer <= 0 or not len(group):
                continue
            outcome = settle_bids(bids.of_these(group), offer)
            rows[group] = before[group] + outcome.choice
            kept[group] = outcome.kept ** (1 / weight[group]) if self.payments else 1.0
            offer -= int(outcome.gpus.sum())
        sizes = np.diff(books.first)
        place = np.arange(len(books.row)) - np.repeat(books.first[:-1], sizes)
        return _Won(place < np.repeat(rows, sizes), np.full(len(books.row), -1), kept)

    def _of_several(self, view: View, books: AuctionLedger, terms: AuctionTerms, hall: _Hall, rho: Floats) -> _Won:
        """The outcome for several GPU types: levels are assumed by type, and corrected as for one type."""
        option, turn = fastest(view, books), np.repeat(_badness(books, rho), np.diff(books.first))
        for _ in range(_TRIALS):
            seen = outlook(view, books, terms, option)
            won = self._two_of_several(books, terms, hall, seen)
            obtained = revalued(view, books, terms, seen, (won.wins, won.kind), option, turn)
            if (obtained == option).all():
                break
            option = obtained
        return won

    def _two_of_several(self, books: AuctionLedger, terms: AuctionTerms, hall: _Hall, seen: Outlook) -> _Won:
        """Hold one auction among the apps that are worst off and one among the others, for bundles."""
        offer, weight = hall.offer, hall.weight
        wins, kind = np.zeros(len(books.row), dtype=bool), np.full(len(books.row), -1)
        kept = np.ones(len(books.app))
        for group in hall.bidders:
            if not offer.any() or not len(group):
                continue
            ladders = [ladder(books, terms, seen, app) for app in group.tolist()]
            loud = zip(ladders, weight[group].tolist(), strict=True)
            outcome = settle_types([each.bid._replace(value=each.bid.value * part) for each, part in loud], offer)
            kept[group] = outcome.payment_kept ** (1 / weight[group]) if self.payments else 1.0
            for each, bundle in zip(ladders, outcome.choice.tolist(), strict=True):
                offer = offer - each.bid.gpus[bundle]
                for row, number in each.rows(bundle):
                    wins[row], kind[row] = True, number
        return _Won(wins | (books.standing == valuation.KEEPS), kind, kept)

    def _obtained(self, view: View, books: AuctionLedger, won: _Won, option: Ints) -> Ints:
        """By sorted row: the option of the level that it would get, if it won and waits; the largest gang first."""
        starts = np.flatnonzero(won.wins & (books.standing == WAITS) & (books.gang > 1) & (option >= 0))
        if not len(starts):
            return option
        starts = starts[np.argsort(-books.gang[starts], kind="stable")]
        obtained = option.copy()
        obtained[starts] = placed(view, books, won.wins, starts, option[starts])
        return obtained

    def _grants(self, view: View, books: AuctionLedger, won: _Won, rho: Floats) -> Grants:
        jobs = view.jobs
        sizes = np.diff(books.first)
        place = np.arange(len(books.row)) - np.repeat(books.first[:-1], sizes)
        is_winner = won.wins & ((books.standing == RENEWS) | (books.standing == WAITS))
        turn = np.repeat(_badness(books, rho), sizes)
        winners = np.flatnonzero(is_winner)
        # Large gangs first, because they are the hardest to place.
        winners = winners[np.lexsort((place[winners], turn[winners], -books.gang[winners]))]
        lease = np.repeat(won.kept, sizes)[winners] * self.lease_seconds
        position, option = _choices(view, books.row[winners], won.kind[winners], self.lease_seconds)
        closed = np.repeat(view.app.closed_until[books.app] > view.now, sizes)
        rest = np.flatnonzero(~is_winner | (won.kind >= 0))  # a winner without room on its type may have another
        waits = ~jobs.running[books.row[rest]]
        rest = rest[np.lexsort((place[rest], turn[rest], closed[rest] & waits, waits))]
        paid = np.flatnonzero((won.kept < _WHOLE) & (np.bincount(_app_of(books, winners), minlength=len(won.kept)) > 0))
        return Grants(
            row=books.row[winners][position],
            option=option,
            lease_seconds=lease[position],
            rest=Ranking(books.row[rest], preemptive=True),
            rest_lease_seconds=self.lease_seconds,
            closed_apps=books.app[paid],
            closed_until=view.now + self.lease_seconds,
        )


def _has_several_types(view: View) -> bool:
    return int(np.count_nonzero(view.capacity)) > 1


def rho_of(bids: Bids) -> Floats:
    """By app: rho with what it keeps in any case."""
    return np.exp(-bids.value[bids.first[:-1]])


def _badness(books: AuctionLedger, rho: Floats) -> Ints:
    """By app: the number of apps that are worse off."""
    badness = np.empty(len(books.app), dtype=np.int64)
    badness[np.lexsort((books.app, -rho))] = np.arange(len(books.app))
    return badness


def _app_of(books: AuctionLedger, places: Ints) -> Ints:
    return np.searchsorted(books.first, places, side="right") - 1


def _choices(view: View, rows: Ints, kind: Ints, lease_seconds: float) -> tuple[Ints, Ints]:
    """The options of each row in turn, as positions in these rows and options; a running job moves only if it pays."""
    jobs = view.jobs
    accelerator = view.shape_accelerator[jobs.shape[rows]]
    accepted: Bools = (
        (jobs.shape[rows] >= 0) & (accelerator >= 0) & ((kind < 0)[:, None] | (accelerator == kind[:, None]))
    )
    runs = jobs.running[rows]
    here = np.where(runs, jobs.option[rows], 0)
    speed = jobs.speed[rows]
    now = speed[np.arange(len(rows)), here]
    moved = speed * np.maximum(lease_seconds - jobs.restart_seconds[rows], 0.0)[:, None]
    pays = ~runs[:, None] | (moved > (now * lease_seconds)[:, None])
    stays = np.zeros_like(accepted)
    stays[np.flatnonzero(runs), here[runs]] = True
    position, option = np.nonzero(accepted | stays)
    # The fastest first; of equals, the one that the job names first. Options listed after the present one are for a job
    # that must leave that.
    after = np.where(stays, 1, np.where(pays, 0, 2))[position, option]
    order = np.lexsort((option, -speed[position, option], after, position))
    return position[order], option[order]
