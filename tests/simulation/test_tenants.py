"""Tenants with cells: each is scheduled as on a private cluster, whatever the others and their policies do."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from horae.experiments.replay import replay_file
from horae.experiments.simulate import Run, simulate
from horae.model.chain_layout import layout_of, private_cluster
from horae.model.cluster import Cluster, Node
from horae.model.events import Event, Health, NodeChanged, TenantChange, TenantsChanged
from horae.model.jobs import Arrival, Job, Truth
from horae.model.reasons import Never
from horae.model.setup import Cadence, PoolSpec, Setup
from horae.model.shapes import Option, Shape

CLUSTER = Cluster("lab", tuple(Node(f"n{index}", "V100", 8, levels=(("socket", 4),)) for index in range(16)))
CELLS = {"nlp": {"V100.node": 8}, "vision": {"V100.node": 4, "V100.socket": 3}, "speech": {"V100.node": 2}}
GRACE_SECONDS = 20.0
POLICIES = ("fifo", "srtf", "tiresias", "yarn-cs", "max-min", "finish-time-fairness")
ROUNDS = frozenset({"srtf", "tiresias", "max-min", "finish-time-fairness"})


def jobs_of(tenant: str, count: int, seed: int, priority: int = 0) -> list[Arrival]:
    rng = random.Random(seed)
    made, at = [], 0.0
    for number in range(count):
        at += rng.expovariate(1 / 700)
        gpus = rng.choice([1, 1, 2, 2, 4, 8, 8, 16])
        seconds = 60 + rng.expovariate(1 / 5000)
        options = (Option(Shape("V100", gpus, "node" if gpus <= 8 else "cluster"), 1.0),)
        job = Job(f"{tenant}{priority}-{number}", at, options, tenant=tenant, steps_total=seconds, priority=priority)
        job = replace(job, grace_seconds=GRACE_SECONDS if priority < 0 else 0.0)
        made.append(Arrival(job, Truth(seconds, options, leaving_seconds=job.grace_seconds)))
    return made


def pool(name: str, policy: str) -> PoolSpec:
    return PoolSpec(name, policy, {}, Cadence.ROUNDS if policy in ROUNDS else Cadence.EVENTS)


def shared(policies: dict[str, str], *, static_binding: bool = False) -> Setup:
    pools = [
        replace(pool(name, policies[name]), tenants=(name,), cells=cells, borrow=False) for name, cells in CELLS.items()
    ]
    return Setup(CLUSTER, (*pools, PoolSpec("spare", "fifo", {"backfill": True})), static_binding=static_binding)


def private(tenant: str, policy: str) -> Setup:
    layout = layout_of(CLUSTER, CELLS)
    return Setup(private_cluster(layout, list(CELLS).index(tenant)), (pool("all", policy),))


def leases_of(run: Run) -> dict[str, list[tuple[float, float]]]:
    """By job: when each of its leases began and ended."""
    found: dict[str, list[tuple[float, float]]] = {}
    leases, jobs = run.log.leases, run.log.jobs
    for row, start, end in zip(leases.job.tolist(), leases.started_at.tolist(), leases.ended_at.tolist(), strict=True):
        found.setdefault(jobs.id[row], []).append((start, end))
    return {name: sorted(each) for name, each in found.items()}


def in_order(arrivals: Sequence[Arrival]) -> list[Arrival]:
    return sorted(arrivals, key=lambda each: each.job.submitted_at)


WORK = {tenant: jobs_of(tenant, 80, seed) for seed, tenant in enumerate(CELLS)}
GUESTS = [*jobs_of("nlp", 40, 8, priority=-1), *jobs_of("nobody", 40, 9, priority=-1)]


@pytest.mark.parametrize("first", range(len(POLICIES)))
def test_every_lease_is_that_of_a_private_cluster_though_each_tenant_has_another_policy(first: int) -> None:
    policies = {tenant: POLICIES[(first + index) % len(POLICIES)] for index, tenant in enumerate(CELLS)}
    together = leases_of(simulate(shared(policies), in_order([job for jobs in WORK.values() for job in jobs])))
    for tenant, policy in policies.items():
        alone = leases_of(simulate(private(tenant, policy), WORK[tenant]))
        assert {name: leases for name, leases in together.items() if name in alone} == alone


@pytest.mark.parametrize("static_binding", [False, True])
def test_guests_that_leave_at_once_delay_nobody(static_binding: bool) -> None:
    policies = dict.fromkeys(CELLS, "fifo")
    guests = [Arrival(each.job, replace(each.truth, leaving_seconds=0.0)) for each in GUESTS]
    everybody = in_order([*(job for jobs in WORK.values() for job in jobs), *guests])
    run = simulate(shared(policies, static_binding=static_binding), everybody)
    together = leases_of(run)
    assert not run.unfinished
    assert sum(len(together[each.job.id]) for each in guests) > len(guests)  # some were sent away and came back
    for tenant in CELLS:
        alone = leases_of(simulate(private(tenant, "fifo"), WORK[tenant]))
        assert {name: leases for name, leases in together.items() if name in alone} == alone


def test_under_first_come_first_served_with_room_guests_delay_a_start_by_their_grace_at_most() -> None:
    few = {tenant: jobs[::8] for tenant, jobs in WORK.items()}
    everybody = in_order([*(job for jobs in few.values() for job in jobs), *GUESTS])
    together = leases_of(simulate(shared(dict.fromkeys(CELLS, "fifo")), everybody))
    later = []
    for tenant in CELLS:
        alone = leases_of(simulate(private(tenant, "fifo"), few[tenant]))
        later += [together[name][0][0] - leases[0][0] for name, leases in alone.items()]
    assert 0 < max(later) <= GRACE_SECONDS + 1e-9


def test_nobody_has_a_gpu_of_another_at_any_time() -> None:
    everybody = in_order([*(job for jobs in WORK.values() for job in jobs), *GUESTS])
    leases = simulate(shared(dict.fromkeys(CELLS, "tiresias")), everybody).log.leases
    by_gpu: dict[int, list[tuple[float, float]]] = {}
    for number in range(len(leases)):
        for gpu in leases.gpu[leases.offset[number] : leases.offset[number + 1]].tolist():
            by_gpu.setdefault(gpu, []).append((leases.started_at[number], leases.ended_at[number]))
    assert set(by_gpu) <= set(range(CLUSTER.gpu_count))
    for spans in by_gpu.values():
        spans.sort()
        assert all(one[1] <= two[0] for one, two in pairwise(spans))


def failures(*nodes: str) -> list[Event]:
    return [
        event
        for number, node in enumerate(nodes)
        for event in (
            NodeChanged(5_000.0 * (number + 1), node, Health.FAILED),
            NodeChanged(5_000.0 * (number + 3), node, Health.HEALTHY),
        )
    ]


@pytest.mark.parametrize("policy", ["fifo", "tiresias"])
def test_all_finish_though_nodes_fail_and_come_back(policy: str) -> None:
    everybody = in_order([*(job for jobs in WORK.values() for job in jobs), *GUESTS])
    outside = failures("n0", "n3", "n7", "n8", "n15", "n1", "n2")
    run = simulate(shared(dict.fromkeys(CELLS, policy)), everybody, outside)
    assert not run.refused
    assert not run.unfinished


def test_while_enough_nodes_are_good_a_failure_elsewhere_is_not_felt() -> None:
    """Fifteen nodes and a half are promised, and the one that fails is not in use."""
    few = {tenant: jobs[::8] for tenant, jobs in WORK.items()}
    everybody = in_order([job for jobs in few.values() for job in jobs])
    outside: list[Event] = [NodeChanged(0.0, "n15", Health.FAILED)]
    together = leases_of(simulate(shared(dict.fromkeys(CELLS, "fifo")), everybody, outside))
    for tenant in CELLS:
        alone = leases_of(simulate(private(tenant, "fifo"), few[tenant]))
        assert {name: leases for name, leases in together.items() if name in alone} == alone


def test_a_gang_larger_than_its_tenants_cells_is_refused_with_the_largest_that_would_fit() -> None:
    options = (Option(Shape("V100", 24, "cluster"), 1.0),)
    job = Job("huge", 0.0, options, tenant="speech", steps_total=10.0)
    run = simulate(shared(dict.fromkeys(CELLS, "fifo")), [Arrival(job, Truth(10.0, options))])
    assert run.refused["huge"] == Never("speech", options[0].shape, 16, spare="spare")


def changed(at: float, **cells: int) -> TenantsChanged:
    """Other numbers of nodes for these tenants; 0: none of any kind."""
    cells_of = {tenant: {"V100.node": count} if count else {} for tenant, count in cells.items()}
    return TenantsChanged(at, {tenant: TenantChange(cells=each) for tenant, each in cells_of.items()})


@pytest.mark.parametrize("policy", ["fifo", "tiresias", "max-min"])
def test_reservations_change_under_jobs_that_run_and_all_of_them_finish(policy: str, tmp_path: Path) -> None:
    everybody = in_order([*(job for jobs in WORK.values() for job in jobs), *GUESTS])
    outside: list[Event] = [changed(9_000.0, nlp=4, vision=8, speech=2), changed(30_000.0, nlp=10, vision=3, speech=2)]
    outside += [NodeChanged(20_000.0, "n2", Health.FAILED), NodeChanged(26_000.0, "n2", Health.HEALTHY)]
    run = simulate(shared(dict.fromkeys(CELLS, policy)), everybody, outside, journal=tmp_path / "journal")
    assert not run.unfinished
    assert replay_file(tmp_path / "journal").difference == ""


def three_nodes(**cells: int) -> Setup:
    cluster = Cluster("three", tuple(Node(f"n{index}", "V100", 8) for index in range(3)))
    pools = [
        PoolSpec(name, "fifo", tenants=(name,), cells={"V100.node": count}, borrow=False)
        for name, count in cells.items()
    ]
    return Setup(cluster, (*pools, PoolSpec("spare")))


def whole_node(name: str, at: float) -> Arrival:
    options = (Option(Shape("V100", 8, "node"), 1.0),)
    return Arrival(Job(name, at, options, tenant=name[0], steps_total=100.0), Truth(100.0, options))


def test_a_job_that_is_covered_no_more_goes_on_until_somebody_needs_its_gpus() -> None:
    arrivals = [whole_node("a1", 0.0), whole_node("b1", 0.0), whole_node("b2", 0.0), whole_node("a2", 20.0)]
    run = simulate(three_nodes(a=1, b=2), arrivals, [changed(10.0, a=2, b=1)])
    assert leases_of(run) == {
        "a1": [(0.0, 100.0)],
        "b1": [(0.0, 100.0)],
        "b2": [(0.0, 20.0), (100.0, 180.0)],
        "a2": [(20.0, 120.0)],
    }


@pytest.mark.parametrize(
    "cells", [{"a": 3}, {"a": 0, "b": 1}, {"spare": 1}], ids=["too many", "none", "for all others"]
)
def test_reservations_that_cannot_be_change_nothing(cells: dict[str, int]) -> None:
    arrivals = [whole_node("a1", 0.0), whole_node("b1", 0.0), whole_node("b2", 0.0), whole_node("a2", 20.0)]
    assert leases_of(simulate(three_nodes(a=1, b=2), arrivals, [changed(10.0, **cells)]))["a2"] == [(100.0, 200.0)]


def gang(name: str, at: float, gpus: int, seconds: float, *, tenant: str = "", grace: float = 0.0) -> Arrival:
    """A guest is called g-something and has no guarantee."""
    options = (Option(Shape("V100", gpus, "node"), 1.0),)
    owner, priority = tenant or name[0], -1 if name[0] == "g" else 0
    job = Job(name, at, options, tenant=owner, steps_total=seconds, priority=priority, grace_seconds=grace)
    return Arrival(job, Truth(seconds, options, leaving_seconds=grace))


def small_nodes(count: int, cells: dict[str, int], spare: PoolSpec) -> Setup:
    cluster = Cluster("small", tuple(Node(f"n{index}", "V100", 4) for index in range(count)))
    pools = [
        PoolSpec(name, "fifo", tenants=(name,), cells={"V100.node": each}, borrow=False) for name, each in cells.items()
    ]
    return Setup(cluster, (*pools, spare))


@pytest.mark.parametrize("health", [Health.FAILED, Health.DRAINING])
def test_a_tenant_goes_on_elsewhere_when_its_node_fails_or_drains_and_others_are_good(health: Health) -> None:
    setup = small_nodes(3, {"t": 1}, PoolSpec("spare"))
    run = simulate(setup, [gang("t1", 0.0, 4, 1000.0), gang("t2", 10.0, 4, 100.0)], [NodeChanged(100.0, "n0", health)])
    ends = {"t1": [(0.0, 100.0), (100.0, 1000.0)]} if health is Health.FAILED else {"t1": [(0.0, 1000.0)]}
    assert leases_of(run) == {**ends, "t2": [(1000.0, 1100.0)]}


def test_where_good_hardware_is_short_nobody_starts_on_bad_and_all_get_their_turn() -> None:
    setup = small_nodes(2, {"x": 1, "y": 1}, PoolSpec("spare"))
    jobs = [
        gang("x1", 10.0, 2, 1000.0),
        gang("x2", 30.0, 1, 1000.0),
        gang("y1", 40.0, 4, 100.0),
        gang("y2", 50.0, 4, 100.0),
    ]
    run = simulate(setup, jobs, [NodeChanged(1.0, "n0", Health.FAILED)])
    assert set(run.log.leases.gpu.tolist()) <= {4, 5, 6, 7}
    assert not run.unfinished


def test_a_tenant_takes_gpus_that_are_held_for_a_guest() -> None:
    setup = small_nodes(1, {"x": 1}, PoolSpec("spare", "srtf"))
    jobs = [gang("ga", 0.0, 4, 5000.0, grace=30.0), gang("gb", 100.0, 4, 500.0), gang("x1", 110.0, 4, 1000.0)]
    found = leases_of(simulate(setup, jobs))
    assert found["x1"] == [(130.0, 1130.0)]
    assert found["gb"][0][0] >= 1130.0


def test_a_guest_that_was_sent_away_is_looked_at_as_soon_as_it_has_left() -> None:
    setup = small_nodes(2, {"x": 1}, PoolSpec("spare", "fifo", {"backfill": True}))
    jobs = [
        gang("ga", 0.0, 2, 50.0), gang("gb", 1.0, 2, 5000.0), gang("gc", 2.0, 1, 3000.0, grace=30.0),
        gang("x1", 110.0, 4, 1000.0),
    ]  # fmt: skip
    assert leases_of(simulate(setup, jobs))["gc"][1][0] == 140.0


def by_quota(quota: int, policy: str) -> Setup:
    cluster = Cluster("small", tuple(Node(f"n{index}", "V100", 8) for index in range(2)))
    return Setup(cluster, (PoolSpec("x", policy, tenants=("x",), quota={"V100": quota}),))


def test_a_quota_is_made_up_of_what_is_left_of_it_and_of_what_its_own_jobs_leave() -> None:
    jobs = [gang("x1", 0.0, 4, 5000.0), gang("x2", 100.0, 8, 500.0)]
    assert leases_of(simulate(by_quota(8, "srtf"), jobs))["x2"] == [(100.0, 600.0)]


def test_a_quota_counts_what_is_held_for_its_jobs() -> None:
    jobs = [gang("x1", 0.0, 2, 5000.0, grace=30.0), gang("x2", 100.0, 6, 500.0), gang("x3", 110.0, 4, 600.0)]
    leases = simulate(by_quota(6, "srtf"), jobs).log.leases
    for at in np.unique(leases.started_at):
        assert leases.gpus[(leases.started_at <= at) & (at < leases.ended_at)].sum() <= 6


def test_a_job_too_large_for_what_its_tenant_has_left_goes_on_without_a_guarantee_and_lets_others_pass() -> None:
    arrivals = [gang("a1", 0.0, 4, 100.0), gang("b1", 0.0, 4, 100.0), gang("c1", 0.0, 4, 100.0)]
    big = Option(Shape("V100", 8, "cluster"), 1.0)
    job = Job("a-big", 1.0, (big,), tenant="a", steps_total=50.0)
    arrivals += [Arrival(job, Truth(50.0, (big,))), gang("a2", 2.0, 4, 20.0)]
    setup = small_nodes(3, {"a": 2, "b": 1}, PoolSpec("spare"))
    assert leases_of(simulate(setup, arrivals, [changed(10.0, a=1)])) == {
        "a1": [(0.0, 100.0)],
        "b1": [(0.0, 100.0)],
        "c1": [(0.0, 100.0)],
        "a2": [(100.0, 120.0)],
        "a-big": [(100.0, 150.0)],
    }


def test_a_job_that_nobody_can_hold_any_more_is_refused_with_the_largest_that_fits() -> None:
    big = Option(Shape("V100", 8, "cluster"), 1.0)
    job = Job("a-big", 1.0, (big,), tenant="a", steps_total=50.0)
    arrivals = [gang("a1", 0.0, 4, 100.0), Arrival(job, Truth(50.0, (big,))), gang("a2", 2.0, 4, 20.0)]
    cluster = Cluster("small", tuple(Node(f"n{index}", "V100", 4) for index in range(2)))
    pools = [
        PoolSpec(name, "fifo", tenants=(name,), cells={"V100.node": 1 + (name == "a")}, borrow=False) for name in "ab"
    ]
    del pools[1]
    run = simulate(Setup(cluster, tuple(pools)), arrivals, [changed(10.0, a=1)])
    assert run.refused["a-big"] == Never("a", big.shape, 4)
    assert leases_of(run)["a2"] == [(100.0, 120.0)]


def test_a_node_that_joins_later_serves_its_tenants_from_then_on() -> None:
    setup = replace(small_nodes(3, {"x": 2}, PoolSpec("spare")), absent_nodes=("n1", "n2"))
    arrivals = [gang("x1", 0.0, 4, 100.0), gang("x2", 0.0, 4, 100.0), gang("x3", 0.0, 4, 100.0)]
    joins = [NodeChanged(30.0, "n1", Health.HEALTHY)]
    assert leases_of(simulate(setup, arrivals, joins)) == {
        "x1": [(0.0, 100.0)],
        "x2": [(30.0, 130.0)],
        "x3": [(100.0, 200.0)],
    }
