"""Shortest job first, by the believed run time in the job's reference shape; never preempts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from horae.model.decisions import Ranking
from horae.model.view import View


@dataclass(frozen=True)
class Sjf:
    name: ClassVar[str] = "sjf"
    backfill: bool = False  # let longer jobs pass a head that does not fit

    def decide(self, view: View) -> Ranking:
        jobs = view.jobs
        waiting = jobs.pending.nonzero()[0]
        order = np.lexsort((jobs.serial[waiting], jobs.seconds_total[waiting]))
        return Ranking(waiting[order], blocking=not self.backfill)
