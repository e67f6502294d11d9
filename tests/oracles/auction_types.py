"""An auction over GPU types as one would write it down: an integer program, and one more for each left out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from horae.model.arrays import Floats, Ints
from horae.solvers.auction.multi_type import BundleBid


def best_welfare(bids: Sequence[BundleBid], offer: Ints) -> float:
    if len(bids) == 0:
        return 0.0
    value = np.concatenate([bid.value for bid in bids])
    gpus = np.concatenate([bid.gpus for bid in bids]).T
    owner = np.repeat(np.arange(len(bids)), [len(bid.value) for bid in bids])
    one_each = (owner == np.arange(len(bids))[:, None]).astype(np.float64)
    answer = milp(
        -value,
        constraints=[LinearConstraint(one_each, 1, 1), LinearConstraint(gpus.astype(np.float64), -np.inf, offer)],
        integrality=np.ones(len(value), dtype=np.int64),
        bounds=Bounds(0, 1),
        options={"mip_rel_gap": 0.0},
    )
    assert answer.success, answer.message
    taken = np.rint(answer.x)
    assert (gpus @ taken <= offer).all()
    return float(value @ taken)


def kept_parts(bids: Sequence[BundleBid], offer: Ints, choice: Ints) -> Floats:
    """By app, for this allocation: what the others have with it over what they could have without it."""
    own = np.array([bid.value[row] for bid, row in zip(bids, choice.tolist(), strict=True)])
    without = [best_welfare([*bids[:app], *bids[app + 1 :]], offer) for app in range(len(bids))]
    return np.array([np.exp(np.delete(own, app).sum() - best) for app, best in enumerate(without)])


def best_of_one_type(bids: Sequence[BundleBid], gpus: int) -> float:
    """The plain dynamic program: the best welfare for every number of GPUs, app after app."""
    best = [0.0] * (gpus + 1)
    for bid in bids:
        rows = list(zip(bid.gpus[:, 0].tolist(), bid.value.tolist(), strict=True))
        best = [max(best[n - taken] + value for taken, value in rows if taken <= n) for n in range(gpus + 1)]
    return best[gpus]
