"""The integer program of Sia (SOSP'23, section 3.4): for each job at most one pair of a GPU type and a count."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from horae.model.arrays import Bools, Floats, Ints
from horae.model.view import View
from horae.policies.ladders import gpus_left
from horae.policies.solve.answers import Unsolved
from horae.policies.solve.mixed import Program, Triplets, solve

_WHOLE = 1e-6


class _Columns(NamedTuple):
    """The pairs that may be chosen."""

    row: Ints  # of the view, by serial
    job: Ints  # positions 0, 1, … of these rows
    kind: Ints  # GPU type
    gpus: Ints
    worth: Floats  # by how much less the job adds to the sum than if it were left out


def best_pairs(view: View, power: float, left_out: float) -> tuple[Ints, Ints]:
    """By row: the GPU type and the count of the best pair; 0 GPUs for those left out and for who keeps what it has."""
    jobs = view.jobs
    accelerator, gpus = np.full(len(jobs), -1), np.zeros(len(jobs), dtype=np.int64)
    contends = jobs.pending | jobs.contestable
    columns = _columns(view, contends, power, left_out)
    if len(columns.row):
        left = gpus_left(view, contends & _choices(view).any(axis=1))
        chosen = np.flatnonzero(_chosen(columns, left.astype(np.float64)))
        accelerator[columns.row[chosen]], gpus[columns.row[chosen]] = columns.kind[chosen], columns.gpus[chosen]
    return accelerator, gpus


def _choices(view: View) -> Bools:
    """By row and option: the fastest of those with its GPU type and count, the first of equally fast ones."""
    jobs = view.jobs
    kind, gpus = view.shape_accelerator[jobs.shape], view.shape_gpus[jobs.shape]
    accepted = (jobs.shape >= 0) & (kind >= 0) & (jobs.speed > 0)
    same = (kind[:, :, None] == kind[:, None, :]) & (gpus[:, :, None] == gpus[:, None, :]) & accepted[:, None, :]
    place = np.arange(jobs.shape.shape[1])
    mine, theirs = jobs.speed[:, :, None], jobs.speed[:, None, :]
    better = (theirs > mine) | ((theirs == mine) & (place[None, None, :] < place[None, :, None]))
    return accepted & ~(same & better).any(axis=2)


def _columns(view: View, contends: Bools, power: float, left_out: float) -> _Columns:
    jobs = view.jobs
    choices = _choices(view) & contends[:, None]
    rows = np.flatnonzero(choices.any(axis=1))
    rows = rows[np.argsort(jobs.serial[rows])]
    goodput = np.where(choices[rows], jobs.speed[rows], np.inf)
    least = goodput.min(axis=1, initial=np.inf)
    job, option = np.nonzero(choices[rows])
    row = rows[job]
    shape = jobs.shape[row, option]
    kind, gpus = view.shape_accelerator[shape], view.shape_gpus[shape]
    present = jobs.shape[row, jobs.option[row]]
    stays = (view.shape_accelerator[present] == kind) & (jobs.held_gpus[row] == gpus)
    age = view.now - jobs.submitted_at[row]
    restart = jobs.restart_seconds[row]
    factor = np.where(jobs.running[row] & ~stays & (restart > 0), age / np.maximum(age + restart, 1e-9), 1.0)
    adds = np.maximum(factor * goodput[job, option] / least[job], 1e-9) ** power
    return _Columns(row, job, kind, gpus, left_out - adds)


def _chosen(columns: _Columns, gpus_left: Floats) -> Bools:
    """By column: whether it is in the best answer."""
    count, jobs = len(columns.row), int(columns.job[-1]) + 1
    places = np.arange(count)
    triplets = (
        Triplets(columns.job, places, np.ones(count)),
        Triplets(jobs + columns.kind, places, columns.gpus.astype(np.float64)),
    )
    high = np.concatenate([np.ones(jobs), gpus_left])
    relaxed = Program(columns.worth, triplets, np.full(len(high), -np.inf), high, np.ones(count))
    found = solve("goodput, relaxed", relaxed)
    assert found is not None, "to leave everybody out is a solution"
    if (np.minimum(found.columns, 1 - found.columns) < _WHOLE).all():
        return found.columns > 0.5
    try:
        whole = solve("goodput", relaxed._replace(whole=np.ones(count, dtype=bool)))
    except Unsolved:
        return rounded(columns.job, columns.kind, columns.gpus, columns.worth, found.columns, gpus_left)
    assert whole is not None
    return whole.columns > 0.5


def rounded(job: Ints, kind: Ints, gpus: Ints, worth: Floats, part: Floats, gpus_left: Floats) -> Bools:
    """Columns of a relaxed answer as whole ones: what is whole stays, the best that has room for the others."""
    chosen = part > 1 - _WHOLE
    left = gpus_left - np.bincount(kind[chosen], gpus[chosen], minlength=len(gpus_left))
    torn = np.unique(job[(part > _WHOLE) & ~chosen])
    served = set(job[chosen].tolist())
    candidates = np.flatnonzero(np.isin(job, torn) & (worth > 0))
    for column in candidates[np.lexsort((candidates, -worth[candidates]))].tolist():
        if int(job[column]) not in served and gpus[column] <= left[kind[column]]:
            served.add(int(job[column]))
            left[kind[column]] -= gpus[column]
            chosen[column] = True
    return chosen
