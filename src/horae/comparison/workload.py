"""A workload that can be drawn anew: seed by seed, and the same for every policy."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Protocol

from horae.comparison.identity import arrivals_digest
from horae.comparison.resample import resample
from horae.model.jobs import Arrival


class Workload(Protocol):
    """It can be pickled, for workers draw for themselves."""

    @property
    def is_recorded(self) -> bool:
        """Whether seed 0 is what is asked about and the others are drawn from it; otherwise all are alike."""
        ...

    def digest(self, seed: int) -> str:
        """With the seed, it tells this workload from every other."""
        ...

    def __call__(self, seed: int) -> list[Arrival]:
        """In the order of submission."""
        ...


@dataclass(frozen=True)
class Recorded:
    """A trace. Seed 0 is the trace as it is; any other draws whole blocks of it anew."""

    arrivals: tuple[Arrival, ...]
    is_recorded: ClassVar[bool] = True

    def digest(self, seed: int) -> str:
        return self._digest

    @cached_property
    def _digest(self) -> str:
        return arrivals_digest(self.arrivals)

    def __call__(self, seed: int) -> list[Arrival]:
        return list(self.arrivals) if seed == 0 else resample(self.arrivals, seed)
