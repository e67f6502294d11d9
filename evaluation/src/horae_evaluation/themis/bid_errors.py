"""Themis with agents that are wrong or lie about the work left of their apps (NSDI'20, section 8).

The arbiter is the one of the policy `themis`, with all its options. Only the books from which bids are made have an
error; which apps receive an offer depends on what their agents misreport on purpose only where agents are polled
(`poll: said`).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import ClassVar

import numpy as np

from horae.model.arrays import Floats, Ints
from horae.model.errors import PolicyError
from horae.model.view import View
from horae.policies.themis import valuation
from horae.policies.themis.policy import Themis, rho_of
from horae.policies.themis.valuation import AuctionLedger
from horae.solvers.auction.single_type import Bids


@dataclass(frozen=True)
class ThemisWithErrors(Themis):
    name: ClassVar[str] = "themis-with-errors"
    noise: float = 0.0  # relative error of the agents' estimates of the work left, up to this, drawn for every auction
    liar: int = -1  # the number of an app that overstates its work left,
    overstates: float = 0.0  # by this fraction

    def __post_init__(self) -> None:
        super().__post_init__()
        for field, is_right, remedy in (
            ("noise", 0 <= self.noise < 1, "give a number from 0, below 1"),
            ("overstates", -1 < self.overstates < inf, "give a number above -1"),
        ):
            if not is_right:
                raise PolicyError(f"{field} is {getattr(self, field)}", field=field, remedy=remedy)

    def open_books(self, view: View) -> AuctionLedger:
        return valuation.open_books(view, self.terms, self._factor(view, self.overstates))

    def filter_rho(self, view: View, bids: Bids, option: Ints) -> Floats:
        """By app: rho with its estimation error, but without the lie."""
        if self.liar < 0 or not self.overstates:
            return rho_of(bids)
        books = valuation.open_books(view, self.terms, self._factor(view, overstates=0.0))
        seen = valuation.prospects(view, books, self.terms, option)
        return rho_of(valuation.bid(books, seen, self.terms, np.arange(len(books.app)))[0])

    def _factor(self, view: View, overstates: float) -> Floats:
        """By app number: the factor by which its agent is wrong, or lies."""
        factor = np.ones(len(view.app.gpus_max))
        if self.noise:
            draw = np.random.default_rng((view.seed, int(view.now * 1000) % 2**63))
            factor += draw.uniform(-self.noise, self.noise, len(factor))
        if 0 <= self.liar < len(factor):
            factor[self.liar] *= 1 + overstates
        return factor
