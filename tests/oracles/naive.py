"""A scheduler that looks at every second, written from the documents with plain dictionaries and loops.

Equal nodes; all times are whole seconds. In each second, first the jobs that are done leave, then those that arrive
join the queue, then, if something happened (or in rounds: at every multiple of the round, and only then), one decision
is made; after that everybody on GPUs works for one second. Nothing is ever skipped, nothing is remembered cleverly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from math import inf
from typing import NamedTuple

from horae.model.jobs import Arrival, Job

SECONDS_MAX = 1_000_000  # by then every workload of a test has ended, or the oracle is wrong


class Outcome(NamedTuple):
    started_at: float
    ended_at: float
    starts: int


@dataclass(eq=False)
class Life:
    """All that is known of one job."""

    job: Job
    serial: int
    seconds_left: float  # of true work
    held: dict[int, int] = field(default_factory=dict)  # GPUs by node; empty: it waits
    restart_left: float = 0.0  # seconds until it works again after a resume
    lease_began_at: int = 0
    waits_since: int = 0
    run_seconds: int = 0  # on GPUs, restarts included
    worked_seconds: int = 0  # of these, those that got it anywhere
    service: int = 0  # GPU-seconds
    service_at_promotion: int = 0
    preemptions: int = 0
    starts: int = 0
    started_at: int = -1
    ended_at: int = -1

    @property
    def gpus(self) -> int:
        return self.job.gpus

    @property
    def believed_seconds(self) -> float:
        """What its owner says, in the reference shape; whoever says nothing may run for ever."""
        if self.job.steps_total is None:
            return inf
        return self.job.steps_total / self.job.options[0].steps_per_second

    @property
    def believed_left(self) -> float:
        return max(self.believed_seconds - self.worked_seconds, 0.0)

    def may_be_preempted(self, now: int) -> bool:
        restarts = 2 if self.starts > 1 else 1  # the one that it paid, and the one that stopping it will cost
        protected_seconds = max(self.job.min_runtime_seconds, restarts * self.job.restart_seconds)
        return now - self.lease_began_at >= protected_seconds and self.preemptions < self.job.preemptions_max


@dataclass(frozen=True)
class Room:
    """What is free on each node."""

    node_gpus: int
    gpus: tuple[int, ...]
    cpus: tuple[float, ...]

    def find(self, job: Job) -> dict[int, int] | None:
        """GPUs by node for this gang, or None if it does not fit."""
        whole, rest = (0, job.gpus) if job.gpus <= self.node_gpus else divmod(job.gpus, self.node_gpus)
        empty = [node for node in range(len(self.gpus)) if self._fits(node, self.node_gpus, job)]
        if len(empty) < whole:
            return None
        found = dict.fromkeys(empty[:whole], self.node_gpus)
        if rest:
            others = [node for node in range(len(self.gpus)) if node not in found and self._fits(node, rest, job)]
            if not others:
                return None
            fullest = min(others, key=lambda node: (self.gpus[node], node))
            found[fullest] = rest
        return found

    def _fits(self, node: int, gpus: int, job: Job) -> bool:
        return self.gpus[node] >= gpus and self.cpus[node] >= gpus * job.cpus_per_gpu


class Discipline(NamedTuple):
    """Who comes first, and what one may do to come in."""

    rank: Callable[[Sequence[Life], int], list[Life]]
    blocking: bool = False  # nobody passes a head that does not fit
    preemptive: bool = False


def fifo(backfill: bool) -> Discipline:
    return Discipline(lambda jobs, now: sorted(jobs, key=lambda life: life.serial), blocking=not backfill)


def sjf(backfill: bool) -> Discipline:
    def rank(jobs: Sequence[Life], now: int) -> list[Life]:
        return sorted(jobs, key=lambda life: (life.believed_seconds, life.serial))

    return Discipline(rank, blocking=not backfill)


def las() -> Discipline:
    def rank(jobs: Sequence[Life], now: int) -> list[Life]:
        return sorted(jobs, key=lambda life: (life.service, life.serial))

    return Discipline(rank, preemptive=True)


def srtf(backfill: bool, by_service: bool = False) -> Discipline:
    """Least left first: seconds, or GPU-seconds."""

    def rank(jobs: Sequence[Life], now: int) -> list[Life]:
        return sorted(jobs, key=lambda life: (life.believed_left * (life.gpus if by_service else 1), life.serial))

    return Discipline(rank, blocking=not backfill, preemptive=True)


def drf(nodes: int, node_gpus: int, node_cpus: float) -> Discipline:
    """Serve whoever has the least dominant share, one gang at a time, as if each gang fitted."""

    def share(gpus: float, cpus: float) -> float:
        return max(gpus / (nodes * node_gpus), cpus / (nodes * node_cpus))

    def rank(jobs: Sequence[Life], now: int) -> list[Life]:
        gpus: dict[str, float] = {}
        cpus: dict[str, float] = {}
        for life in jobs:
            for used, amount in ((gpus, life.gpus), (cpus, life.gpus * life.job.cpus_per_gpu)):
                used[life.job.owner] = used.get(life.job.owner, 0.0) + (amount if life.held else 0.0)
        order: list[Life] = [life for life in jobs if life.held]
        waiting = sorted((life for life in jobs if not life.held), key=lambda life: life.serial)
        while waiting:
            heads = {life.job.owner: life for life in reversed(waiting)}.values()
            head = min(heads, key=lambda life: (share(gpus[life.job.owner], cpus[life.job.owner]), life.serial))
            gpus[head.job.owner] += head.gpus
            cpus[head.job.owner] += head.gpus * head.job.cpus_per_gpu
            waiting.remove(head)
            order.append(head)
        return order

    return Discipline(rank)


def tiresias(limits: Sequence[float], promote_after: float) -> Discipline:
    def rank(jobs: Sequence[Life], now: int) -> list[Life]:
        for life in jobs:
            waits_too_long = not life.held and now - life.waits_since >= promote_after * life.run_seconds
            if promote_after and waits_too_long and _queue(life, limits) > 0:
                life.service_at_promotion = life.service
        return sorted(jobs, key=lambda life: (_queue(life, limits), life.serial))

    return Discipline(rank, preemptive=True)


def _queue(life: Life, limits: Sequence[float]) -> int:
    """The number of limits that its GPU-time has reached since it was last at the top."""
    return sum(life.service - life.service_at_promotion >= limit for limit in limits)


class NaiveCluster:
    def __init__(self, nodes: int, node_gpus: int, discipline: Discipline, node_cpus: float = inf) -> None:
        self.nodes = nodes
        self.node_gpus = node_gpus
        self.node_cpus = node_cpus
        self.discipline = discipline
        self.live: list[Life] = []

    def run(self, arrivals: Sequence[Arrival], round_seconds: int | None = None) -> dict[str, Outcome]:
        """What becomes of each job; with `round_seconds`, decisions fall on its multiples only."""
        lives = [
            Life(arrival.job, serial, arrival.truth.steps_total / arrival.truth.options[0].steps_per_second)
            for serial, arrival in enumerate(sorted(arrivals, key=lambda each: each.job.submitted_at))
        ]
        for now in range(SECONDS_MAX):
            ended = [life for life in self.live if life.held and life.seconds_left <= 0]
            for life in ended:
                life.ended_at = now
                self.live.remove(life)
            arrived = [life for life in lives if life.job.submitted_at == now]
            for life in arrived:
                life.waits_since = now
                self.live.append(life)
            if all(life.ended_at >= 0 for life in lives):
                return {life.job.id: Outcome(life.started_at, life.ended_at, life.starts) for life in lives}
            happened = bool(ended or arrived)
            if happened if round_seconds is None else now % round_seconds == 0:
                self._decide(now)
            for life in self.live:
                _work_for_a_second(life)
        raise AssertionError("some job never ended")

    def _decide(self, now: int) -> None:
        """Walk the ranking, best first; who runs keeps its GPUs unless a better one needs them."""
        ranking = self.discipline.rank(self.live, now)
        for position, life in enumerate(ranking):
            if life.held:
                continue
            found = self._room().find(life.job)
            if found is None and self.discipline.preemptive:
                worse = [other for other in ranking[position + 1 :] if other.held and other.may_be_preempted(now)]
                found = self._make_room(life, worse, now)
            if found is not None:
                _start(life, found, now)
            elif self.discipline.blocking:
                return

    def _make_room(self, life: Life, worse: list[Life], now: int) -> dict[int, int] | None:
        """Displace as few as possible, and of those the last in rank; of gangs of one size, that is one."""
        for count in range(1, len(worse) + 1):
            for victims in combinations(reversed(worse), count):
                found = self._room(without=victims).find(life.job)
                if found is not None:
                    for victim in victims:
                        _stop(victim, now)
                    return found
        return None

    def _room(self, without: Sequence[Life] = ()) -> Room:
        gpus = [self.node_gpus] * self.nodes
        cpus = [self.node_cpus] * self.nodes
        for life in self.live:
            if life not in without:
                for node, held in life.held.items():
                    gpus[node] -= held
                    cpus[node] -= held * life.job.cpus_per_gpu
        return Room(self.node_gpus, tuple(gpus), tuple(cpus))


def _start(life: Life, found: dict[int, int], now: int) -> None:
    if not life.starts:
        life.started_at = now
    life.restart_left = life.job.restart_seconds if life.starts else 0.0
    life.starts += 1
    life.held = found
    life.lease_began_at = now


def _stop(life: Life, now: int) -> None:
    life.held = {}
    life.waits_since = now
    life.preemptions += 1


def _work_for_a_second(life: Life) -> None:
    if not life.held:
        return
    life.run_seconds += 1
    life.service += life.gpus
    if life.restart_left > 0:
        life.restart_left -= 1
    else:
        life.seconds_left -= 1
        life.worked_seconds += 1
