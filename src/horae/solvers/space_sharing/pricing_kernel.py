"""The pricing of all pairs, compiled: it is called several times per program, and visits every pair each time."""

from __future__ import annotations

import numpy as np

from horae.compiling import kernel
from horae.model.arrays import Bools, Floats, Ints


@kernel()
def best_pairs(
    gain: Floats, cost: Floats, cell: Ints, kept: Floats, open_to: Bools, least: float
) -> tuple[Ints, float]:
    """For each place of each berth the pair that adds most, if more than `least`, and the most that any pair adds.

    `gain` and `cost`: by cell, alone. Pairs are numbers of places in `kept`, the smaller place first, each once.
    """
    berths, places = cell.shape
    wanted = np.empty(berths * places, dtype=np.int64)
    count, most = 0, -np.inf
    best, partner = np.empty(places), np.empty(places, dtype=np.int64)
    for berth in range(berths):
        best[:], partner[:] = -np.inf, -1
        for first in range(places):
            mine, price = gain[cell[berth, first]], cost[cell[berth, first]]
            for second in range(first, places):
                if open_to[berth, first, second]:
                    other = cell[berth, second]
                    surplus = mine * kept[berth, first, second] - price
                    surplus += gain[other] * kept[berth, second, first] - cost[other]
                    if surplus > best[first]:
                        best[first], partner[first] = surplus, second
                    if surplus > best[second]:
                        best[second], partner[second] = surplus, first
        for first in range(places):
            second = partner[first]
            most = max(most, best[first])
            if best[first] > least and not (second < first and partner[second] == first):
                wanted[count] = (berth * places + min(first, second)) * places + max(first, second)
                count += 1
    return wanted[:count], most
