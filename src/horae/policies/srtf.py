"""Shortest remaining time first, by the believed time left in the job's reference shape; preempts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from horae.model.decisions import Ranking
from horae.model.view import View


@dataclass(frozen=True)
class Srtf:
    name: ClassVar[str] = "srtf"
    backfill: bool = True  # let longer jobs pass a head that does not fit

    def decide(self, view: View) -> Ranking:
        jobs = view.jobs
        order = np.lexsort((jobs.serial, jobs.seconds_left))
        # It stands until something happens: whoever runs only draws further ahead of those who wait.
        return Ranking(order, preemptive=True, blocking=not self.backfill)
