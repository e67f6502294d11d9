"""What a fork believes about the future: how long jobs run, and which jobs will come.

A job that says how many steps it takes is believed. The length of any other is drawn from jobs that are like it: of
the same user with as many GPUs, of the same user, with as many GPUs, or of all, whichever group is the first of which
enough ran longer than the job has so far; of each group only the latest count, because users repeat what they did of
late. Jobs of the group that run now count, too: each will run longer than it has (the estimate of Kaplan and Meier).
Without them the longest would be missing, which are those that have not ended. Beyond the longest that is known, and
where no group has enough, half of all jobs are assumed to run for as long again as they have so far (the length has the
tail of a Pareto distribution with exponent 1), and at least `SHORTEST_SECONDS`. No job is believed to run beyond its
time limit.

Jobs that a user submits together are alike: if one is long, so are most of the others. Drawn one by one, long and short
ones would cancel out, and a range of possible futures would be too narrow.

The jobs that will come are those of a past stretch of time, drawn at random among stretches that began at the same time
of day, because people work by day. Those that have not ended come with the lengths that they are believed to have.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import attrgetter
from random import Random
from typing import NamedTuple

from horae.model.jobs import Arrival, Job, Truth

ENOUGH = 10  # past jobs that ran longer, for a group to be used
RECENT = 100  # past jobs of a group that count
TOGETHER_SECONDS = 3600.0  # jobs of one user and size that are submitted at most this far apart are a batch
ALIKE = 0.7  # the share of a batch's jobs that have the same rank among the lengths of past jobs
SHORTEST_SECONDS = 300.0
DAY_SECONDS = 86_400.0


class PastJob(NamedTuple):
    """A job that has ended, or that runs."""

    job: Job  # as it was submitted
    seconds: float  # that it took in its first shape, or has run so far


@dataclass(frozen=True)
class Beliefs:
    past: Sequence[PastJob] = field(default=(), repr=False)  # in order of submission
    running: Sequence[PastJob] = field(default=(), repr=False)

    def prepare(self) -> None:
        """Works out what all draws need, before each of them is made in a process of its own."""
        _ = self._curves, self._ended

    def truths(self, jobs: Mapping[str, Job], run_seconds: Mapping[str, float], rng: Random) -> dict[str, Truth]:
        """A draw of the length of every job, given how long it has run."""
        found: dict[str, Truth] = {}
        for batch in _batches(jobs):
            rank = rng.random()
            for job_id in batch:
                own = rank if rng.random() < ALIKE else rng.random()
                found[job_id] = self._truth(jobs[job_id], run_seconds.get(job_id, 0.0), own)
        return found

    def truth(self, job: Job, run_seconds: float, rng: Random) -> Truth:
        """A draw of the length of one job."""
        return self._truth(job, run_seconds, rng.random())

    def _truth(self, job: Job, run_seconds: float, rank: float) -> Truth:
        if job.steps_total is not None:
            return Truth(job.steps_total, job.options)
        seconds = min(self._length(job, run_seconds, rank), max(job.limit_seconds, run_seconds))
        return _truth(job, seconds)

    def arrivals(self, now: float, until: float, rng: Random, live: Iterable[Arrival] = ()) -> Iterator[Arrival]:
        """Jobs of past days as if they came again, day by day, each day drawn on its own; `live` have not ended."""
        known = sorted([*self._ended, *live], key=_submitted_at)
        days = int((now - self.past[0].job.submitted_at) // DAY_SECONDS) if self.past else 0
        begins_at, number = now, 0
        while days > 0 and begins_at < until:
            shift = (begins_at - now) + DAY_SECONDS * rng.randint(1, days)
            first, last = begins_at - shift, begins_at - shift + DAY_SECONDS
            stretch = slice(*(bisect_right(known, at, key=_submitted_at) for at in (first, last)))
            for each in known[stretch]:
                number += 1
                at = each.job.submitted_at + shift
                job = replace(each.job, id=f"later-{number}", app="", submitted_at=at, deadline_at=float("inf"))
                yield Arrival(job, each.truth)
            begins_at += DAY_SECONDS

    def _length(self, job: Job, run_seconds: float, rank: float) -> float:
        """The length that this part of all jobs that are like it and ran longer do not exceed."""
        for key in _groups(job):
            curve = self._curves.get(key)
            if curve is not None and curve.longer(run_seconds) >= ENOUGH:
                return curve.length(run_seconds, rank)
        return max(run_seconds, SHORTEST_SECONDS) / (1.0 - rank)

    @cached_property
    def _curves(self) -> Mapping[tuple[str, int], _Curve]:
        """By group: the lengths of its latest jobs."""
        found: dict[tuple[str, int], list[tuple[float, bool]]] = {}
        both = [(each, True) for each in self.past] + [(each, False) for each in self.running]
        for each, has_ended in sorted(both, key=lambda one: one[0].job.submitted_at):
            for key in _groups(each.job):
                found.setdefault(key, []).append((each.seconds, has_ended))
        return {key: _Curve.of(lengths[-RECENT:]) for key, lengths in found.items()}

    @cached_property
    def _ended(self) -> list[Arrival]:
        return [Arrival(job, _truth(job, seconds)) for job, seconds in self.past]


class _Curve(NamedTuple):
    """Which part of a group's jobs runs longer than each length: the estimate of Kaplan and Meier."""

    lengths: list[float]  # of jobs that have ended, in order
    beyond: list[float]  # the part that runs longer
    longest: float  # of all, those that run included

    @classmethod
    def of(cls, seen: Iterable[tuple[float, bool]]) -> _Curve:
        """From lengths of jobs that have ended, and times that others have run so far."""
        ordered = sorted(seen, key=lambda one: (one[0], not one[1]))
        lengths, beyond, part = list[float](), list[float](), 1.0
        for number, (seconds, has_ended) in enumerate(ordered):
            if has_ended:
                part *= 1.0 - 1.0 / (len(ordered) - number)
                lengths.append(seconds)
                beyond.append(part)
        return cls(lengths, beyond, ordered[-1][0])

    def longer(self, run_seconds: float) -> int:
        return len(self.lengths) - bisect_right(self.lengths, run_seconds)

    def length(self, run_seconds: float, rank: float) -> float:
        """Of the jobs that ran longer than this: what this part of them does not exceed."""
        first = bisect_right(self.lengths, run_seconds)
        left = (self.beyond[first - 1] if first else 1.0) * (1.0 - rank)
        found = bisect_left(self.beyond, -left, first, key=lambda part: -part)
        if found < len(self.lengths):
            return self.lengths[found]
        return self.longest * self.beyond[-1] / left  # the longest runs still: the tail of Pareto


_submitted_at = attrgetter("job.submitted_at")


def _truth(job: Job, seconds: float) -> Truth:
    return Truth(max(seconds, 1e-3) * job.options[0].steps_per_second, job.options)


def _groups(job: Job) -> tuple[tuple[str, int], ...]:
    """The groups of a job, the narrowest first; 0 and "" mean any."""
    return (job.owner, job.gpus), (job.owner, 0), ("", job.gpus), ("", 0)


def _batches(jobs: Mapping[str, Job]) -> list[list[str]]:
    """Jobs of one user and size that were submitted together, in order of submission."""
    found: list[list[str]] = []
    latest: dict[tuple[str, int], Job] = {}
    for job_id, job in sorted(jobs.items(), key=lambda item: (item[1].owner, item[1].gpus, item[1].submitted_at)):
        former = latest.get((job.owner, job.gpus))
        if former is None or job.submitted_at - former.submitted_at > TOGETHER_SECONDS:
            found.append([])
        found[-1].append(job_id)
        latest[job.owner, job.gpus] = job
    return found
