"""Another week like this one: whole blocks of a recorded trace, drawn anew with replacement.

Jobs that arrive close together depend on each other (a burst, a night, a sweep), so they are moved together (the block
bootstrap of Künsch, 1989). Drawing single jobs would wash the bursts out, and with them most of what differs between
policies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from horae.model.jobs import Arrival

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
