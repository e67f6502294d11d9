"""Gandiva by its own rules (OSDI'18, section 3): which jobs share GPUs, start sharing, and stop sharing.

A job that uses a GPU little keeps most of its speed beside another and takes little from it; so the pair that keeps
most in total goes first. A pair is dissolved when the two keep less than `packing_min` in total, and when there is room
for both and that pays for their restarts.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from horae.model.arrays import Bools, Floats, Ints
from horae.model.view import View
from horae.policies.gandiva.oversubscription import GangState, fit
from horae.policies.pairing import combined

_HAIR = 1e-12  # two halves are a whole, up to rounding


class PackedPairs(NamedTuple):
    first: Ints  # rows
    second: Ints

    def members(self, count: int) -> Bools:
        """By row: whether it is a member of a pair."""
        rows = np.zeros(count, dtype=bool)
        rows[self.first] = rows[self.second] = True
        return rows


def sharing_now(view: View, field: GangState, packing_min: float) -> tuple[PackedPairs, PackedPairs]:
    """The pairs that share GPUs and may be stopped: those that may continue, and those that keep too little speed."""
    jobs = view.jobs
    partner = jobs.partner
    first = np.flatnonzero(
        field.ladders.contends & jobs.running & (partner >= 0) & (jobs.serial < jobs.serial[partner])
    )
    first = first[np.argsort(jobs.serial[first])]
    good = is_worth(_together(view, first), packing_min)
    return PackedPairs(first[good], partner[first[good]]), PackedPairs(first[~good], partner[first[~good]])


def is_worth(together: Floats, packing_min: float) -> Bools:
    return (together > 0) & (together >= packing_min - _HAIR)


def _together(view: View, first: Ints) -> Floats:
    """By pair: the sum of the fractions of their speeds that the two keep where they are."""
    jobs, second = view.jobs, view.jobs.partner[first]
    shapes = jobs.shape[first, jobs.option[first]], jobs.shape[second, jobs.option[second]]
    return combined(view, (jobs.model[first], jobs.model[second]), shapes)


def undone_for_room(view: View, field: GangState, now: PackedPairs, need: Bools, steps: Floats) -> Bools:
    """By row: whether its pair is dissolved, because there is room for both beside the jobs in `need` and it pays.

    Pairs that keep least go first. It pays if the two would do more steps alone within the horizon, net of their
    restarts.
    """
    jobs, first, second = view.jobs, now.first, now.second
    together = _together(view, first)
    seconds = np.minimum(*(steps[rows] / jobs.speed[rows, jobs.option[rows]] for rows in now))
    restarts = jobs.restart_seconds[first] + jobs.restart_seconds[second]
    pays = 2 * seconds - restarts > together * seconds
    order = np.flatnonzero(pays)[np.lexsort((jobs.serial[first[pays]], together[pays]))]
    undone = np.zeros(len(jobs), dtype=bool)
    kinds = field.ladders.accelerator
    for kind in np.unique(kinds[first[order]]).tolist():
        mine = order[kinds[first[order]] == kind]
        members = np.column_stack([first[mine], second[mine]])
        undone[members[: _with_room(view, field, members, np.flatnonzero(need & (kinds == kind)))]] = True
    return undone


def _with_room(view: View, field: GangState, members: Ints, waiting: Ints) -> int:
    """How many of these pairs of one GPU type, from the first on, can be dissolved beside the waiting jobs."""
    jobs = view.jobs
    waiting = waiting[np.lexsort((jobs.serial[waiting], -field.gang[waiting]))]
    count = len(members)
    while count:
        gone = field.grown & (field.ladders.accelerator == field.ladders.accelerator[members[0, 0]])
        gone[members[:count]] = True
        placed = fit(view, field, gone, np.concatenate([waiting, members[:count].ravel()]))
        if placed.all():
            break
        # Pairs that are not dissolved keep their GPUs, so there is less room than assumed here.
        count = min(count - 1, max(int(np.argmin(placed)) - len(waiting), 0) // 2)
    return count


def begin(view: View, field: GangState, rows: Ints, short: int, packing_min: float) -> PackedPairs:
    """New pairs of these rows of one GPU type, until so many GPUs are saved or no two jobs are left that match.

    Rows come in the order in which they are served.
    """
    jobs = view.jobs
    model, gang, shape = jobs.model[rows], field.gang[rows], jobs.shape[rows, field.fastest[rows]]
    _, example, group = np.unique(np.column_stack([model, gang]), axis=0, return_index=True, return_inverse=True)
    models, shapes = (
        (model[example][:, None], model[example][None, :]),
        (shape[example][:, None], shape[example][None, :]),
    )
    together = combined(view, models, shapes)
    worth = is_worth(together, packing_min) & (gang[example][:, None] == gang[example])
    one, other = np.nonzero(np.triu(worth))
    best = np.lexsort((other, one, -together[one, other]))
    members = [rows[group.ravel() == number].tolist()[::-1] for number in range(len(example))]
    first, second = [], []
    for a, b in zip(one[best].tolist(), other[best].tolist(), strict=True):
        while short > 0 and members[a] and members[b] and (a != b or len(members[a]) > 1):
            first.append(members[a].pop())
            second.append(members[b].pop())
            short -= int(gang[example[a]])
    return PackedPairs(np.array(first, dtype=np.int64), np.array(second, dtype=np.int64))
