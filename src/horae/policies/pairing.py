"""Two jobs on the same GPUs: their combined speed, and random pairs that are stable over time."""

from __future__ import annotations

import numpy as np

from horae.model.arrays import Bools, Floats, Ints
from horae.model.errors import PolicyError, bounded
from horae.model.view import View
from horae.policies.stable_random import Lots, draw, mix

_NEVER = np.uint64(2**64 - 1)  # the number of a pair that is not possible
_CROWD = 512  # partners are sought among at most about this many jobs, to keep the table of pairs small


def check_packing_min(packing_min: float) -> None:
    if not packing_min >= 0:
        raise PolicyError(f"packing_min is {packing_min}", field="packing_min", remedy="give 0 or more")


def combined(view: View, models: tuple[Ints, Ints], shapes: tuple[Ints, Ints]) -> Floats:
    """The sum of the fractions of their speeds that two models keep; 0 where they do not fit or sharing is disabled."""
    if not len(view.kept):
        return np.zeros(np.broadcast_shapes(models[0].shape, models[1].shape, shapes[0].shape, shapes[1].shape))
    first = view.kept[models[0], models[1], shapes[0]]
    second = view.kept[models[1], models[0], shapes[1]]
    return np.where((first > 0) & (second > 0), first + second, 0.0)


def random_pairs(seed: int, serial: Ints, kind: Ints, matches: Bools) -> tuple[Ints, Ints]:
    """Random pairs of rows whose kinds match, in the order of their serials; a job without a partner stays alone.

    Every pair of jobs has a random number, and the pair with the lowest goes first. Removing a pair leaves the others
    unchanged, and a new job changes few of them: a job that loses its partner to it takes one with a higher number.
    """
    lots = draw(seed, serial)
    crowds = 1 << max(int(np.ceil(np.log2(max(len(serial), 1) / _CROWD))), 0)
    crowd = lots % np.uint64(crowds)
    parts = []
    for number in range(crowds):  # hundreds of jobs each
        rows = np.flatnonzero(crowd == number)
        rows = rows[np.argsort(serial[rows])]
        parts.append(rows[_lowest_lots_first(lots[rows], matches[kind[rows][:, None], kind[rows]])])
    pairs = np.concatenate(parts)
    pairs = pairs[np.argsort(serial[pairs[:, 0]])]
    return pairs[:, 0], pairs[:, 1]


def _lowest_lots_first(lots: Lots, matches: Bools) -> Ints:
    """Two columns of rows: a pair forms as soon as each of the two is the other's lowest number among unpaired rows."""
    table = np.where(matches, mix(lots[:, None] + lots), _NEVER)
    np.fill_diagonal(table, _NEVER)
    alone = np.arange(len(lots))
    made = [np.empty((0, 2), dtype=np.int64)]
    for _ in bounded(len(lots) + 1, "pairing jobs by lot"):
        if not len(alone):
            break
        choice = table.argmin(axis=1)
        here = np.arange(len(alone))
        mutual = (choice[choice] == here) & (table[here, choice] < _NEVER)
        if not mutual.any():
            break
        first = here[mutual & (here < choice)]
        made.append(np.column_stack([alone[first], alone[choice[first]]]))
        left = ~mutual & (table[here, choice] < _NEVER)
        alone, table = alone[left], table[left][:, left]
    return np.concatenate(made)
