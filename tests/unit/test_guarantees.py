"""What composing guarantees with policies cannot preserve: each counterexample of docs/explanation/guarantees.md."""

from __future__ import annotations

from dataclasses import replace

from builders import job

from horae.experiments.simulate import simulate
from horae.model.cluster import Cluster, Node
from horae.model.commands import Command, Start, Stop
from horae.model.events import Event, Health, JobStarted, JobSubmitted, NodeChanged, TenantChange, TenantsChanged, Tick
from horae.model.jobs import Arrival, Job, Truth
from horae.model.setup import Cadence, PoolSpec, Setup
from horae.model.shapes import Option, Shape
from horae.model.status import Status
from horae.scheduler import Scheduler

FOUR = Cluster("four", tuple(Node(f"n{index}", "v100", 4) for index in range(4)))


def arrivals(*jobs: Job) -> list[Arrival]:
    return [Arrival(each, Truth(each.steps_total or 1.0, each.options)) for each in jobs]


def starts(setup: Setup, *jobs: Job) -> dict[str, float]:
    found = simulate(setup, arrivals(*jobs)).log.jobs
    return dict(zip(found.id, found.started_at.tolist(), strict=True))


def with_cells(**nodes: int) -> Setup:
    pools = [
        PoolSpec(name, "fifo", tenants=(name,), cells={"v100.node": count}, borrow=False)
        for name, count in nodes.items()
    ]
    return Setup(FOUR, (*pools, PoolSpec("spare", "fifo")))


def test_a_poor_tenant_waits_while_a_rich_ones_cells_are_idle() -> None:
    first = job("first", 0.0, 4, 100.0, tenant="poor")
    second = job("second", 1.0, 4, 100.0, tenant="poor")
    assert starts(with_cells(rich=3, poor=1), first, second) == {"first": 0.0, "second": 100.0}
    everybody = Setup(FOUR, (PoolSpec("all", "fifo"),))
    assert starts(everybody, first, second) == {"first": 0.0, "second": 1.0}


def test_what_is_idle_is_lent_only_to_work_that_may_be_sent_away() -> None:
    first = job("first", 0.0, 4, 100.0, tenant="poor")
    guest = job("guest", 1.0, 4, 100.0, tenant="poor", priority=-1)
    assert starts(with_cells(rich=3, poor=1), first, guest) == {"first": 0.0, "guest": 1.0}
    owner = [job(f"owner{number}", 2.0, 4, 50.0, tenant="rich") for number in range(3)]
    run = simulate(with_cells(rich=3, poor=1), arrivals(first, guest, *owner))
    leases = run.log.leases
    of_guest = [row for row in range(len(leases)) if run.log.jobs.id[leases.job[row]] == "guest"]
    assert [(leases.started_at[row], leases.ended_at[row]) for row in of_guest] == [(1.0, 2.0), (52.0, 151.0)]


def test_the_best_gpus_for_a_job_may_be_in_another_tenants_cells() -> None:
    """Max-min over the whole cluster has a higher least speed than max-min in each tenant's cells."""
    cluster = Cluster("two", (Node("a", "a100", 1), Node("v", "v100", 1)))
    shapes = Shape("a100", 1, "node"), Shape("v100", 1, "node")
    loves_a = (Option(shapes[0], 4.0), Option(shapes[1], 1.0))
    loves_v = (Option(shapes[0], 1.0), Option(shapes[1], 4.0))
    one = replace(job("one", 0.0, 1, 3600.0, tenant="one"), options=loves_a)
    two = replace(job("two", 0.0, 1, 3600.0, tenant="two"), options=loves_v)
    jobs = [Arrival(each, Truth(3600.0, each.options)) for each in (one, two)]
    swapped = (
        PoolSpec("one", "max-min", {}, Cadence.ROUNDS, tenants=("one",), cells={"v100.node": 1}, borrow=False),
        PoolSpec("two", "max-min", {}, Cadence.ROUNDS, tenants=("two",), cells={"a100.node": 1}, borrow=False),
        PoolSpec("spare", "fifo"),
    )
    apart = simulate(Setup(cluster, swapped), jobs).log.jobs.ended_at.max()
    together = simulate(Setup(cluster, (PoolSpec("all", "max-min", {}, Cadence.ROUNDS),)), jobs).log.jobs.ended_at.max()
    assert together == 900.0
    assert apart == 3600.0


def test_a_quota_may_find_room_where_a_private_cluster_is_fragmented() -> None:
    """Three and three GPUs are in use on two nodes of four; two more are left, but not together."""
    tenants = ("one", "two")
    quotas = Setup(FOUR, tuple(PoolSpec(name, "fifo", tenants=(name,), quota={"v100": 8}) for name in tenants))
    jobs = [job(f"large{number}", 0.0, 3, 100.0, tenant="one") for number in range(2)]
    jobs.append(job("small", 1.0, 2, 50.0, tenant="one"))
    assert starts(quotas, *jobs)["small"] == 1.0
    assert starts(with_cells(one=2, two=2), *jobs)["small"] == 100.0


def test_a_quota_may_leave_a_tenant_without_a_whole_node_that_a_private_cluster_has() -> None:
    """The sharing anomaly: eight GPUs are left to each, and no node is whole."""
    tenants = ("one", "two")
    quotas = Setup(FOUR, tuple(PoolSpec(name, "fifo", tenants=(name,), quota={"v100": 8}) for name in tenants))
    crowd = [job(f"crowd{number}", 0.0, 3, 100.0, tenant="two") for number in range(2)]
    mine = [job(f"mine{number}", 0.5, 3, 10.0 if number else 100.0, tenant="one") for number in range(2)]
    whole = job("whole", 11.0, 4, 50.0, tenant="one")
    late = job("late", 10.5, 2, 100.0, tenant="two")
    assert starts(with_cells(one=2, two=2), *crowd, *mine, late, whole)["whole"] == 11.0
    assert starts(quotas, *crowd, *mine, late, whole)["whole"] == 100.0


def two_tenants(policy: str = "fifo", **nodes: int) -> Scheduler:
    cluster = Cluster("two", (Node("n0", "v100", 4), Node("n1", "v100", 4)))
    pools = [PoolSpec(name, policy, tenants=(name,), cells={"v100.node": count}) for name, count in nodes.items()]
    return Scheduler(Setup(cluster, (*pools, PoolSpec("spare"))))


def told(scheduler: Scheduler, *events: Event) -> list[Command]:
    commands: list[Command] = []
    for event in (*events, Tick(events[-1].at)):
        for command in scheduler.handle(event).commands:
            commands.append(command)
            if isinstance(command, Start):
                scheduler.handle(JobStarted(event.at, command.job_ids[0], command.epoch))
    return commands


def test_priorities_order_jobs_of_one_tenant_only() -> None:
    scheduler = two_tenants("priority", a=1, b=1)
    low, first, second = (
        JobSubmitted(at, job(name, at, 4, tenant=tenant, priority=priority))
        for at, (name, tenant, priority) in enumerate([("low", "b", 0), ("first", "a", 9), ("second", "a", 9)])
    )
    told(scheduler, low)
    told(scheduler, first)
    assert told(scheduler, second) == []  # though the job of the other tenant ranks far below
    assert [scheduler.status(name) for name in ("low", "first", "second")] == [
        Status.RUNNING,
        Status.RUNNING,
        Status.PENDING,
    ]


def test_if_good_cells_run_out_the_tenant_that_uses_them_first_has_them() -> None:
    scheduler = two_tenants(a=1, b=1)
    told(scheduler, NodeChanged(0.0, "n0", Health.FAILED))
    told(scheduler, JobSubmitted(1.0, job("first", 1.0, 4, tenant="a")))
    assert told(scheduler, JobSubmitted(2.0, job("second", 2.0, 4, tenant="b"))) == []
    assert scheduler.prospect(job("third", 3.0, 4, tenant="b")).starts is False
    told(scheduler, NodeChanged(4.0, "n0", Health.HEALTHY))
    assert scheduler.status("second") is Status.RUNNING


def test_jobs_that_are_no_longer_covered_run_on_and_are_preemptible_when_reservations_change() -> None:
    scheduler = two_tenants(a=2, b=0)
    for name in ("first", "second"):
        told(scheduler, JobSubmitted(0.0, job(name, 0.0, 4, tenant="a")))
    one_each = {name: TenantChange(cells={"v100.node": 1}) for name in ("a", "b")}
    assert told(scheduler, TenantsChanged(1.0, one_each)) == []
    commands = told(scheduler, JobSubmitted(2.0, job("third", 2.0, 4, tenant="b")))
    assert [command.job_id for command in commands if isinstance(command, Stop)] == ["second"]
