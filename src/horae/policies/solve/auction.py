"""The partial-allocation auction of Themis (NSDI'20, section 5): who wins how many GPUs, and what each keeps of it.

The winners maximise the product of 1 / rho, which is proportional fairness. Bids collapse to "so many GPUs, at the best
level: log 1 / rho", so this is a multiple-choice knapsack. One pass over the apps forwards and one backwards give the
optimum and, joined at each app, the optimum without it: no solve for each app.

What an app keeps of its lease is what the others lose by its being there:

    kept(i) = product over j other than i of rho(j) if i were not there / rho(j)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from horae.model.arrays import Floats, Ints


class Bid(NamedTuple):
    """How much each number of GPUs is worth to an app: the first is for none, and more is never worth less."""

    gpus: Ints
    value: Floats  # log 1 / rho


class Outcome(NamedTuple):
    """By app."""

    choice: Ints  # the bid that wins
    gpus: Ints
    kept: Floats  # the part of its lease that it keeps


def settle_bids(bids: Sequence[Bid], offer: int) -> Outcome:
    from horae.policies.solve.auction_kernel import settle  # noqa: PLC0415  numba is slow to import

    if not bids:
        return Outcome(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), np.empty(0))
    first = np.cumsum([0, *(len(bid.gpus) for bid in bids)])
    gpus, value = np.concatenate([bid.gpus for bid in bids]), np.concatenate([bid.value for bid in bids])
    most = int(np.add.reduce([bid.gpus[-1] for bid in bids]))
    choice, others, without = settle(first, gpus, value, min(max(offer, 0), most))
    # The others cannot do worse without an app; a hair is rounding.
    return Outcome(choice, gpus[first[:-1] + choice], np.exp(np.minimum(others - without, 0.0)))
