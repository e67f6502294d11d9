"""A generated workload: one draw per seed. It is sent to workers as parameters, and each worker draws for itself.

Separate from other workloads, because generators make tables, and a worker with a recorded trace does not need the
libraries for these.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from horae.model.cluster import Cluster
from horae.model.jobs import Arrival
from horae.model.serialization import to_plain
from horae.speed.table import SpeedBook
from horae.traces.generators import Generator
from horae.traces.jobs import arrivals
from horae.traces.trace import Trace, no_jobs


@dataclass(frozen=True)
class GeneratedWorkload:
    generator: Generator
    cluster: Cluster
    speeds: SpeedBook | None = None
    whole_nodes: bool = True
    strict: bool = False
    is_recorded: ClassVar[bool] = False

    def digest(self, seed: int) -> str:
        """A digest of the parameters without the seed, which each run adds itself."""
        return self._digest

    @cached_property
    def _digest(self) -> str:
        recipe = {"generator": self.generator.name, **{name: to_plain(value) for name, value in self._facts.items()}}
        return hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()

    @property
    def _facts(self) -> dict[str, object]:
        measured = None if self.speeds is None else self.speeds.measurements
        return {"options": self.generator, "cluster": self.cluster, "speeds": measured, "whole_nodes": self.whole_nodes}

    def __call__(self, seed: int) -> list[Arrival]:
        return jobs_of(self.generator.trace(seed), self.cluster, self.speeds, self.whole_nodes, self.strict)[1]


def jobs_of(
    trace: Trace, cluster: Cluster, speeds: SpeedBook | None, whole_nodes: bool, strict: bool
) -> tuple[Trace, list[Arrival]]:
    """The jobs, and the trace with the rows that cannot be jobs of this cluster among its faults."""
    jobs, faults = arrivals(trace, cluster, speeds, whole_nodes=whole_nodes)
    trace = trace.without(faults)
    if strict:
        trace.strict()
    if not jobs:
        raise trace.faults[0].error(trace.source) if trace.faults else no_jobs(trace.source)
    return trace, jobs
