"""A workload that can be drawn anew: seed by seed, and the same for every policy."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from horae.comparison.identity import arrivals_digest
from horae.comparison.resample import resample
from horae.model.jobs import Arrival


class Workload(Protocol):
    """It can be pickled, for workers draw for themselves."""

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

    def digest(self, seed: int) -> str:
        return self._digest

    @cached_property
    def _digest(self) -> str:
        return arrivals_digest(self.arrivals)

    def __call__(self, seed: int) -> list[Arrival]:
        return list(self.arrivals) if seed == 0 else resample(self.arrivals, seed)


@dataclass(frozen=True)
class Drawn:
    """What a generator made: a draw for each seed. Made beforehand, so that workers need not know the generator."""

    draws: tuple[tuple[Arrival, ...], ...]

    def digest(self, seed: int) -> str:
        return arrivals_digest(self.draws[seed])

    def __call__(self, seed: int) -> list[Arrival]:
        return list(self.draws[seed])
