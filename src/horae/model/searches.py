"""Hyperparameter searches: apps with many trials, and an optimiser that continues the better ones.

Successive halving runs all trials for a while, continues the better half for twice as long, and so on until one is
left. HyperBand runs several of these concurrently: with many trials and a short first run, or with few and a long one.
A curve-based search (HyperDrive-like) runs all trials, and kills those whose forecast is hopeless. A grid runs all
trials to their end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from hashlib import blake2b
from itertools import islice
from math import inf
from typing import NamedTuple

import numpy as np

from horae.model.errors import JobError
from horae.model.jobs import Arrival, Curve


class Method(Enum):
    GRID = "grid"
    HALVING = "halving"
    HYPERBAND = "hyperband"
    CURVES = "curves"


@dataclass(frozen=True, slots=True)
class Trial:
    """One job of a search at its full length, and its loss curve.

    The curve of a real job is unknown: it reports its losses.
    """

    arrival: Arrival
    curve: Curve | None = None

    @property
    def steps_total(self) -> float:
        """The number of steps of the full trial, which the app knows even if the scheduler is not told."""
        return self.arrival.truth.steps_total

    @property
    def seconds(self) -> float:
        """Run time of the full trial in its reference shape."""
        return self.steps_total / self.arrival.truth.options[0].steps_per_second

    @property
    def gpu_seconds(self) -> float:
        return self.seconds * self.arrival.job.gpus

    def loss(self, part: float) -> float:
        """The measured loss after this fraction of the steps; deterministic."""
        if self.curve is None:
            raise JobError(
                f"job {self.arrival.job.id!r} of a search has no loss curve",
                field="curve",
                remedy="give it one, or give the search the losses that its jobs report",
            )
        exact = 1 / (self.curve.rate * part * self.steps_total + self.curve.start) + self.curve.floor
        return exact * (1 + 0.01 * _lot(f"{self.arrival.job.id} {part:.9f}"))


class Rungs(NamedTuple):
    """The rungs of successive halving: how many trials are in each, and how far they run."""

    trials: int

    @property
    def number(self) -> int:
        return self.trials.bit_length()

    def trials_at(self, rung: int) -> int:
        return self.trials >> rung

    def part_until(self, rung: int) -> float:
        """The fraction of a trial that is done at the end of a rung."""
        return float((2 << rung) - 1) / ((1 << self.number) - 1)

    def best(self, rung: int, losses: Sequence[float]) -> list[int]:
        """The places of the trials that are promoted from a rung, by their losses; ties go to the first."""
        order = sorted(range(len(losses)), key=lambda index: (losses[index], index))
        return sorted(order[: self.trials_at(rung + 1)])


def bracket_sizes(method: Method, trials: int) -> list[int]:
    """How many trials are halved together, in the order of the trials.

    HyperBand halves half of the trials together, then a quarter, and so on: the fewer, the longer their first run.
    """
    if method is not Method.HYPERBAND:
        return [trials]
    sizes = []
    while trials:
        sizes.append(trials if trials <= 2 else (trials + 1) // 2)
        trials -= sizes[-1]
    return sizes


@dataclass(frozen=True, slots=True)
class Bracket:
    """Trials that are halved together; the fewer they are, the longer is their first run."""

    trials: tuple[Trial, ...]

    @property
    def layout(self) -> Rungs:
        return Rungs(len(self.trials))

    @property
    def rungs(self) -> int:
        return self.layout.number

    def trials_at(self, rung: int) -> int:
        return self.layout.trials_at(rung)

    def part_until(self, rung: int) -> float:
        """The fraction of a trial that is done at the end of a rung."""
        return self.layout.part_until(rung)

    def survivors(self, rung: int, trials: Sequence[Trial]) -> tuple[Trial, ...]:
        """The trials that are promoted to the next rung, by their curves."""
        losses = [trial.loss(self.part_until(rung)) for trial in trials]
        return tuple(trials[index] for index in self.layout.best(rung, losses))

    def later(self, rung: int, trials: Sequence[Trial]) -> tuple[float, float]:
        """Estimated GPU-seconds and seconds of all work after a rung,
        by the median trial because the survivors are unknown."""
        work = float(np.median([trial.gpu_seconds for trial in trials]))
        seconds = float(np.median([trial.seconds for trial in trials]))
        parts = [self.part_until(each) - self.part_until(each - 1) for each in range(rung + 1, self.rungs)]
        counts = [self.trials_at(each) for each in range(rung + 1, self.rungs)]
        whole = sum(part * count for part, count in zip(parts, counts, strict=True))
        return work * whole, seconds * sum(parts)


@dataclass(frozen=True, slots=True)
class Search:
    """An app with its trials, all submitted at one time."""

    app: str
    submitted_at: float
    method: Method
    trials: tuple[Trial, ...]
    look_seconds: float = 600.0  # interval at which a curve-based search checks its curves
    margin: float = 0.1  # it kills trials whose forecast is worse than the best by this fraction,
    patience: float = 0.1  # once they have done this fraction of their steps
    report_part: float = 0.01  # fraction of its steps between two reports of a trial's loss
    confidence: float = 0.9  # confidence of a forecast's interval for the final loss

    def __post_init__(self) -> None:
        if not self.trials:
            raise JobError(f"app {self.app!r} has no jobs", field="app", remedy="give it at least one")
        if not (0 < self.look_seconds < inf and self.margin >= 0 and 0 < self.patience <= 1):
            raise JobError(
                f"app {self.app!r} looks every {self.look_seconds} s, with margin {self.margin} after {self.patience}",
                field="search",
                remedy="look at intervals above 0, with a margin of 0 or more, after a part above 0 and up to 1",
            )
        if not (0 < self.report_part <= 1 and 0 < self.confidence < 1):
            raise JobError(
                f"app {self.app!r} has reports each {self.report_part} and confidence {self.confidence}",
                field="search",
                remedy="give a part of the steps above 0 and up to 1, and a confidence between 0 and 1",
            )

    @property
    def brackets(self) -> tuple[Bracket, ...]:
        left = iter(self.trials)
        return tuple(Bracket(tuple(islice(left, size))) for size in bracket_sizes(self.method, len(self.trials)))

    @property
    def gpu_seconds(self) -> float:
        """The total work of the search, which does not depend on the schedule;
        an upper bound for a curve-based search."""
        if self.method in (Method.GRID, Method.CURVES):
            return sum(trial.gpu_seconds for trial in self.trials)
        return sum(_halving_gpu_seconds(bracket) for bracket in self.brackets)


def _halving_gpu_seconds(bracket: Bracket) -> float:
    total, trials, before = 0.0, bracket.trials, 0.0
    for rung in range(bracket.rungs):
        part = bracket.part_until(rung)
        total += sum(trial.gpu_seconds for trial in trials) * (part - before)
        trials, before = bracket.survivors(rung, trials), part
    return total


def searches_of(arrivals: Iterable[Arrival], method: Method, seed: int) -> tuple[Search, ...]:
    """Turns every app into a search, with drawn curves for its jobs, in order of arrival."""
    trials: dict[str, list[Trial]] = {}
    for arrival in arrivals:
        curve = synthetic_curve(f"{seed} {arrival.job.id}", arrival.truth.steps_total)
        trials.setdefault(arrival.job.app_id, []).append(Trial(arrival, curve))
    return tuple(
        Search(app, min(trial.arrival.job.submitted_at for trial in own), method, tuple(own))
        for app, own in trials.items()
    )


def synthetic_curve(name: str, steps_total: float) -> Curve:
    """A learning curve of realistic shape for a trial of this name: a fast fall, a long tail, and its own floor."""
    first = 2.0 + _lot(f"{name} first") * 0.5  # the loss before any step
    floor = 0.6 + 0.45 * _lot(f"{name} floor")
    last = 0.02 + 0.06 * (1 + _lot(f"{name} last"))  # above the floor after the last step
    start = 1 / (first - floor)
    return Curve((1 / last - start) / steps_total, start, floor)


def _lot(text: str) -> float:
    """A number from -1 to 1, the same for the same text in every process."""
    digest = blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**63 - 1
