"""Virtual clusters: how long the scheduler takes from a submission to its commands, on a large cluster, 80% full.

Ten tenants have reserved nine tenths of the cluster: racks, nodes and sockets. Gangs of 1 to 64 GPUs come and go, three
in ten without a guarantee; some tenants ask for more than they have, others for less, so that jobs wait and preempt.
Victims leave at once.
"""

from __future__ import annotations

import random
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from bench.cases import Result, loop_seconds
from horae.model.cluster import CLUSTER, NODE, Cluster, Node
from horae.model.commands import Start, Stop
from horae.model.events import Ending, Event, JobEnded, JobStarted, JobSubmitted, Tick
from horae.model.jobs import Job
from horae.model.setup import PoolSpec, Setup
from horae.model.shapes import Option, Shape
from horae.scheduler import Scheduler

TENANTS = 10
FULL = 0.8
DECISIONS = 1_000
SIZES = (1, 1, 1, 2, 2, 4, 4, 8, 8, 16, 32, 64)
PUBLIC_MICROSECONDS = 204 + 617  # HiveD's own code at 16,384 GPUs: guaranteed, and the commit (medians)


@dataclass(frozen=True)
class Decisions(Result):
    median_microseconds: float
    p99_microseconds: float
    start_seconds: float
    preemptions: int  # victims
    waiting: int  # decisions that said so


def cells_setup(gpus: int) -> Setup:
    nodes = gpus // 8
    made = tuple(
        Node(f"n{index}", "a100", 8, levels=(("switch", 2), ("socket", 4)), rack=f"r{index // 8}")
        for index in range(nodes)
    )
    racks = int(nodes // 8 * 0.9) // TENANTS
    cells = {"a100.rack": racks // 2, "a100.node": (racks - racks // 2) * 8 - 4, "a100.socket": 4}
    tenants = [
        PoolSpec(f"t{index}", "priority", tenants=(f"t{index}",), cells=cells, borrow=False) for index in range(TENANTS)
    ]
    spare = PoolSpec("spare", "fifo", {"backfill": True})
    return Setup(Cluster("bench", made), (*tenants, spare))


def decisions(gpus: int) -> Decisions:
    """From the submission of a job to all commands that it leads to; victims leave at once."""
    began = time.perf_counter()
    scheduler = Scheduler(cells_setup(gpus))
    start_seconds = time.perf_counter() - began
    rng = random.Random(0)
    running: dict[str, tuple[int, int]] = {}  # by job: epoch and GPUs
    used = number = preemptions = waiting = 0
    seconds: list[float] = []
    is_full = False
    while len(seconds) < DECISIONS:
        if used > FULL * gpus:
            is_full = True
            name = rng.choice(list(running))
            epoch, held = running.pop(name)
            used -= held
            events: list[Event] = [JobEnded(0.0, name, epoch, Ending.FINISHED, 1.0), Tick(0.0)]
        else:
            number += 1
            events = [JobSubmitted(0.0, _job(rng, number)), Tick(0.0)]
        began = time.perf_counter()
        commands = [command for event in events for command in scheduler.handle(event).commands]
        took = time.perf_counter() - began
        if is_full and isinstance(events[0], JobSubmitted):
            seconds.append(took)
            waiting += not commands
        while commands:
            command = commands.pop(0)
            if isinstance(command, Start):
                running[command.job_ids[0]] = command.epoch, len(command.gpus)
                used += len(command.gpus)
                scheduler.handle(JobStarted(0.0, command.job_ids[0], command.epoch))
            elif isinstance(command, Stop) and command.job_id in running:
                preemptions += 1
                epoch, held = running.pop(command.job_id)
                used -= held
                left = JobEnded(0.0, command.job_id, epoch, Ending.STOPPED, 0.0)
                commands += [each for event in (left, Tick(0.0)) for each in scheduler.handle(event).commands]
    seconds.sort()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    median, p99 = (1e6 * seconds[int(part * len(seconds))] for part in (0.5, 0.99))
    return Decisions(
        len(seconds), sum(seconds), memory, loop_seconds(), median, p99, start_seconds, preemptions, waiting
    )


def _job(rng: random.Random, number: int) -> Job:
    gpus = rng.choice(SIZES)
    priority = -1 if rng.random() < 0.3 else rng.choice([0, 0, 0, 1, 2])
    tenant = min(rng.randrange(TENANTS), rng.randrange(TENANTS))  # the first ask for most
    options = (Option(Shape("a100", gpus, NODE if gpus <= 8 else CLUSTER), 1.0),)
    job = Job(f"j{number}", 0.0, options, tenant=f"t{tenant}", priority=priority, steps_total=1e9)
    return replace(job, member_gpus=min(gpus, 8), lazy=rng.random() < 0.3)


CASES: dict[str, Callable[[], Result]] = {
    f"cells through the scheduler, {gpus:,} GPUs, 10 tenants": partial(decisions, gpus) for gpus in (16_384, 102_400)
}
