"""A generated workload: one draw per seed. It is sent to workers as parameters, and each worker draws for itself.

Separate from other workloads, because generators make tables, and a worker with a recorded trace does not need the
libraries for these.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

from horae.model.cluster import Cluster
from horae.model.jobs import Arrival
from horae.model.serialization import to_plain
from horae.speed.table import SpeedBook
from horae.traces.generators import Generator
from horae.traces.jobs import JobRules, jobs_of


@dataclass(frozen=True)
class GeneratedWorkload:
    generator: Generator
    cluster: Cluster
    rules: JobRules = field(default_factory=JobRules)
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
        measured = self.rules.speeds.measurements if isinstance(self.rules.speeds, SpeedBook) else None
        return {
            "options": self.generator,
            "cluster": self.cluster,
            "speeds": measured,
            "whole_nodes": self.rules.whole_nodes,
            "types": dict(self.rules.types),
            "tenants": list(self.rules.tenants),
        }

    def __call__(self, seed: int) -> list[Arrival]:
        return jobs_of(self.generator.trace(seed), self.cluster, self.rules)[1]
