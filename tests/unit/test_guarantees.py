"""What composing guarantees with policies cannot preserve: each counterexample of docs/explanation/guarantees.md."""

from __future__ import annotations

from dataclasses import replace

from builders import job

from horae.experiment import simulate
from horae.guarantees.hive import Hive
from horae.model.cells import Cluster, Node
from horae.model.chains import CellKind, Chain, Reservation, Territory
from horae.model.gangs import Gang, Placed, Preempts, Waits
from horae.model.jobs import Arrival, Job, Truth
from horae.model.pools import Cadence, PoolSpec, Setup
from horae.model.shapes import Option, Shape

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


def test_priorities_order_a_tenants_jobs_and_nobody_elses() -> None:
    chain = Chain("node", "v100", ("gpu", "node"), (1, 4), ("n0", "n1"), 1)
    node = CellKind(0, 1)
    hive = Hive(Territory((chain,), (Reservation("a", {node: 1}), Reservation("b", {node: 1}))))
    assert isinstance(hive.admit(Gang("low", "b", (4,), priority=0)), Placed)
    assert isinstance(hive.admit(Gang("first", "a", (4,), priority=9)), Placed)
    assert isinstance(hive.admit(Gang("second", "a", (4,), priority=9)), Waits)  # though b's gang ranks far below


def test_if_good_cells_run_out_who_uses_them_first_has_them() -> None:
    chain = Chain("node", "v100", ("gpu", "node"), (1, 4), ("n0", "n1"), 1)
    node = CellKind(0, 1)
    hive = Hive(Territory((chain,), (Reservation("a", {node: 1}), Reservation("b", {node: 1}))))
    hive.set_bad(0, 0, 0b1111)
    assert (hive.doomed("a"), hive.doomed("b")) == ({}, {})  # each could have the good one
    assert isinstance(hive.admit(Gang("first", "a", (4,))), Placed)
    assert (hive.doomed("a"), hive.doomed("b")) == ({}, {node: 1})
    assert isinstance(hive.plan(Gang("second", "b", (4,))), Waits)


def two_nodes(**nodes: int) -> Territory:
    chain = Chain("node", "v100", ("gpu", "node"), (1, 4), ("n0", "n1"), 1)
    return Territory((chain,), tuple(Reservation(name, {CellKind(0, 1): count}) for name, count in nodes.items()))


def test_who_is_covered_no_more_goes_on_without_a_guarantee_when_reservations_change() -> None:
    hive = Hive(two_nodes(a=2))
    for name in ("first", "second"):
        assert isinstance(hive.admit(Gang(name, "a", (4,))), Placed)
    fresh, lost = hive.reconfigured(two_nodes(a=1, b=1))
    assert lost == ("second",)
    assert set(fresh.roster.number) == {"first", "second"}
    answer = fresh.admit(Gang("third", "b", (4,)))
    assert isinstance(answer, Preempts)
    assert answer.victims == ("second",)


def test_nobody_is_lost_when_a_node_is_taken_away_or_gone_bad() -> None:
    hive = Hive(two_nodes(a=2))
    for name in ("first", "second"):
        hive.admit(Gang(name, "a", (4,)))
    hive.set_bad(0, 0, 0b0011)
    smaller = Territory(
        (Chain("node", "v100", ("gpu", "node"), (1, 4), ("n0",), 1),), (Reservation("a", {CellKind(0, 1): 1}),)
    )
    fresh, lost = hive.reconfigured(smaller)
    assert (lost, set(fresh.roster.number)) == ((), {"first", "second"})
    assert fresh.estate.grounds[0].buddies.bad_mask == [0b0011]
    fresh.end("first")
    fresh.end("second")
    assert fresh.doomed("a") == {CellKind(0, 1): 1}
