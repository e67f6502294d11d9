"""Messages get lost, delayed, doubled and invented: every job still ends, and no GPU ever serves two."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from builders import arrival, cluster

from horae.driver import run
from horae.engines.engine import Engine, Moment
from horae.engines.faulty import Faults, FaultyEngine
from horae.engines.simulated import SimulatedEngine
from horae.model.commands import Command, Start
from horae.model.events import Event, Health, JobEnded, NodeChanged
from horae.model.pools import Cadence, PoolSpec, Setup
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
        self.busy: dict[int, str] = {}
        self.epochs: dict[str, int] = {}

    def wait(self, until: float) -> Moment | None:
        moment = self.inner.wait(until)
        if moment is not None:
            self._settle(moment.events)
        return moment

    def execute(self, commands: Sequence[Command]) -> Sequence[Event]:
        events: list[Event] = []
        for command in commands:
            if isinstance(command, Start) and self.epochs.get(command.job_ids[0], -1) < command.epoch:
                (job_id,) = command.job_ids
                assert not set(command.gpus) & set(self.busy), f"{job_id} on GPUs of {self.busy}"
                self.epochs[job_id] = command.epoch
                self.busy |= dict.fromkeys(command.gpus, job_id)
            replies = self.inner.execute([command])
            self._settle(replies)
            events.extend(replies)
        return events

    def _settle(self, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, JobEnded):
                self.busy = {gpu: job_id for gpu, job_id in self.busy.items() if job_id != event.job_id}


@pytest.mark.parametrize("policy", ["fifo", "tiresias", "equal-share", "highest-rho"])
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
    for seed in range(3):
        scheduler = Scheduler(setup)
        watched = Watched(SimulatedEngine(machines, jobs, outside))
        run(scheduler, FaultyEngine(watched, faults, seed))
        assert {scheduler.status(item.job.id) for item in jobs} == {Status.FINISHED}
