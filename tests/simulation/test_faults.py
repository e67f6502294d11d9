"""Messages get lost, delayed, doubled and invented: every job still ends, and no GPU serves two but by agreement."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from builders import ACCELERATOR, arrival, cluster
from faulty_engine import Faults, FaultyEngine
from profiles import NIGHTLY

from horae.driver import run
from horae.engines.engine import Engine, Moment
from horae.engines.simulated import SimulatedEngine
from horae.model.cluster import Gpu
from horae.model.commands import Command, Start
from horae.model.events import Event, Health, JobEnded, NodeChanged
from horae.model.setup import Cadence, PoolSpec, Setup
from horae.model.speeds import Sharing
from horae.model.status import Status
from horae.scheduler import Scheduler

CASES = {
    "nothing goes wrong": Faults(),
    "commands are lost": Faults(drop_command=0.3),
    "events are lost": Faults(drop_event=0.3),
    "messages come twice": Faults(double=0.5),
    "events are late": Faults(delay=0.5, delay_seconds_max=90.0),
    "the engine lies": Faults(lie=0.5),
    "all of it": Faults(drop_command=0.1, drop_event=0.1, double=0.2, delay=0.2, lie=0.2),
}


class Watched:
    """Between the faults and the simulation: what is really started must find its GPUs empty."""

    def __init__(self, inner: Engine) -> None:
        self.inner = inner
        self.busy: dict[Gpu, set[str]] = {}  # by GPU: who is on it
        self.epochs: dict[str, int] = {}
        self.bundles = 0  # pairs that were really started

    def wait(self, until: float) -> Moment | None:
        moment = self.inner.wait(until)
        if moment is not None:
            self._settle(moment.events)
        return moment

    def execute(self, commands: Sequence[Command]) -> Sequence[Event]:
        events: list[Event] = []
        for command in commands:
            if isinstance(command, Start):
                self._take(command)
            replies = self.inner.execute([command])
            self._settle(replies)
            events.extend(replies)
        return events

    def _take(self, command: Start) -> None:
        """Two that start together may find each other on their GPUs, and nobody else."""
        fresh = [job_id for job_id in command.job_ids if self.epochs.get(job_id, -1) < command.epoch]
        for gpu in command.gpus if fresh else ():
            strangers = self.busy.get(gpu, set()) - set(command.job_ids)
            assert not strangers, f"{fresh} on a GPU of {strangers}"
            self.busy.setdefault(gpu, set()).update(fresh)
        self.epochs |= dict.fromkeys(fresh, command.epoch)
        self.bundles += len(fresh) > 1

    def _settle(self, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, JobEnded):
                for there in self.busy.values():
                    there.discard(event.job_id)


@pytest.mark.parametrize("policy", ["fifo", "tiresias", "equal-share", "highest-rho", "optimus", "shockwave"])
@pytest.mark.parametrize("faults", CASES.values(), ids=CASES)
def test_every_job_ends_although(faults: Faults, policy: str) -> None:
    machines = cluster(nodes=3, gpus=4)
    jobs = [arrival(f"j{i}", 20 * i, 1 + i % 4, 50 + 37 * i % 400, restart_seconds=5.0) for i in range(40)]
    outside = [
        NodeChanged(300.0, machines.nodes[0].name, Health.FAILED),
        NodeChanged(900.0, machines.nodes[0].name, Health.HEALTHY),
        NodeChanged(1000.0, machines.nodes[1].name, Health.DRAINING),
        NodeChanged(2000.0, machines.nodes[1].name, Health.HEALTHY),
    ]
    setup = Setup(
        machines,
        (PoolSpec("all", policy, {}, Cadence.ROUNDS, 60.0),),
        acknowledge_seconds=30.0,
        survey_seconds=120.0,
    )
    for seed in range(3 if NIGHTLY else 1):
        scheduler = Scheduler(setup)
        watched = Watched(SimulatedEngine(machines, jobs, outside))
        run(scheduler, FaultyEngine(watched, faults, seed), [], strict=True)
        assert {scheduler.status(item.job.id) for item in jobs} == {Status.FINISHED}


@pytest.mark.parametrize(
    ("policy", "options"), [("max-min", {"sharing": True}), ("gandiva", {}), ("gandiva-time-slicing", {})]
)
@pytest.mark.parametrize("faults", CASES.values(), ids=CASES)
def test_jobs_that_share_gpus_end_although(faults: Faults, policy: str, options: dict[str, object]) -> None:
    machines = cluster(nodes=2, gpus=4)
    gangs, models = (1, 2), ("m", "n")
    jobs = [
        arrival(f"j{i}", 20 * i, gangs[i % 2], 50 + 37 * i % 400, restart_seconds=5.0, model=models[i // 2 % 2])
        for i in range(30)
    ]
    outside = [
        NodeChanged(300.0, machines.nodes[0].name, Health.FAILED),
        NodeChanged(900.0, machines.nodes[0].name, Health.HEALTHY),
    ]
    pairs = ("m", "m"), ("m", "n"), ("n", "n")
    sharing = tuple(Sharing(pair, ACCELERATOR, gpus, (0.8, 0.8)) for pair in pairs for gpus in gangs)
    pool = PoolSpec("all", policy, options, Cadence.ROUNDS, 60.0)
    setup = Setup(machines, (pool,), acknowledge_seconds=30.0, survey_seconds=120.0, sharing=sharing)
    scheduler = Scheduler(setup)
    watched = Watched(SimulatedEngine(machines, jobs, outside, sharing=sharing))
    run(scheduler, FaultyEngine(watched, faults, 0), [], strict=True)
    assert {scheduler.status(item.job.id) for item in jobs} == {Status.FINISHED}
    assert watched.bundles
