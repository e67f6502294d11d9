"""Winner determination for one GPU type, compiled: a multiple-choice knapsack, with and without each app."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from horae.compiling import kernel
from horae.model.arrays import Floats, Ints

Settled: TypeAlias = tuple[Ints, Floats, Floats]


@kernel()
def _add(before: Floats, after: Floats, gpus: Ints, value: Floats) -> None:
    """The best welfare of all apps so far and one more, for every number of GPUs."""
    most = len(before) - 1
    for count in range(most + 1):
        after[count] = before[count] + value[0]
    for bid in range(1, len(gpus)):
        need, worth = gpus[bid], value[bid]
        for count in range(need, most + 1):
            total = before[count - need] + worth
            after[count] = max(after[count], total)


@kernel(small=2_000)
def settle(first: Ints, gpus: Ints, value: Floats, offer: int) -> Settled:
    """By app: the winning bid, the welfare of the others then, and the best they could do without it.

    The bids of app `i` are those from `first[i]` to `first[i + 1]`, the first of them for nothing.
    """
    apps = len(first) - 1
    forward = np.zeros((apps + 1, offer + 1))  # of the apps before this one
    backward = np.zeros((apps + 1, offer + 1))  # of this one and those after it
    for app in range(apps):
        low, high = first[app], first[app + 1]
        _add(forward[app], forward[app + 1], gpus[low:high], value[low:high])
    for app in range(apps - 1, 0, -1):
        low, high = first[app], first[app + 1]
        _add(backward[app + 1], backward[app], gpus[low:high], value[low:high])
    choice = np.zeros(apps, dtype=np.int64)
    left = offer
    for app in range(apps - 1, -1, -1):
        best = forward[app + 1, left]
        for bid in range(first[app], first[app + 1]):  # the fewest GPUs that suffice
            need = gpus[bid]
            if need <= left and forward[app, left - need] + value[bid] == best:
                choice[app] = bid - first[app]
                left -= need
                break
    welfare = 0.0
    for app in range(apps):
        welfare += value[first[app] + choice[app]]
    others, without = np.empty(apps), np.empty(apps)
    for app in range(apps):
        others[app] = welfare - value[first[app] + choice[app]]
        best = -np.inf
        for count in range(offer + 1):
            total = forward[app, count] + backward[app + 1, offer - count]
            best = max(best, total)
        without[app] = best
    return choice, others, without
