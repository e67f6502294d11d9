"""Virtual private clusters: how long a decision takes, found and carried out, on a large cluster that is 80% full.

Ten tenants have reserved nine tenths of the cluster: racks, nodes and sockets. Gangs of 1 to 64 GPUs come and go, three
in ten without a guarantee; some tenants ask for more than they have, others for less, so that there is waiting and
preemption. Victims leave at once. A decision is `Hive.admit`: where it goes, whom to send away, and all of that done.
"""

from __future__ import annotations

import random
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from bench.cases import Result, loop_seconds
from horae.guarantees.hive import Hive
from horae.model.chains import CellKind, Chain, Reservation, Territory
from horae.model.gangs import Gang, Placed, Preempts

TENANTS = 10
FULL = 0.8
DECISIONS = 8_000
SIZES = (1, 1, 1, 2, 2, 4, 4, 8, 8, 16, 32, 64)
PUBLIC_MICROSECONDS = 204 + 617  # HiveD's own code at 16,384 GPUs: guaranteed, and the commit (medians)


@dataclass(frozen=True)
class Decisions(Result):
    median_microseconds: float
    p99_microseconds: float
    start_seconds: float
    preemptions: int  # victims
    waiting: int  # decisions that said so


def territory(gpus: int) -> Territory:
    nodes = gpus // 8
    types, fanout = ("gpu", "switch", "socket", "node", "rack"), (1, 2, 2, 2, 8)
    chain = Chain("rack", "a100", types, fanout, tuple(f"n{index}" for index in range(nodes)), 3)
    racks = int(nodes // 8 * 0.9) // TENANTS
    cells = {CellKind(0, 4): racks // 2, CellKind(0, 3): (racks - racks // 2) * 8 - 4, CellKind(0, 2): 4}
    return Territory((chain,), tuple(Reservation(f"t{index}", cells) for index in range(TENANTS)))


def decisions(gpus: int) -> Decisions:
    started = time.perf_counter()
    hive = Hive(territory(gpus))
    start_seconds = time.perf_counter() - started
    rng = random.Random(0)
    living: list[Gang] = []
    used = number = preemptions = waiting = 0
    seconds: list[float] = []
    is_full = False
    while len(seconds) < DECISIONS:
        if used > FULL * gpus:
            is_full = True
            index = rng.randrange(len(living))
            gang, living[index] = living[index], living[-1]
            living.pop()
            if gang.name in hive.roster.number:
                used -= gang.gpus
                hive.end(gang.name)
            continue
        number += 1
        gang = _gang(rng, number)
        began = time.perf_counter()
        answer = hive.admit(gang)
        took = time.perf_counter() - began
        if isinstance(answer, Preempts):
            preemptions += len(answer.victims)
            for victim in answer.victims:
                used -= hive.roster.standing[hive.roster.number[victim]].gang.gpus
                hive.end(victim)
            answer = hive.admit(gang)
        if isinstance(answer, Placed):
            living.append(gang)
            used += gang.gpus
        else:
            waiting += 1
        if is_full:
            seconds.append(took)
    seconds.sort()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    median, p99 = (1e6 * seconds[int(part * len(seconds))] for part in (0.5, 0.99))
    return Decisions(
        len(seconds), sum(seconds), memory, loop_seconds(), median, p99, start_seconds, preemptions, waiting
    )


def _gang(rng: random.Random, number: int) -> Gang:
    gpus = rng.choice(SIZES)
    members = (gpus,) if gpus <= 8 else (8,) * (gpus // 8)
    priority = -1 if rng.random() < 0.3 else rng.choice([0, 0, 0, 1, 2])
    tenant = min(rng.randrange(TENANTS), rng.randrange(TENANTS))  # the first ask for most
    return Gang(f"g{number}", f"t{tenant}", members, priority, "a100", lazy=rng.random() < 0.3)


CASES: dict[str, Callable[[], Result]] = {
    f"hived, {gpus:,} GPUs, 10 tenants": partial(decisions, gpus) for gpus in (16_384, 102_400)
}
