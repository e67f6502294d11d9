"""The partial-allocation auction of Themis (NSDI'20, section 5): how many GPUs each app wins, and what it keeps.

The winners maximise the product of 1 / rho, which is proportional fairness. Bids collapse to "so many GPUs, at the best
level: log 1 / rho", so this is a multiple-choice knapsack. One pass over the apps forwards and one backwards give the
optimum and, joined at each app, the optimum without it: no separate solve per app.

The fraction of its lease that an app keeps reflects what the others lose by its presence:

    kept(i) = product over j other than i of rho(j) if i were not there / rho(j)

Where apps have weights, their bids are weighted, and each keeps that to the power of 1 / its weight: kept x 1 / rho is
then largest for a truthful app, as it is with weights of one (Cole, Gkatzelis and Goel, EC'13).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from horae.model.arrays import Floats, Ints


class GpuBid(NamedTuple):
    """The value of each number of GPUs to an app: the first is for none, and more is never worth less."""

    gpus: Ints
    value: Floats  # log 1 / rho


class Bids(NamedTuple):
    """The bids of several apps, one after the other."""

    first: Ints  # where the bids of each app begin, and the end
    gpus: Ints
    value: Floats

    def of(self, app: int) -> GpuBid:
        mine = slice(int(self.first[app]), int(self.first[app + 1]))
        return GpuBid(self.gpus[mine], self.value[mine])

    def weighted(self, weight: Floats) -> Bids:
        """The bids multiplied by the weights of their apps."""
        return self._replace(value=self.value * np.repeat(weight, np.diff(self.first)))

    def of_these(self, apps: Ints) -> Bids:
        length = np.diff(self.first)[apps]
        first = np.concatenate([[0], np.cumsum(length)])
        place = np.arange(first[-1]) - np.repeat(first[:-1] - self.first[apps], length)
        return Bids(first, self.gpus[place], self.value[place])


def together(bids: Sequence[GpuBid]) -> Bids:
    first = np.cumsum([0, *(len(bid.gpus) for bid in bids)])
    nothing = np.empty(0, dtype=np.int64), np.empty(0)
    gpus = np.concatenate([nothing[0], *(bid.gpus for bid in bids)])
    return Bids(first, gpus.astype(np.int64), np.concatenate([nothing[1], *(bid.value for bid in bids)]))


class AuctionOutcome(NamedTuple):
    """The outcome of an auction, by app."""

    choice: Ints  # the bid that wins
    gpus: Ints
    kept: Floats  # the fraction of its lease that it keeps


def settle_bids(bids: Bids | Sequence[GpuBid], offer: int) -> AuctionOutcome:
    from horae.solvers.auction.single_type_kernel import settle  # noqa: PLC0415  numba is slow to import

    if not isinstance(bids, Bids):
        bids = together(bids)
    first, gpus, value = bids
    if len(first) == 1:
        return AuctionOutcome(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), np.empty(0))
    most = int(gpus[first[1:] - 1].sum())
    choice, others, without = settle(first, gpus, value, min(max(offer, 0), most))
    # The others cannot do worse without an app; a tiny excess is rounding.
    return AuctionOutcome(choice, gpus[first[:-1] + choice], np.exp(np.minimum(others - without, 0.0)))
