"""Small clusters, jobs and runs for tests: say what matters, leave out the rest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf
from typing import Any

from horae.driver import raise_rejected, run
from horae.engines.simulated import SimulatedEngine
from horae.model.cluster import CLUSTER, NODE, Cluster, Gpu, Node
from horae.model.events import Event
from horae.model.jobs import Arrival, Job, Truth
from horae.model.setup import Cadence, PoolSpec, Setup
from horae.model.shapes import Option, Shape
from horae.reports.recorder import Recorder
from horae.scheduler import Reaction, Scheduler

ACCELERATOR = "v100"
POOL = "all"


def cluster(
    nodes: int = 1,
    gpus: int = 8,
    accelerator: str = ACCELERATOR,
    racks: int = 0,
    levels: Sequence[tuple[str, int]] = (),
    cpus: float = inf,
    memory_bytes: float = inf,
) -> Cluster:
    """Equal nodes n0, n1, …; with `racks`, in that many racks r0, r1, … of neighbours."""
    return Cluster(
        "test",
        tuple(
            Node(
                name=f"n{index}",
                accelerator=accelerator,
                gpus=gpus,
                cpus=cpus,
                memory_bytes=memory_bytes,
                levels=tuple(levels),
                rack=f"r{index * racks // nodes}" if racks else "",
            )
            for index in range(nodes)
        ),
    )


def gpus(node: str, *numbers: int) -> tuple[Gpu, ...]:
    """GPUs of one node by their numbers there."""
    return tuple(Gpu(node, number) for number in numbers)


def job(
    id: str,
    at: float = 0.0,
    gpus: int = 1,
    seconds: float | None = 100.0,
    *,
    accelerator: str = ACCELERATOR,
    level: str = NODE,
    steps_per_second: float = 1.0,
    **fields: Any,
) -> Job:
    """A job with one acceptable shape, believed to run for so many seconds (None: unknown)."""
    return Job(
        id=id,
        submitted_at=at,
        options=(Option(Shape(accelerator, gpus, level), steps_per_second),),
        steps_total=None if seconds is None else seconds * steps_per_second,
        **fields,
    )


def spread_job(id: str, at: float, gpus: int, seconds: float | None, node_gpus: int, **fields: Any) -> Job:
    """A job that takes one node if that is enough, and otherwise whole nodes and a remainder."""
    level = NODE if gpus <= node_gpus else CLUSTER
    return job(id, at, gpus, seconds, level=level, member_gpus=node_gpus, **fields)


def with_truth(submitted: Job, seconds: float, fails_after: float = inf) -> Arrival:
    """The job as submitted, and how many seconds of work there really are."""
    speed = submitted.options[0].steps_per_second
    return Arrival(submitted, Truth(seconds * speed, submitted.options, fails_after * speed))


def arrival(id: str, at: float = 0.0, gpus: int = 1, seconds: float = 100.0, **fields: Any) -> Arrival:
    """A job whose owner knows how long it runs."""
    return with_truth(job(id, at, gpus, seconds, **fields), seconds)


def handle(scheduler: Scheduler, event: Event) -> Reaction:
    """Tell a scheduler of an event; a decision that it rejects is an error here, as in a simulation."""
    reaction = scheduler.handle(event)
    raise_rejected(reaction)
    return reaction


def simulate(
    cluster: Cluster,
    arrivals: Iterable[Arrival],
    policy: str = "fifo",
    cadence: Cadence | str = Cadence.EVENTS,
    outside: Iterable[Event] = (),
    round_seconds: float = 360.0,
    **options: object,
) -> Recorder:
    """Run a workload to its end in one pool; `options` are those of the policy."""
    pool = PoolSpec(POOL, policy, options, Cadence(cadence), round_seconds)
    ordered = sorted(arrivals, key=lambda each: each.job.submitted_at)
    setup = Setup(cluster, (pool,))
    recorder = Recorder(setup)
    run(Scheduler(setup), SimulatedEngine(cluster, recorder.expecting(ordered), outside), (recorder,), strict=True)
    return recorder
