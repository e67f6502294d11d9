"""AFS (NSDI'21): elastic sharing, one step at a time to the winner of a tournament between any two jobs.

Of two jobs without GPUs the shorter wins. Otherwise let a be the shorter of the two, with w_a GPUs and speed p_a(w_a);
the longer, b, wins if and only if

    (p_b(w_b + 1) - p_b(w_b)) / p_b(w_b + 1)  >  (p_a(w_a + 1) - p_a(w_a)) / p_a(w_a)

so that short jobs end early and efficient ones are not starved of GPUs. A job without GPUs has speed 0 and loses to no
longer job. Where a job accepts only some counts of GPUs, a step leads to its next larger count, and both sides are
divided by the GPUs that it adds. The shorter job is the one with less time left with its smallest gang, whatever it
holds now; a job of unknown length is assumed to run for as long as it has so far plus a quarter of an hour. The winner
meets all others in the order of their lengths. Jobs of different GPU types do not meet.

Sizes may change whenever a job arrives or ends. A resized job loses its restart time: a running job grows only if that
saves more than `damping` restarts, and shrinks only if another job can use the GPUs (0: as the tournament has it).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import ClassVar

import numpy as np

from horae.model.arrays import Ints
from horae.model.decisions import Grants
from horae.model.errors import bounded
from horae.model.view import View
from horae.policies.elastic.loss_curves import steps_believed
from horae.policies.elastic.optimus import check_damping
from horae.policies.elastic.sizes import NOTHING, Ladders, damped, gpus_of, ladders_of, resizing, seconds_at

_AHEAD_SECONDS = 900.0  # minimum remaining time assumed for a job of unknown length


@dataclass(frozen=True)
class Afs:
    name: ClassVar[str] = "afs"
    uses_lengths: ClassVar[bool] = True
    damping: float = 1.0  # a running job grows only to save more than this many restarts

    def __post_init__(self) -> None:
        check_damping(self.damping)

    def decide(self, view: View) -> Grants:
        jobs, ladders = view.jobs, ladders_of(view)
        steps = np.maximum(steps_believed(jobs, _AHEAD_SECONDS) - jobs.steps_done, 0.0)
        seconds = seconds_at(ladders, steps)
        order = np.lexsort((jobs.serial, seconds[:, 0]))
        rung = np.full(len(jobs), NOTHING)
        for kind in np.unique(ladders.accelerator[ladders.contends]).tolist():
            rows = order[(ladders.accelerator[order] == kind) & ladders.contends[order]]
            rung[rows] = _tournament(ladders, rows, int(ladders.gpus_left[kind]))
        rung = damped(ladders, rung, seconds, self.damping * jobs.restart_seconds)
        return resizing(view, ladders.accelerator, gpus_of(view, ladders, rung), order, (inf, 0.0))


def _tournament(ladders: Ladders, rows: Ints, left: int) -> Ints:
    """By row, the shortest first: the rung that it ends on."""
    gpus, speed = ladders.gpus[rows], ladders.speed[rows]
    last = ladders.rungs[rows] - 1
    rung = np.full(len(rows), NOTHING)
    attack = 1 / gpus[:, 0]  # against a shorter job: the left side of the rule above; -inf for jobs that are out
    defence = np.full(len(rows), inf)  # against a longer job: the right side
    for _ in bounded(left + len(rows) + 1, "the tournament for GPUs"):
        if left <= 0:
            break
        champion = int(np.argmax(attack > -inf))
        if attack[champion] == -inf:
            break
        challengers = attack > defence[champion]
        challengers[: champion + 1] = False
        while challengers.any():
            champion = int(challengers.argmax())
            challengers = attack > defence[champion]
            challengers[: champion + 1] = False
        at = int(rung[champion])
        more = int(gpus[champion, at + 1] - (gpus[champion, at] if at >= 0 else 0))
        if more > left:
            attack[champion] = -inf
            continue
        left -= more
        rung[champion] = at = at + 1
        if at == last[champion]:
            attack[champion] = -inf
            continue
        rise = (speed[champion, at + 1] - speed[champion, at]) / (gpus[champion, at + 1] - gpus[champion, at])
        attack[champion], defence[champion] = rise / speed[champion, at + 1], rise / speed[champion, at]
    return rung
