"""A GPU type of which every node is drained or gone: decisions end, and jobs of the other types go on."""

from __future__ import annotations

import pytest
from builders import handle, job

from horae.model.cluster import Cluster, Node
from horae.model.events import Health, JobStarted, JobSubmitted, NodeChanged, Tick
from horae.model.setup import Cadence, PoolSpec, Setup
from horae.model.status import Status
from horae.policies.registry import POLICIES
from horae.scheduler import Scheduler

VARIANTS: list[tuple[str, dict[str, object]]] = [
    (f"themis-{name}", {"lease_seconds": 100.0}) for name in ("tiresias", "optimus", "gandiva", "slaq")
]
EVERY_POLICY: list[tuple[str, dict[str, object]]] = [(name, {}) for name in sorted(POLICIES)]


def _scheduler(policy: str, options: dict[str, object], cadence: Cadence) -> Scheduler:
    cluster = Cluster("two types", (Node("a0", "a", 1), Node("b0", "b", 2)))
    return Scheduler(Setup(cluster, (PoolSpec("all", policy, options, cadence, round_seconds=50.0),)))


@pytest.mark.parametrize("cadence", Cadence)
@pytest.mark.parametrize(("policy", "options"), [*VARIANTS, *EVERY_POLICY])
def test_a_job_starts_on_the_type_that_is_left(policy: str, options: dict[str, object], cadence: Cadence) -> None:
    scheduler = _scheduler(policy, options, cadence)
    handle(scheduler, JobSubmitted(0.0, job("first", 0.0, accelerator="a", seconds=5000.0)))
    handle(scheduler, Tick(0.0))
    handle(scheduler, JobStarted(0.0, "first", 0))
    handle(scheduler, NodeChanged(10.0, "a0", Health.DRAINING))
    handle(scheduler, Tick(50.0))
    handle(scheduler, JobSubmitted(200.0, job("second", 200.0, accelerator="b", seconds=5000.0)))
    for at in range(200, 2000, 50):
        handle(scheduler, Tick(float(at)))
    assert scheduler.status("first") is Status.RUNNING
    assert scheduler.status("second") is Status.STARTING
