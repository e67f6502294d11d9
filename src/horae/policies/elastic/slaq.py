"""SLAQ (SoCC'17): GPUs where the training loss falls most in the coming epoch.

Every epoch each job gets its smallest gang; then the job with the largest predicted additional loss reduction per added
GPU repeatedly grows by one step of its ladder. The loss of a job whose curve is not known falls as 1 / (1 + fraction of
its steps); a job of unknown length is assumed to run for as long as it has so far plus an epoch. Where the smallest
gangs do not all fit, those whose loss falls most per GPU come first.

Sizes change at multiples of `epoch_seconds`: leases end there. A job that is resized loses its restart time within the
epoch; it is resized only if its loss still falls by more (`damping` 0: restarts are ignored, as in the paper).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from horae.model.arrays import Floats, Ints
from horae.model.decisions import Grants
from horae.model.view import View
from horae.policies.elastic.loss_curves import loss_drop
from horae.policies.elastic.optimus import check_damping, check_interval
from horae.policies.elastic.sizes import Ladders, by_step, climb, damped, gpus_of, ladders_of, resizing, until_boundary


@dataclass(frozen=True)
class Slaq:
    name: ClassVar[str] = "slaq"
    uses_lengths: ClassVar[bool] = True
    epoch_seconds: float = 300.0  # sizes change at multiples of this
    damping: float = 1.0  # how many restarts a change of size is assumed to cost

    def __post_init__(self) -> None:
        check_interval("epoch_seconds", self.epoch_seconds)
        check_damping(self.damping)

    def decide(self, view: View) -> Grants:
        jobs, ladders = view.jobs, ladders_of(view)
        drop = loss_drop(jobs, ladders.speed, self.epoch_seconds)
        order = np.lexsort((jobs.serial, -drop[:, 0] / np.maximum(ladders.gpus[:, 0], 1)))
        rung = climb(ladders, order, by_step(ladders, drop))
        rung = damped(ladders, rung, -drop, self._lost(view, ladders, rung))
        lease = until_boundary(view.now, self.epoch_seconds)
        return resizing(view, ladders.accelerator, gpus_of(view, ladders, rung), order, lease)

    def _lost(self, view: View, ladders: Ladders, rung: Ints) -> Floats:
        """By job: the part of its loss reduction lost to its restart, at its new size."""
        there = ladders.speed[np.arange(len(rung)), np.maximum(rung, 0)]
        working_seconds = np.maximum(self.epoch_seconds - self.damping * view.jobs.restart_seconds, 0.0)
        whole = loss_drop(view.jobs, there[:, None], self.epoch_seconds)
        part = loss_drop(view.jobs, (there * working_seconds / self.epoch_seconds)[:, None], self.epoch_seconds)
        return (whole - part)[:, 0]
