"""The bid tables of many apps, compiled: an auction is called several thousand times in a run."""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np

from horae.compiling import kernel
from horae.model.arrays import Floats, Ints

_TINY = 1e-9
_KEEPS, _WAITS = 0, 2

Tables: TypeAlias = tuple[Ints, Ints, Floats, Ints]


@kernel(small=5_000)
def tables(
    apps: Ints,
    first: Ints,
    standing: Ints,
    gang: Ints,
    rows: Floats,
    whole: Floats,
    lease_seconds: float,
    to_the_end: bool,
) -> Tables:
    """By app: where its bids begin; by bid: GPUs and log 1 / rho; by app: how many of its rows are served in any case.

    `rows` has the seconds of work that a lease does on each, and its time to finish. `whole` has by app the work left,
    the seconds of future jobs after that, the age, the entitled GPUs and the ideal seconds.
    """
    total = 0
    for app in apps:
        total += first[app + 1] - first[app] + 1
    starts = np.zeros(len(apps) + 1, dtype=np.int64)
    gpus, value = np.empty(total, dtype=np.int64), np.empty(total)
    before = np.empty(len(apps), dtype=np.int64)
    end = 0
    for index in range(len(apps)):
        app = apps[index]
        low, high = first[app], first[app + 1]
        work_left, later, age, entitled, ideal = whole[:, app]
        served, used, kept, done, takes, best = 0, 0, -1, 0.0, 0.0, np.inf
        won = 0
        for place in range(high - low + 1):
            if place:
                row = low + place - 1
                if standing[row] > _WAITS:
                    break
                served += 1
                used += gang[row]
                done += gang[row] * rows[0, row]
                takes = max(takes, rows[1, row])
            if place < high - low and standing[low + place] == _KEEPS:
                won = used + gang[low + place]
                continue
            if kept < 0:
                kept = served
                won = used
            work = max(work_left - done, 0.0)
            shared = lease_seconds + work / entitled + later
            if to_the_end and used:
                shared = min(shared, max(takes, work_left / used) + later)
            if work <= _TINY:
                shared = min(shared, takes + later)
            best = min(best, shared)
            gpus[end] = used - won
            # Not the logarithm of numpy, which is vectorised on some processors, and differs in the last bit.
            value[end] = -math.log(max((age + best) / ideal, _TINY))
            end += 1
        before[index] = max(kept, 0)
        starts[index + 1] = end
    return starts, gpus[:end], value[:end], before
