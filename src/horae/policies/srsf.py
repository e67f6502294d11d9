"""Shortest remaining service first: the believed time left times the GPUs of the gang; preempts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from horae.model.decisions import Ranking
from horae.model.view import View


@dataclass(frozen=True)
class Srsf:
    name: ClassVar[str] = "srsf"
    backfill: bool = True  # let larger jobs pass a head that does not fit

    def decide(self, view: View) -> Ranking:
        jobs = view.jobs
        order = np.lexsort((jobs.serial, jobs.seconds_left * jobs.gpus))
        # It stands until something happens: whoever runs only draws further ahead of those who wait.
        return Ranking(order, preemptive=True, blocking=not self.backfill)
