"""Clusters and workloads of the golden runs, drawn with the standard library so that both checkouts get the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf
from random import Random
from typing import Any

from bench.golden_api import (
    Arrival,
    BidGiven,
    Cluster,
    Curve,
    Event,
    Health,
    Job,
    JobCancelled,
    Method,
    Node,
    NodeChanged,
    Option,
    Search,
    Shape,
    Sharing,
    Trial,
    Truth,
    kind,
)  # fmt: skip

V100, P100, K80 = "V100", "P100", "K80"
TYPES = (V100, P100, K80)
GIB = float(1 << 30)
NODE_GPUS = {V100: 8, P100: 4, K80: 4}
# Steps per second on one GPU, by model and GPU type: models differ in how much they gain from a fast type.
SPEEDS = {
    "resnet": (10.0, 5.0, 2.0),
    "lstm": (6.0, 4.5, 2.5),
    "transformer": (4.0, 1.2, 0.5),
    "recoder": (9.0, 8.0, 5.0),
    "a3c": (2.0, 1.9, 1.5),
}

MIXED = Cluster(
    "mixed",
    tuple(
        [Node(f"v{n}", V100, 8, 32.0, 256 * GIB, (("switch", 2), ("socket", 4)), f"rv{n // 2}", 20.0) for n in range(4)]
        + [Node(f"p{n}", P100, 4, 16.0, 128 * GIB, (("socket", 2),), f"rp{n // 2}", 6.0) for n in range(4)]
        + [Node(f"k{n}", K80, 4, 16.0, 64 * GIB, (), f"rk{n // 2}", 2.0) for n in range(4)]
    ),
)
FLAT = Cluster(
    "flat",
    tuple(
        Node(f"{name[0].lower()}{number}", name, NODE_GPUS[name], price_per_hour=price)
        for name, count, price in ((V100, 3, 20.0), (P100, 5, 6.0), (K80, 5, 2.0))
        for number in range(count)
    ),
)
ONE_TYPE = Cluster("one type", tuple(Node(f"v{number}", V100, 8) for number in range(6)))
CELLS = Cluster(
    "cells",
    tuple(
        [Node(f"v{n}", V100, 8, levels=(("switch", 2), ("socket", 4)), rack=f"rv{n // 2}") for n in range(12)]
        + [Node(f"p{n}", P100, 4, levels=(("socket", 2),), rack=f"rp{n // 2}") for n in range(4)]
        + [Node(f"k{n}", K80, 4) for n in range(4)]
    ),
)


@dataclass(frozen=True)
class Traits:
    """What the jobs of a workload are like; probabilities are per job."""

    count: int = 400
    every_seconds: float = 110.0  # mean time between submissions
    seconds: float = 1800.0  # mean run time in the first shape
    gangs: tuple[int, ...] = (1, 1, 1, 2, 2, 4, 8)
    types: tuple[str, ...] = TYPES
    types_max: int = 3  # how many GPU types one job accepts
    levels: bool = False  # a faster option inside a socket, a slower one in a rack
    elastic: bool = False  # several gang sizes of each type
    tenants: tuple[str, ...] = ("default",)
    users: int = 0
    app_jobs: int = 0  # jobs per app; 0: each job is an app of its own
    weights: tuple[float, ...] = (1.0,)
    restart_seconds: float = 0.0
    min_runtime_seconds: float = 0.0
    preemptions_max: float = inf
    leaving_seconds: float = 0.0
    grace_seconds: float = 0.0
    member_gpus: int = 1
    cpus_per_gpu: tuple[float, ...] = (0.0,)
    memory_per_gpu: tuple[float, ...] = (0.0,)
    unknown: float = 0.0  # probability of an unknown length
    fails: float = 0.0  # probability to fail half way, again and again
    retries_max: int = 0
    deadline: float = 0.0  # probability of a deadline
    guests: float = 0.0  # probability of a priority below zero: no guarantee
    curves: float = 0.0  # probability of a known loss curve
    bids: bool = False
    error: float = 0.0  # stated speeds and lengths are wrong by up to this part
    prefix: str = "j"


def workload(seed: int, traits: Traits) -> list[Arrival]:
    random = Random(f"golden {seed}")
    made: list[Arrival] = []
    at = 0.0
    for number in range(traits.count):
        at += random.expovariate(1 / traits.every_seconds)
        made.append(_arrival(random, traits, number, round(at, 3)))
    return made


def together(*workloads: Sequence[Arrival]) -> list[Arrival]:
    """Several workloads as one, in the order of submission."""
    return sorted((each for some in workloads for each in some), key=lambda each: (each.job.submitted_at, each.job.id))


def _arrival(random: Random, traits: Traits, number: int, at: float) -> Arrival:
    model, gang = random.choice(list(SPEEDS)), random.choice(traits.gangs)
    types = random.sample(traits.types, min(traits.types_max, len(traits.types)))
    options = tuple(option for name in types for option in _options(traits, model, name, gang))
    seconds = 60.0 + random.expovariate(1 / traits.seconds)
    steps = seconds * options[0].steps_per_second
    off = 1 + random.uniform(-traits.error, traits.error)
    true = tuple(Option(shape, speed * (1 + random.uniform(-traits.error, traits.error))) for shape, speed in options)
    tenant = random.choice(traits.tenants)
    app = f"{traits.prefix}-app{number // traits.app_jobs}" if traits.app_jobs else ""
    draw = [random.random() for _ in range(5)]
    job = Job(
        id=f"{traits.prefix}{number}",
        submitted_at=at,
        options=options,
        app=app,
        tenant=tenant,
        user=f"user{random.randrange(traits.users)}" if traits.users else "",
        model=model,
        weight=random.choice(traits.weights),
        priority=-1 if draw[0] < traits.guests else 0,
        steps_total=None if draw[1] < traits.unknown else steps * off,
        deadline_at=at + seconds * random.uniform(1.2, 6.0) if draw[2] < traits.deadline else inf,
        restart_seconds=traits.restart_seconds,
        min_runtime_seconds=traits.min_runtime_seconds,
        preemptions_max=traits.preemptions_max,
        grace_seconds=traits.grace_seconds,
        retries_max=traits.retries_max,
        member_gpus=traits.member_gpus,
        cpus_per_gpu=random.choice(traits.cpus_per_gpu),
        memory_bytes_per_gpu=random.choice(traits.memory_per_gpu) * GIB,
        curve=_curve(random, steps) if draw[3] < traits.curves else None,
        bids=traits.bids,
    )
    fails_at = steps / 2 if draw[4] < traits.fails else inf
    leaving = traits.leaving_seconds * random.uniform(0.2, 1.5)
    return Arrival(job, Truth(steps, true, fails_at, leaving))


def _options(traits: Traits, model: str, name: str, gang: int) -> list[Option]:
    """What a job accepts of one GPU type, the tightest placement first."""
    speed = SPEEDS[model][TYPES.index(name)]
    sizes = [size for size in (1, 2, 4, 8) if gang <= size <= 4 * gang] if traits.elastic else [gang]
    made: list[Option] = []
    for size in sizes:
        whole = speed * size**0.85
        inside = size <= NODE_GPUS[name]
        if traits.levels and inside and 1 < size <= NODE_GPUS[name] // 2:
            made.append(Option(Shape(name, size, "socket"), 1.1 * whole))
        if inside:
            made.append(Option(Shape(name, size, "node"), whole))
        if traits.levels and size > 1:
            made.append(Option(Shape(name, size, "rack"), 0.8 * whole))
        if not inside:
            made.append(Option(Shape(name, size, "cluster"), 0.7 * whole))
    return made


def _curve(random: Random, steps: float) -> Curve:
    start, floor, last = 1 / random.uniform(1.0, 2.5), random.uniform(0.1, 1.0), random.uniform(0.02, 0.12)
    return Curve((1 / last - start) / steps, start, floor)


def sharing(seed: int) -> tuple[Sharing, ...]:
    """What two jobs on the same GPUs keep of their speeds; one pair of models in six does not fit."""
    random = Random(f"golden sharing {seed}")
    models = list(SPEEDS)
    made = []
    for index, first in enumerate(models):
        for second in models[index:]:
            for name in TYPES:
                one, other = random.uniform(0.45, 0.98), random.uniform(0.45, 0.98)
                kept = (0.0, 0.0) if random.random() < 1 / 6 else (one, one if first == second else other)
                made += [Sharing((first, second), name, gpus, kept) for gpus in (1, 2, 4, 8)]
    return tuple(made)


# What happens from outside


def faults(seed: int, cluster: Cluster, count: int, until: float, health: Health, repair_seconds: float) -> list[Event]:
    """Nodes that fail or drain at random times and return after a while."""
    random = Random(f"golden faults {seed}")
    found: list[Event] = []
    for _ in range(count):
        node, at = random.choice(cluster.nodes).name, round(random.uniform(0.05, 0.9) * until, 3)
        found += [NodeChanged(at, node, health), NodeChanged(at + repair_seconds, node, Health.HEALTHY)]
    return found


def cancellations(seed: int, arrivals: Sequence[Arrival], share: float) -> list[Event]:
    """Some jobs are cancelled a while after their submission, whether they run or wait."""
    random = Random(f"golden cancellations {seed}")
    chosen = [each.job for each in arrivals if random.random() < share]
    return [JobCancelled(job.submitted_at + round(random.expovariate(1 / 900), 3), job.id) for job in chosen]


# Searches


def searches(
    seed: int, methods: Sequence[Method], trials: Sequence[int], every_seconds: float, **of_jobs: Any
) -> list[Search]:
    """One search per method and number of trials, all trials of a search with the same gang and model."""
    random = Random(f"golden searches {seed}")
    made = []
    for number, (method, count) in enumerate(zip(methods, trials, strict=True)):
        at = round(number * every_seconds + random.uniform(0, 60), 3)
        traits = replace(Traits(**of_jobs), gangs=(random.choice((1, 1, 2, 4)),), prefix=f"s{number}-")
        own = []
        for index in range(count):
            arrival = _arrival(random, traits, index, at)
            job = replace(arrival.job, app=f"search{number}", submitted_at=at)
            own.append(Trial(replace(arrival, job=job), _curve(random, arrival.truth.steps_total)))
        made.append(Search(f"search{number}", at, method, tuple(own), look_seconds=300.0))
    return made


# Engines around another one


class LossyEngine:
    """Loses some commands, and some reports of starts and ends: the scheduler has to ask again."""

    def __init__(self, engine: Any, seed: int, part: float) -> None:
        self._engine, self._random, self._part = engine, Random(f"golden losses {seed}"), part

    def wait(self, until: float) -> Any:
        moment = self._engine.wait(until)
        return moment if moment is None else moment._replace(events=self._kept(moment.events))

    def execute(self, commands: Sequence[Any]) -> list[Any]:
        kept = [each for each in commands if self._random.random() >= self._part]
        return self._kept(self._engine.execute(kept))

    def _kept(self, told: Sequence[Any]) -> list[Any]:
        reports = ("JobStarted", "JobEnded")
        return [each for each in told if kind(each) not in reports or self._random.random() >= self._part]


class BiddingEngine:
    """Apps with agents: some say what is believed of them, some exaggerate, some never answer."""

    def __init__(self, engine: Any) -> None:
        self._engine, self._now = engine, 0.0

    def wait(self, until: float) -> Any:
        moment = self._engine.wait(until)
        self._now = self._now if moment is None else moment.at
        return moment

    def execute(self, commands: Sequence[Any]) -> list[Any]:
        calls = [each for each in commands if kind(each) == "CallForBids"]
        told = list(self._engine.execute([each for each in commands if kind(each) != "CallForBids"]))
        return told + [bid for call in calls for offer in call.offers for bid in self._bids(call.auction, offer)]

    def _bids(self, auction: int, offer: Any) -> list[Any]:
        habit = sum(map(ord, offer.app)) % 5
        if habit == 0:
            return []
        factor = 1.3 if habit == 1 else 1.0
        return [BidGiven(self._now, auction, offer.app, offer.gpus, tuple(factor * each for each in offer.rho))]


def lossy(seed: int, part: float) -> Callable[[Any], Any]:
    return lambda engine: LossyEngine(engine, seed, part)
