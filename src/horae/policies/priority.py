"""Strict priorities, first come, first served within one; preempts lower priorities only (HiveD, OSDI'20, section 4).

A job that runs comes before those of its own priority that wait: equals do not displace each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from horae.model.decisions import Ranking
from horae.model.view import View


@dataclass(frozen=True)
class Priority:
    name: ClassVar[str] = "priority"
    backfill: bool = True  # let jobs pass one of higher or equal priority that does not fit

    def decide(self, view: View) -> Ranking:
        jobs = view.jobs
        order = np.lexsort((jobs.serial, jobs.submitted_at, ~jobs.running, -jobs.priority))
        return Ranking(order, preemptive=True, blocking=not self.backfill)
