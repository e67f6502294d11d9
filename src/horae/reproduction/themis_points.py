"""What was run for one claim about Themis: configurations over paired seeds, and what they say."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from horae.reproduction.themis import Case, Result

Solve: TypeAlias = Callable[[Sequence[Case]], Mapping[str, Result]]  # by what a case says in words


@dataclass(frozen=True)
class Point:
    """One configuration over all seeds."""

    label: str
    at: float  # where it stands on the axis
    results: tuple[Result, ...]

    def values(self, name: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        return np.array([getattr(result, name) for result in self.results])

    def median(self, name: str) -> float:
        return float(np.median(self.values(name)))

    def range(self, name: str) -> tuple[float, float]:
        return float(self.values(name).min()), float(self.values(name).max())


@dataclass(frozen=True)
class Finding:
    """What was claimed, and whether it holds by both rhos; `holds` None: nothing to hold."""

    claim: str
    measured: str
    holds: bool | None


@dataclass(frozen=True)
class Chapter:
    number: int
    title: str
    axis: str
    lines: Mapping[str, tuple[Point, ...]]  # by name: points along the axis
    findings: tuple[Finding, ...]


def points_of(solve: Solve, seeds: Sequence[int], configurations: Sequence[tuple[str, float, Case]]) -> list[Point]:
    cases = [replace(case, seed=seed) for _, _, case in configurations for seed in seeds]
    results = solve(cases)
    return [
        Point(label, at, tuple(results[str(replace(case, seed=seed))] for seed in seeds))
        for label, at, case in configurations
    ]


def given(**options: float | bool | str) -> dict[str, float | bool | str]:
    """Options that are not what they are without saying."""
    defaults = {"noise": 0.0, "f": 0.8, "lease_seconds": 1200.0, "overstates": 0.0, "window_leases": 1.0}
    return {name: value for name, value in options.items() if value != defaults.get(name)}
