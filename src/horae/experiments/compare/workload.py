"""A workload that can be drawn again: by seed, and the same for every policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from random import Random
from typing import ClassVar, Protocol

from horae.experiments.result_store import arrivals_digest
from horae.model.jobs import Arrival


class Workload(Protocol):
    """A source of arrivals by seed; picklable, because workers draw for themselves."""

    @property
    def is_recorded(self) -> bool:
        """Whether seed 0 is the trace itself and the others are resampled from it;
        otherwise all seeds are equivalent."""
        ...

    def digest(self, seed: int) -> str:
        """A digest that, with the seed, identifies this workload."""
        ...

    def __call__(self, seed: int) -> list[Arrival]:
        """The arrivals of a seed, in the order of submission."""
        ...


@dataclass(frozen=True)
class Recorded:
    """A recorded trace. Seed 0 is the trace as it is; any other seed resamples whole blocks of it."""

    arrivals: tuple[Arrival, ...]
    is_recorded: ClassVar[bool] = True

    def digest(self, seed: int) -> str:
        return self._digest

    @cached_property
    def _digest(self) -> str:
        return arrivals_digest(self.arrivals)

    def __call__(self, seed: int) -> list[Arrival]:
        return list(self.arrivals) if seed == 0 else resample(self.arrivals, seed)


# Block bootstrap: whole blocks of a recorded trace, drawn with replacement

DAY_SECONDS = 86400.0
BLOCKS_MIN = 10  # of a trace that is shorter than as many days


def block_seconds(span_seconds: float) -> float:
    """A day; or a tenth of a trace shorter than ten days."""
    return DAY_SECONDS if span_seconds >= BLOCKS_MIN * DAY_SECONDS else span_seconds / BLOCKS_MIN


def resample(arrivals: Sequence[Arrival], seed: int) -> list[Arrival]:
    """As many blocks as the trace has, each a copy of a drawn one; jobs within a block keep their distances."""
    length_seconds = block_seconds(_span(arrivals))
    if not length_seconds:
        return list(arrivals)  # all at once: there is nothing to resample
    blocks = _blocks(arrivals, length_seconds)
    first = arrivals[0].job.submitted_at
    random = Random(f"blocks/{seed}")
    drawn: list[Arrival] = []
    for place in range(len(blocks)):
        source = random.randrange(len(blocks))
        shift_seconds = (place - source) * length_seconds
        drawn.extend(_moved(arrival, place, shift_seconds, first) for arrival in blocks[source])
    return sorted(drawn, key=lambda arrival: arrival.job.submitted_at)


def _span(arrivals: Sequence[Arrival]) -> float:
    return arrivals[-1].job.submitted_at - arrivals[0].job.submitted_at if arrivals else 0.0


def _blocks(arrivals: Sequence[Arrival], length_seconds: float) -> list[list[Arrival]]:
    first = arrivals[0].job.submitted_at
    last = max(-int(-_span(arrivals) // length_seconds) - 1, 0)  # a job on the very end belongs to the last block
    blocks: list[list[Arrival]] = [[] for _ in range(last + 1)]
    for arrival in arrivals:
        blocks[min(int((arrival.job.submitted_at - first) // length_seconds), last)].append(arrival)
    return blocks


def _moved(arrival: Arrival, place: int, shift_seconds: float, first: float) -> Arrival:
    """A copy of an arrival, renamed by its place because a block may be drawn twice; so is its app."""
    job = arrival.job
    moved = replace(
        job,
        id=f"{job.id}@{place}",
        app=f"{job.app}@{place}" if job.app else "",
        submitted_at=max(job.submitted_at + shift_seconds, first),  # rounding must not put it before the beginning
        deadline_at=job.deadline_at + shift_seconds,
    )
    return Arrival(moved, arrival.truth)


def has_limits(arrivals: Sequence[Arrival]) -> bool:
    """Whether all jobs have time limits."""
    return all(arrival.job.limit_seconds < inf for arrival in arrivals)
