"""Goodput (Pollux, OSDI'21; Sia, SOSP'23): GPUs where training advances most, each job by its own measure.

The goodput of a shape is the believed speed of the job there: how far it advances, not how many samples it sees. Where
a trace has profiles of statistical efficiency, that is part of its speeds; batch sizes are not tuned here.

`variant = "sia"`: for each job at most one pair of a GPU type and a count, so that the sum of

    (r x G) ^ power            for each job that has GPUs (power -0.5: the smaller the better)
    left_out                   for each that has none (without this the empty answer would win)

is least. G is the goodput over the least that the job has in any shape. r, for shapes other than the present one of a
job that runs, is age / (age + restart): what is left of its time after a restart. The paper also counts former restarts
in r, which the view does not tell. It is solved as an integer program; one that takes too long is rounded: its linear
relaxation leaves no more jobs between two choices than there are GPU types, and they get what then has room.

`variant = "pollux"`: the harmonic mean (power -1) of speed-ups over an equal share of the GPUs, step by step to the job
with the largest gain for each GPU. The paper searches with a genetic algorithm and places GPUs too; jobs keep to one
GPU type here, and who runs grows only if that saves more than its restart, in the time that its work left takes.

Sizes change at multiples of `interval_seconds`: leases end there.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import ClassVar

import numpy as np

from horae.model.decisions import Grants
from horae.model.errors import PolicyError
from horae.model.view import View
from horae.policies.goodput_program import best_pairs
from horae.policies.ladders import by_step, climb, damped, gpus_of, ladders_of, resizing, seconds_at, until_boundary
from horae.policies.losses import steps_believed
from horae.policies.optimus import check_interval


@dataclass(frozen=True)
class Goodput:
    name: ClassVar[str] = "goodput"
    variant: str = "sia"  # or pollux
    power: float = -0.5  # of the normalised goodput, for sia; nearer to 0 is less fair
    left_out: float = 1.1  # what a job without GPUs adds to the sum, for sia; one in its worst shape adds 1
    interval_seconds: float = 60.0  # sizes change at multiples of this

    def __post_init__(self) -> None:
        if self.variant not in ("sia", "pollux"):
            raise PolicyError(f"variant is {self.variant!r}", field="variant", remedy="choose sia or pollux")
        if not -inf < self.power < 0:
            raise PolicyError(f"power is {self.power}", field="power", remedy="give a number below 0: -0.5")
        if not 1 < self.left_out < inf:
            raise PolicyError(f"left_out is {self.left_out}", field="left_out", remedy="give more than 1: 1.1")
        check_interval("interval_seconds", self.interval_seconds)

    def decide(self, view: View) -> Grants:
        return self._pollux(view) if self.variant == "pollux" else self._sia(view)

    def _sia(self, view: View) -> Grants:
        accelerator, gpus = best_pairs(view, self.power, self.left_out)
        # The largest gangs are placed first: small ones find room anywhere.
        order = np.lexsort((view.jobs.serial, -gpus))
        return resizing(view, accelerator, gpus, order, until_boundary(view.now, self.interval_seconds))

    def _pollux(self, view: View) -> Grants:
        jobs, ladders = view.jobs, ladders_of(view)
        everybody = np.arange(len(jobs))
        contenders = np.bincount(ladders.accelerator[ladders.contends], minlength=len(view.capacity))
        equal = ladders.gpus_left / np.maximum(contenders, 1)
        is_rung = np.arange(ladders.gpus.shape[1]) < ladders.rungs[:, None]
        fair = (is_rung & (ladders.gpus <= equal[ladders.accelerator][:, None])).sum(axis=1)
        fair_speed = ladders.speed[everybody, np.maximum(fair - 1, 0)]
        slowness = np.where(is_rung, fair_speed[:, None] / np.where(is_rung, ladders.speed, 1.0), 0.0)
        order = np.lexsort((jobs.serial, jobs.submitted_at, ~jobs.running))
        steps = np.maximum(steps_believed(jobs, self.interval_seconds) - jobs.steps_done, 0.0)
        rung = climb(ladders, order, by_step(ladders, -slowness))
        rung = damped(ladders, rung, seconds_at(ladders, steps), jobs.restart_seconds)
        lease = until_boundary(view.now, self.interval_seconds)
        return resizing(view, ladders.accelerator, gpus_of(view, ladders, rung), order, lease)
