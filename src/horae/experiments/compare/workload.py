"""A workload that can be drawn anew: seed by seed, and the same for every policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from random import Random
from typing import ClassVar, Protocol

from horae.experiments.result_store import arrivals_digest
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


# Another week like this one: whole blocks of a recorded trace, drawn anew with replacement.

DAY_SECONDS = 86400.0
BLOCKS_MIN = 10  # of a trace that is shorter than as many days


def block_seconds(span_seconds: float) -> float:
    """A day; or a tenth of a trace that has not ten of them."""
    return DAY_SECONDS if span_seconds >= BLOCKS_MIN * DAY_SECONDS else span_seconds / BLOCKS_MIN


def resample(arrivals: Sequence[Arrival], seed: int) -> list[Arrival]:
    """As many blocks as the trace has, each a copy of one that is drawn; what is in it keeps its distances."""
    length_seconds = block_seconds(_span(arrivals))
    if not length_seconds:
        return list(arrivals)  # all at once: there is nothing to draw from
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
    """Renamed after its place, for a block may be drawn twice. So is its app: a copy is an app of its own."""
    job = arrival.job
    moved = replace(
        job,
        id=f"{job.id}@{place}",
        app=f"{job.app}@{place}" if job.app else "",
        submitted_at=max(job.submitted_at + shift_seconds, first),  # a rounding must not put it before the beginning
        deadline_at=job.deadline_at + shift_seconds,
    )
    return Arrival(moved, arrival.truth)
