"""How long a search by successive halving takes on so many GPUs (Themis, NSDI'20, section 4).

Its phases follow each other. In each, the jobs share the app's GPUs, each up to its own cap; where there are fewer GPUs
than jobs they take turns, the longest first. The survivors are unknown, so later phases are estimated with the median
job.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from horae.model.errors import JobError


@dataclass(frozen=True, slots=True)
class BidPhase:
    serial_seconds: tuple[float, ...]  # of each job, on one GPU
    gpus_max: int  # of each job

    def __post_init__(self) -> None:
        if not self.serial_seconds or self.gpus_max < 1:
            raise JobError(
                "a phase has no jobs, or no GPUs for them", field="app", remedy="give it at least one of each"
            )

    @property
    def gpu_seconds(self) -> float:
        return sum(self.serial_seconds)

    def makespan_seconds(self, gpus: int, slowdown: float = 1.0) -> float:
        jobs = len(self.serial_seconds)
        if gpus < 1:
            return inf
        longest_first = sorted(self.serial_seconds, reverse=True)
        if gpus < jobs:
            ends = [0.0] * gpus
            for seconds in longest_first:
                heapq.heappush(ends, heapq.heappop(ends) + seconds)
            return max(ends) * slowdown
        share, more = divmod(gpus, jobs)
        shares = [min(share + (index < more), self.gpus_max) for index in range(jobs)]
        return max(seconds / own for seconds, own in zip(longest_first, shares, strict=True)) * slowdown


def shared_seconds(phases: Sequence[BidPhase], gpus: int, age_seconds: float = 0.0, slowdown: float = 1.0) -> float:
    """T_sh: its age and all remaining phases, on so many GPUs to the end."""
    return age_seconds + sum(phase.makespan_seconds(gpus, slowdown) for phase in phases)


def ideal_seconds(phases: Sequence[BidPhase], cluster_gpus: int, apps: float) -> float:
    """T_id of the paper: all work on the whole cluster, as far as the app can use it, times the number of apps."""
    at_most = len(phases[0].serial_seconds) * phases[0].gpus_max
    return sum(phase.gpu_seconds for phase in phases) / min(cluster_gpus, at_most) * apps
