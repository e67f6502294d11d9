"""A policy of your own: the job with the most GPUs first, and backfilling behind it."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

import horae
from horae import samples


@dataclass(frozen=True)
class LargestFirst:
    name: ClassVar[str] = "largest-first"

    def decide(self, view: horae.View) -> horae.Ranking:
        jobs = view.jobs
        waiting = np.flatnonzero(jobs.pending)
        return horae.Ranking(waiting[np.lexsort((jobs.serial[waiting], -jobs.gpus[waiting]))])


horae.check_policy(LargestFirst)  # deterministic, feasible, independent of the order of jobs
cluster = horae.load_cluster(samples.CLUSTER, cadence="events")
jobs = horae.load_jobs(samples.JOBS, cluster)
print(horae.compare(cluster, jobs, ["fifo", LargestFirst]).to_markdown())
