"""The values of an app's bundles, compiled: hundreds of bundles of up to a hundred jobs, for every app and auction."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from horae.compiling import kernel
from horae.model.arrays import Floats, Ints

_KEEPS, _RENEWS, _WAITS = 0, 1, 2

Sums: TypeAlias = tuple[Ints, Floats, Floats, Floats]


@kernel(small=20_000)
def serve(counts: Ints, standing: Ints, home: Ints, turn: Ints) -> Ints:
    """By row: the type on which it is served if so many jobs of its app are on each; -1: none.

    `home` is the type where it is, `turn` has the types that it accepts, the fastest first. Rows are served in their
    order: one that accepts nothing of what is left is passed over.
    """
    served = np.full(len(standing), -1, dtype=np.int64)
    left = counts.copy()
    for row in range(len(standing)):
        if standing[row] == _KEEPS:
            served[row] = home[row]
        elif standing[row] == _RENEWS and home[row] >= 0 and left[home[row]] > 0:
            served[row] = home[row]
            left[home[row]] -= 1
        elif standing[row] == _WAITS:
            for kind in turn[row]:
                if kind >= 0 and left[kind] > 0:
                    served[row] = kind
                    left[kind] -= 1
                    break
    return served


@kernel(small=5_000)
def sums(counts: Ints, standing: Ints, home: Ints, turn: Ints, gpus: Ints, rows: Floats) -> Sums:
    """By bundle: GPUs of each type beyond those kept in any case; work; seconds of the longest; and strength.

    `rows` has by row and type the work of a lease, the seconds until its end, and the worth of its GPUs in those of its
    reference shape.
    """
    used = np.zeros_like(counts)
    work, longest, strength = np.zeros(len(counts)), np.zeros(len(counts)), np.zeros(len(counts))
    for bundle in range(len(counts)):
        served = serve(counts[bundle], standing, home, turn)
        for row in range(len(served)):
            kind = served[row]
            if kind < 0:
                continue
            if standing[row] != _KEEPS:
                used[bundle, kind] += gpus[row, kind]
            work[bundle] += rows[0, row, kind]
            longest[bundle] = max(longest[bundle], rows[1, row, kind])
            strength[bundle] += rows[2, row, kind]
    return used, work, longest, strength
