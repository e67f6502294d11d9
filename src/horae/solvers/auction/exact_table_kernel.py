"""An auction of few GPUs, compiled: a table of the best welfare for every part of the offer, app after app.

Exact for any bids. Without an app, the others divide the offer in two: the apps before it have one part, those after it
the rest.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from horae.compiling import kernel
from horae.model.arrays import Floats, Ints
from horae.solvers.auction.prices_kernel import Lots
from horae.solvers.levels.pricing_kernel import part


class Exact(NamedTuple):
    pick: Ints  # by app: its bundle in the lots
    welfare: float
    others: Floats  # by app: the best welfare of the others without it


@part
def _add(lots: Lots, app: int, shape: Ints, before: Floats, after: Floats) -> None:
    """Extend the table by one app. Tables are flat and always of four types, the last of them contiguous."""
    after[:] = -np.inf
    types = lots.gpus.shape[1]
    gpus = np.zeros(4, np.int64)
    for bundle in range(lots.start[app], lots.start[app + 1]):
        for kind in range(types):
            gpus[4 - types + kind] = lots.gpus[bundle, kind]
        value = lots.value[bundle]
        back = ((gpus[0] * shape[1] + gpus[1]) * shape[2] + gpus[2]) * shape[3] + gpus[3]
        for first in range(gpus[0], shape[0]):
            for second in range(gpus[1], shape[1]):
                for third in range(gpus[2], shape[2]):
                    row = ((first * shape[1] + second) * shape[2] + third) * shape[3]
                    for cell in range(row + gpus[3], row + shape[3]):
                        after[cell] = max(after[cell], before[cell - back] + value)


@part
def _choice(lots: Lots, app: int, shape: Ints, before: Floats, here: Ints, welfare: float) -> int:
    """The first bundle with which the table has that welfare for `here`, which is then reduced by the bundle."""
    types = lots.gpus.shape[1]
    for bundle in range(lots.start[app], lots.start[app + 1]):
        cell, fits = 0, True
        for kind in range(4):
            gpus = lots.gpus[bundle, kind + types - 4] if kind + types >= 4 else 0
            fits = fits and gpus <= here[kind]
            cell = cell * shape[kind] + here[kind] - gpus
        if fits and before[cell] + lots.value[bundle] == welfare:
            for kind in range(types):
                here[4 - types + kind] -= lots.gpus[bundle, kind]
            return bundle
    return -1


@kernel(error_model="numpy", small=2_000)
def settle_by_table(lots: Lots, offer: Ints) -> Exact:
    apps, types = len(lots.start) - 1, len(offer)
    shape = np.ones(4, np.int64)
    for kind in range(types):
        shape[4 - types + kind] = offer[kind] + 1
    cells = shape[0] * shape[1] * shape[2] * shape[3]
    tables = np.zeros((apps + 1, cells))
    for app in range(apps):
        _add(lots, app, shape, tables[app], tables[app + 1])
    pick, others = np.empty(apps, np.int64), np.empty(apps)
    here, after, fresh = shape - 1, np.zeros(cells), np.empty(cells)
    for app in range(apps - 1, -1, -1):
        cell = ((here[0] * shape[1] + here[1]) * shape[2] + here[2]) * shape[3] + here[3]
        pick[app] = _choice(lots, app, shape, tables[app], here, tables[app + 1, cell])
        best = -np.inf
        for part_of_offer in range(cells):
            best = max(best, tables[app, part_of_offer] + after[cells - 1 - part_of_offer])
        others[app] = best
        _add(lots, app, shape, after, fresh)
        after, fresh = fresh, after
    return Exact(pick, tables[apps, cells - 1], others)
