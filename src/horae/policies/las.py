"""Least attained service: whoever has had the fewest GPU-seconds runs first."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import ClassVar

import numpy as np

from horae.model.decisions import Ranking
from horae.model.view import View


@dataclass(frozen=True)
class Las:
    name: ClassVar[str] = "las"

    def decide(self, view: View) -> Ranking:
        jobs = view.jobs
        order = np.lexsort((jobs.serial, jobs.submitted_at, jobs.service_gpu_seconds))
        # Whoever runs falls back continuously; with nobody waiting that changes nothing.
        stands_until = view.now if jobs.waiting.any() else inf
        return Ranking(order, preemptive=True, stands_until=stands_until)
