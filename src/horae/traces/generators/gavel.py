"""The workload of Gavel's simulations (OSDI'20, section 7.1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from horae.model.arrays import Floats, Ints
from horae.model.cluster import NODE
from horae.model.speeds import Measurement
from horae.traces.generators.base import (
    GANG_PROBABILITIES,
    GANGS,
    HOUR,
    arrivals_at,
    gangs_of,
    made_trace,
    names,
    require,
    require_count,
    require_gangs,
    require_positive,
    require_share,
    stream,
)
from horae.traces.trace import Trace

LONG_SHARE = 0.2
SHORT_EXPONENTS, LONG_EXPONENTS = (1.5, 3.0), (3.0, 4.0)  # of ten, in minutes


def reference_speeds(measurements: Iterable[Measurement], accelerator: str = "v100") -> dict[tuple[str, int], float]:
    """Steps per second by job type and GPUs, in one node of the reference type."""
    return {
        (row.model, row.shape.gpus): row.steps_per_second
        for row in measurements
        if row.shape.accelerator == accelerator and row.shape.level == NODE and row.steps_per_second > 0
    }


@dataclass(frozen=True)
class GavelWorkload:
    """Poisson arrivals; run times of 10^u minutes on the reference type, u uniform in 1.5-3 (80%) or in 3-4 (20%).

    The job type is drawn after the gang, uniformly among those that exist at that size (as drawing again until one
    does). Steps are the run time times the reference speed at that size, so that the time on another type follows from
    a speed table.
    """

    name: ClassVar[str] = "gavel"

    reference: Mapping[tuple[str, int], float] = field(default_factory=dict)  # V100 steps/s by (job type, GPUs)
    jobs: int = 5000
    jobs_per_hour: float = 4.8
    multi_gpu: bool = False  # gangs of 1, 2, 4 and 8 instead of 1 only
    gangs: tuple[int, ...] = GANGS
    gang_probabilities: tuple[float, ...] = GANG_PROBABILITIES
    weighted_share: float = 0.0  # of the jobs, at `high_weight`; 0.2 in the paper's runs with priorities
    high_weight: float = 5.0
    slo_factors: tuple[float, ...] = ()  # deadline: this many run times after submission; (1.2, 2, 10) in the paper

    def __post_init__(self) -> None:
        require_count(self, "jobs")
        require_positive(self, "jobs_per_hour", "high_weight")
        require_share(self, "weighted_share")
        require_gangs(self.gangs, self.gang_probabilities)
        require(all(factor > 0 for factor in self.slo_factors), "slo_factors", self.slo_factors, "give numbers above 0")
        for gpus in self.gangs if self.multi_gpu else (1,):
            remedy = "give steps a second by job type and GPUs, for every gang size"
            require(bool(self._types(gpus)), "reference", f"without {gpus} GPUs", remedy)

    def trace(self, seed: int) -> Trace:
        submit = arrivals_at(seed, self.jobs, HOUR / self.jobs_per_hour)
        seconds = self._seconds(seed)
        gpus = gangs_of(seed, self.jobs, self.gangs, self.gang_probabilities)
        if not self.multi_gpu:
            gpus = np.ones(self.jobs, dtype=np.int64)
        models = self._models(seed, gpus)
        rates = np.array([self.reference[model, gang] for model, gang in zip(models, gpus.tolist(), strict=True)])
        columns: dict[str, object] = {
            "id": names(self.jobs),
            "submit": submit,
            "gpus": gpus,
            "steps": seconds * rates,
            "model": models,
        }
        if self.weighted_share:
            is_high = stream(seed, "weight").random(self.jobs) < self.weighted_share
            columns["weight"] = np.where(is_high, self.high_weight, 1.0)
        if self.slo_factors:
            columns["deadline"] = submit + seconds * stream(seed, "deadline").choice(self.slo_factors, self.jobs)
        return made_trace(self.name, seed, columns)

    def _seconds(self, seed: int) -> Floats:
        is_long = stream(seed, "is_long").random(self.jobs) < LONG_SHARE
        where = stream(seed, "duration").random(self.jobs)
        short, long = (low + (high - low) * where for low, high in (SHORT_EXPONENTS, LONG_EXPONENTS))
        return 60.0 * 10.0 ** np.where(is_long, long, short)

    def _types(self, gpus: int) -> list[str]:
        return sorted(model for (model, gang), rate in self.reference.items() if gang == gpus and rate > 0)

    def _models(self, seed: int, gpus: Ints) -> list[str]:
        types = {gang: self._types(gang) for gang in np.unique(gpus).tolist()}
        places = stream(seed, "model").random(len(gpus))
        return [
            types[gang][int(place * len(types[gang]))]
            for gang, place in zip(gpus.tolist(), places.tolist(), strict=True)
        ]
