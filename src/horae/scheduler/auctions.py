"""Auctions with bids of the apps themselves: their agents are called for bids, and have a limited time to answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from horae.model.arrays import Ints
from horae.model.commands import CallForBids, Offer
from horae.model.events import BidGiven
from horae.model.view import View

if TYPE_CHECKING:
    from horae.scheduler.pool import Pool

Said: TypeAlias = tuple[tuple[int, ...], tuple[float, ...]]  # numbers of GPUs, and rho with each

_NOBODY_ASKED: tuple[Ints, dict[int, Said]] = (np.empty(0, dtype=np.int64), {})


@dataclass
class Auction:
    """An auction that waits for bids."""

    number: int
    closes_at: float
    asked: frozenset[int]  # numbers of apps
    bids: dict[int, Said]

    @property
    def is_complete(self) -> bool:
        return len(self.bids) == len(self.asked)

    def is_over(self, now: float) -> bool:
        return self.is_complete or now >= self.closes_at


class Auctions:
    """The auctions of all pools. Numbers are never reused, so a late answer is not taken for one of another auction."""

    def __init__(self, bid_seconds: float) -> None:
        self.bid_seconds = bid_seconds
        self.opened = 0

    def open(self, pool: Pool, view: Callable[[], View], now: float) -> CallForBids | None:
        """Calls the agents of a pool for bids, if it has any and its policy collects bids."""
        if pool.auctioneer is None:  # called before every decision of every pool
            return None
        agents = pool.apps.with_agents()
        if not agents:
            return None
        asked = pool.auctioneer.ask(view(), np.array(sorted(agents)))
        if not asked:
            return None
        self.opened += 1
        closes_at = now + self.bid_seconds
        pool.auction = Auction(self.opened, closes_at, frozenset(asked), {})
        offers = tuple(Offer(agents[number], *table) for number, table in sorted(asked.items()))
        return CallForBids(self.opened, pool.spec.name, closes_at, offers)

    def reopen(self, pool: Pool, call: CallForBids | None) -> CallForBids | None:
        """Restores an auction from its record."""
        if call is None:
            return None
        self.opened = call.auction
        agents = {name: number for number, name in pool.apps.with_agents().items()}
        asked = frozenset(agents[offer.app] for offer in call.offers)
        pool.auction = Auction(call.auction, call.closes_at, asked, {})
        return call


def hear(pools: Sequence[Pool], event: BidGiven, now: float) -> bool:
    """Records a bid and returns whether it counts: only an app's first answer, while its auction is open, does."""
    for pool in pools:
        auction = pool.auction
        if auction is not None and auction.number == event.auction:
            number = pool.apps.number(event.app)
            if number is None or number not in auction.asked or number in auction.bids:
                return False
            auction.bids[number] = (event.gpus, event.rho)
            if auction.is_complete:
                pool.touch(now)
            return True
    return False


def heard(pool: Pool) -> tuple[Ints, Mapping[int, Said]]:
    """The apps whose agents were called for bids, and the bids that arrived."""
    if pool.auction is None:
        return _NOBODY_ASKED
    return np.array(sorted(pool.auction.asked), dtype=np.int64), pool.auction.bids
