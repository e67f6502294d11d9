"""Gandiva as the evaluation of Themis (NSDI'20, section 8) ran it: GPUs to the app with the best placement score.

An app's score is how tightly its next gang can be placed on GPUs that are free or under a lease that has ended: in one
node before one rack before the cluster. At equal levels the larger gang comes first, then running jobs, then the
earliest. No fairness is involved and no app waits for its turn, so gangs can be taken one by one whatever their app.

A gang counts on the GPU type of the first of its shapes that the pool has, or on the type where it runs.
"""

from __future__ import annotations

import numpy as np

from horae.model.arrays import Bools, Ints
from horae.model.cluster import NODE
from horae.model.decisions import Grants
from horae.model.errors import bounded
from horae.model.view import View
from horae_evaluation.themis.app_greedy import Contention, Win, field_of, grants


def best_placements_first(view: View, lease_seconds: float) -> Grants:
    jobs, field = view.jobs, field_of(view)
    gang = np.where(jobs.running, jobs.held_gpus, jobs.gpus)
    order = np.lexsort((jobs.serial, ~jobs.running, -gang))
    contenders = order[field.contends[order] & field.offers[order].any(axis=1)]
    first = field.offers[contenders].argmax(axis=1)
    shape = jobs.shape[contenders, first]
    gangs = view.shape_gpus[shape]
    contenders, gangs, kind = (
        column[np.argsort(-gangs, kind="stable")] for column in (contenders, gangs, view.shape_accelerator[shape])
    )
    wins: list[tuple[int, Win]] = []
    for number in np.unique(kind).tolist():
        mine = kind == number
        wins += _tightest(view, field, number, contenders[mine], gangs[mine])
    wins.sort(key=lambda win: win[0])  # all nodes of any type before any rack
    return grants(view, field, [win for _, win in wins], order, lease_seconds)


def _tightest(view: View, field: Contention, accelerator: int, rows: Ints, gangs: Ints) -> list[tuple[int, Win]]:
    """The winning gangs of one GPU type in order, with their levels. Rows come with the largest gang first."""
    jobs, name = view.jobs, view.accelerators[accelerator]
    levels = _accepted_levels(view, field, accelerator, rows)
    widest = levels.max(axis=1, initial=-1)
    taken = np.empty(0, dtype=np.int64)  # positions in these rows
    wins = []
    undecided = np.arange(len(rows))
    for level in range(view.levels.index(NODE), len(view.levels)):
        trying = undecided[widest[undecided] >= level]
        undecided = trying[:0]
        for _ in bounded(len(rows) + 1, "trying gangs at a level"):
            if not len(trying):
                break
            room = field.gpus_left[accelerator] - int(gangs[taken].sum())
            some = trying[: int(np.searchsorted(np.cumsum(gangs[trying]), room, side="right"))]
            tried = np.concatenate([taken, some])
            found = view.trial(jobs.contestable, name, gangs[tried])[len(taken) :] if len(some) else some
            count = int(np.argmin(np.append((found >= 0) & (found <= level), False)))
            taken = np.concatenate([taken, some[:count]])
            for place in some[:count].tolist():
                option = int(np.argmax(levels[place] >= level))
                wins.append((level, Win(int(rows[place]), option)))
            # Room only shrinks: a gang that fits in no such cell now never will, nor will another of its size.
            trying = trying[count:]
            failed = gangs[trying] == gangs[trying[0]] if len(trying) else np.zeros(0, dtype=bool)
            undecided, trying = np.concatenate([undecided, trying[failed]]), trying[~failed]
    return wins


def _accepted_levels(view: View, field: Contention, accelerator: int, rows: Ints) -> Ints:
    """By row and option: the level of an option on offer on this GPU type, -1 elsewhere."""
    shape = view.jobs.shape[rows]
    there: Bools = field.offers[rows] & (view.shape_accelerator[shape] == accelerator)
    return np.where(there, view.shape_level[shape], -1)
