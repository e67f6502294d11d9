"""The golden runs: small simulations that together use every policy and every mechanism of the scheduler.

Each run says what it must contain at least, so that a change of the inputs cannot make it vacuous unnoticed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bench.golden_api import (
    Arrival,
    Cadence,
    Cluster,
    Event,
    Health,
    Method,
    NodeChanged,
    PoolSpec,
    RoundRules,
    Search,
    Setup,
    Shape,
    SpeedRevised,
    first_jobs,
    policy_changed,
    policy_of,
    reservations_changed,
)  # fmt: skip
from bench.golden_inputs import (
    CELLS,
    FLAT,
    K80,
    MIXED,
    ONE_TYPE,
    P100,
    SPEEDS,
    TYPES,
    V100,
    BiddingEngine,
    Traits,
    cancellations,
    faults,
    lossy,
    searches,
    sharing,
    together,
    workload,
)  # fmt: skip

EVENTS, ROUNDS = Cadence.EVENTS, Cadence.ROUNDS
POOL = "all"
HALVING, HYPERBAND, CURVES = Method.HALVING, Method.HYPERBAND, Method.CURVES


@dataclass(frozen=True)
class Input:
    setup: Setup
    arrivals: Sequence[Arrival]
    outside: Sequence[Event] = ()
    searches: Sequence[Search] = ()
    checkpoint_seconds: float = 0.0
    wrap: Callable[[Any], Any] = lambda engine: engine


@dataclass(frozen=True)
class GoldenRun:
    name: str
    make: Callable[[], Input]
    at_least: Mapping[str, int]  # by the names that `golden_side.Tally` counts


def golden(name: str, make: Callable[[], Input], **at_least: int) -> GoldenRun:
    return GoldenRun(name, make, at_least)


def one_pool(
    policy: str,
    cluster: Cluster,
    arrivals: Sequence[Arrival],
    cadence: Cadence = EVENTS,
    options: Mapping[str, object] | None = None,
    *,
    pool: Mapping[str, Any] | None = None,
    setup: Mapping[str, Any] | None = None,
    **rest: Any,
) -> Input:
    spec = PoolSpec(POOL, *policy_of(policy, options or {}), cadence, **(pool or {}))
    return Input(Setup(cluster, (spec,), seed=7, **(setup or {})), arrivals, **rest)


# Rankings


def fifo_levels() -> Input:
    jobs = workload(1, Traits(levels=True, gangs=(1, 1, 2, 2, 4, 8, 12), every_seconds=100.0))
    return one_pool("fifo", MIXED, jobs)


def fifo_cpus() -> Input:
    traits = Traits(cpus_per_gpu=(1.0, 3.0, 6.0, 8.0), memory_per_gpu=(4.0, 16.0, 48.0), levels=True)
    return one_pool("fifo", MIXED, workload(2, traits), ROUNDS, {"backfill": True})


def sjf_retries() -> Input:
    jobs = workload(3, Traits(fails=0.15, retries_max=2, restart_seconds=20.0, error=0.2))
    return one_pool("sjf", MIXED, jobs, EVENTS, {"backfill": True}, outside=cancellations(3, jobs, 0.12))


def srtf_restarts() -> Input:
    return one_pool("srtf", FLAT, workload(4, Traits(restart_seconds=60.0, error=0.3, every_seconds=80.0)), ROUNDS)


def srsf_grace() -> Input:
    traits = Traits(leaving_seconds=40.0, grace_seconds=45.0, restart_seconds=15.0, levels=True, every_seconds=70.0)
    jobs = workload(5, traits)
    return one_pool("srsf", MIXED, jobs, EVENTS, outside=cancellations(5, jobs, 0.08))


def las_failures() -> Input:
    jobs = workload(6, Traits(restart_seconds=30.0, every_seconds=90.0))
    outside = faults(6, FLAT, 25, 22_000.0, Health.FAILED, 1500.0)
    return one_pool("las", FLAT, jobs, ROUNDS, outside=outside, checkpoint_seconds=600.0)


def tiresias_members() -> Input:
    traits = Traits(
        gangs=(1, 2, 4, 8, 12, 16), member_gpus=4, min_runtime_seconds=300.0, preemptions_max=3, restart_seconds=20.0,
        every_seconds=200.0,
    )  # fmt: skip
    return one_pool("tiresias", MIXED, workload(7, traits), EVENTS, {"limits": [1500.0, 6000.0], "promote_after": 4.0})


def tiresias_apps() -> Input:
    jobs = workload(8, Traits(app_jobs=5, restart_seconds=20.0, every_seconds=80.0, levels=True))
    return one_pool("themis-tiresias", MIXED, jobs, EVENTS, {"lease_seconds": 600.0})


def gittins_unknown() -> Input:
    jobs = workload(9, Traits(unknown=0.6, every_seconds=90.0, restart_seconds=10.0))
    return one_pool("gittins", MIXED, jobs, ROUNDS, pool={"round_seconds": 120.0})


def drf_lost_messages() -> Input:
    traits = Traits(
        tenants=("a", "b", "c"), users=6, cpus_per_gpu=(1.0, 4.0, 7.0), memory_per_gpu=(4.0, 24.0), weights=(1.0, 2.0)
    )
    setup = {"tenant_weights": {"a": 2.0, "b": 0.5}, "survey_seconds": 900.0}
    return one_pool("drf", MIXED, workload(10, traits), EVENTS, setup=setup, wrap=lossy(10, 0.05))


def yarn_racks() -> Input:
    jobs = workload(11, Traits(tenants=("a", "b", "c"), levels=True, every_seconds=75.0, restart_seconds=10.0))
    options = {"guaranteed": {"a": 0.5, "b": 0.2}, "tries": 2.0, "maximum": 0.8}
    return one_pool("yarn-cs", MIXED, jobs, ROUNDS, options, pool={"round_seconds": 60.0})


# Auctions and apps


def with_searches(made: Sequence[Search], others: Sequence[Arrival]) -> dict[str, Any]:
    first = [job for each in made for job in first_jobs(each)]
    return {"arrivals": together(first, others), "searches": tuple(made)}


def highest_rho_halving() -> Input:
    made = searches(13, [HALVING] * 14, [4, 9, 16, 5, 8, 12, 7, 4, 16, 6, 3, 10, 8, 5], 500.0, restart_seconds=10.0)
    others = workload(13, Traits(count=120, every_seconds=70.0, app_jobs=3))
    return one_pool(
        "highest-rho", FLAT, cadence=EVENTS, options={"lease_seconds": 600.0}, **with_searches(made, others)
    )


def themis_types() -> Input:
    traits = Traits(count=200, app_jobs=4, restart_seconds=30.0, every_seconds=60.0, types_max=2)
    return one_pool("themis", MIXED, workload(14, traits), EVENTS, {"lease_seconds": 900.0})


def themis_hyperband() -> Input:
    made = searches(15, [HYPERBAND, HALVING] * 6, [8, 6, 12, 9, 5, 16, 7, 4, 10, 8, 6, 5], 700.0, types=(V100,),
                    types_max=1, tenants=("a",), restart_seconds=15.0)  # fmt: skip
    traits = Traits(count=120, every_seconds=80.0, app_jobs=4, types=(V100,), types_max=1, tenants=("b", "c"))
    options = {
        "aim": "paper",
        "to_the_end": True,
        "by_tenant": True,
        "payments": False,
        "f": 0.5,
        "lease_seconds": 900.0,
    }
    parts = with_searches(made, workload(15, traits))
    return one_pool("themis", ONE_TYPE, cadence=ROUNDS, options=options, pool={"round_seconds": 300.0}, **parts)


def themis_agents() -> Input:
    traits = Traits(
        app_jobs=6, bids=True, types=(V100,), types_max=1, restart_seconds=20.0, unknown=0.2, every_seconds=80.0
    )
    options = {"aim": "private", "poll": "said", "f": 0.6, "lease_seconds": 600.0, "band": 0.5}
    return one_pool("themis", ONE_TYPE, workload(16, traits), EVENTS, options, wrap=BiddingEngine)


# Shares of time


def shares(seed: int, **changed: Any) -> list[Arrival]:
    """Fewer jobs: a policy that solves a program is asked often."""
    base = Traits(count=250, every_seconds=90.0, seconds=2500.0, restart_seconds=30.0, weights=(1.0, 1.0, 2.0))
    return workload(seed, replace(base, **changed))


def equal_share() -> Input:
    return one_pool("equal-share", FLAT, shares(12), ROUNDS)


def max_min_aware() -> Input:
    rules = RoundRules(fill=True, reconsider_seconds=1000.0, turn_rounds=4.0)
    return one_pool("max-min", MIXED, shares(17, levels=True), ROUNDS, pool={"rules": rules})


def max_min_unaware() -> Input:
    rules = RoundRules(type_order=(P100, V100, K80), turn_rounds=0.0)
    options = {"aware": False, "fill": False}
    return one_pool("max-min", FLAT, shares(18), ROUNDS, options, pool={"rules": rules})


def max_min_pairs() -> Input:
    jobs = shares(19, count=200, every_seconds=70.0)
    return one_pool("max-min", FLAT, jobs, ROUNDS, {"sharing": True}, setup={"sharing": sharing(19)})


def finish_time_revised() -> Input:
    revised: list[Event] = [
        SpeedRevised(700.0 * (number + 1), model, Shape(name, gpus, "node"), factor * SPEEDS[model][TYPES.index(name)])
        for number, (model, name, gpus, factor) in enumerate(
            [("resnet", V100, 1, 0.5), ("lstm", K80, 2, 3.0), ("a3c", P100, 1, 2.0), ("recoder", V100, 4, 1.0)] * 3
        )
    ]
    return one_pool("finish-time-fairness", FLAT, shares(20, error=0.3), ROUNDS, outside=revised)


def makespan_drains() -> Input:
    outside = faults(21, FLAT, 10, 14_000.0, Health.DRAINING, 2500.0)
    outside += [NodeChanged(3000.0, "v2", Health.HEALTHY), NodeChanged(5000.0, "p4", Health.HEALTHY)]
    options = {"aware": False, "reference": V100}
    setup = {"absent_nodes": ("v2", "p4")}
    return one_pool("makespan", FLAT, shares(21, unknown=0.1), ROUNDS, options, outside=outside, setup=setup)


def hierarchical() -> Input:
    options = {"weights": {"lab": 2.0, "lab/vision": 3.0}, "fifo": "shop"}
    jobs = shares(22, tenants=("lab/vision", "lab/speech", "shop/a", "shop/b", "guests"))
    return one_pool("hierarchical", FLAT, jobs, ROUNDS, options, setup={"tenant_weights": {"guests": 0.5}})


def total_throughput_pairs() -> Input:
    jobs = shares(23, count=200, every_seconds=70.0)
    options = {"normalised": True, "sharing": True}
    return one_pool("total-throughput", FLAT, jobs, ROUNDS, options, setup={"sharing": sharing(23)})


def dollars_and_deadlines() -> Input:
    jobs = shares(24, deadline=0.6, every_seconds=80.0)
    outside = [policy_changed(4000.0, POOL, "min-cost"), policy_changed(9000.0, POOL, "min-cost", {"sharing": True})]
    setup = {"sharing": sharing(24)}
    return one_pool("throughput-per-dollar", FLAT, jobs, ROUNDS, outside=outside, setup=setup)


def partial_allocation() -> Input:
    return one_pool("partial-allocation", FLAT, shares(25), ROUNDS)


def on_fastest_two_pools() -> Input:
    nodes = tuple(node.name for node in FLAT.nodes[::2])
    options = {"sharing": True, "packing_min": 1.2}
    pools = (
        PoolSpec("one", "fifo-on-fastest", options, EVENTS, tenants=("a",), nodes=nodes),
        PoolSpec("rest", "sjf-on-fastest", {"aware": False}, ROUNDS, 120.0),
    )  # fmt: skip
    jobs = workload(26, Traits(tenants=("a", "b"), every_seconds=80.0, restart_seconds=20.0))
    return Input(Setup(FLAT, pools, seed=7, sharing=sharing(26)), jobs)


def allox() -> Input:
    jobs = workload(27, Traits(gangs=(1,), every_seconds=18.0, unknown=0.1))
    rules = RoundRules(fill=True, reconsider_seconds=1200.0)
    return one_pool("allox", FLAT, jobs, EVENTS, {"oldest": 0.8}, pool={"rules": rules})


def gandiva_pairs() -> Input:
    jobs = shares(28, count=250, every_seconds=70.0)
    return one_pool("gandiva", FLAT, jobs, ROUNDS, setup={"sharing": sharing(28)})


def gandiva_own() -> Input:
    jobs = workload(29, Traits(elastic=True, restart_seconds=5.0, gangs=(1, 1, 2, 4), types_max=2, every_seconds=55.0))
    options = {"packing_min": 1.1, "slice_seconds": 120.0}
    setup, pool = {"sharing": sharing(29)}, {"spreads": True, "round_seconds": 60.0}
    return one_pool("gandiva-time-slicing", MIXED, jobs, EVENTS, options, setup=setup, pool=pool)


def gandiva_fair() -> Input:
    return one_pool("gandiva-fair", FLAT, shares(30, users=5, every_seconds=90.0), ROUNDS)


# Elastic jobs


def elastic(seed: int, **changed: Any) -> list[Arrival]:
    base = Traits(
        count=250, elastic=True, gangs=(1, 1, 2, 4), types_max=2, restart_seconds=20.0, every_seconds=80.0, curves=0.5,
        unknown=0.15,
    )  # fmt: skip
    return workload(seed, replace(base, **changed))


def optimus() -> Input:
    return one_pool("optimus", MIXED, elastic(31, levels=True), EVENTS)


def slaq_curves() -> Input:
    made = searches(32, [CURVES] * 10, [8, 12, 6, 10, 16, 5, 9, 8, 12, 7], 600.0, restart_seconds=10.0, types_max=1)
    return one_pool("slaq", FLAT, cadence=EVENTS, **with_searches(made, elastic(32, count=100, every_seconds=100.0)))


def afs() -> Input:
    return one_pool("afs", MIXED, elastic(33), ROUNDS, pool={"round_seconds": 60.0})


def goodput() -> Input:
    outside = [policy_changed(8000.0, POOL, "goodput", {"variant": "pollux"})]
    return one_pool("goodput", FLAT, elastic(34), EVENTS, {"variant": "sia"}, outside=outside)


def shockwave() -> Input:
    return one_pool(
        "shockwave",
        FLAT,
        workload(35, Traits(app_jobs=2, unknown=0.2, restart_seconds=10.0, every_seconds=75.0)),
        ROUNDS,
    )


def themis_paper_variants() -> Input:
    """Three policies in the form that the Themis paper compared with, each for a third of the run."""
    options = {"lease_seconds": 600.0}
    changes = [(9000.0, "themis-optimus"), (18_000.0, "themis-slaq")]
    outside = [policy_changed(at, POOL, policy, options) for at, policy in changes]
    jobs = workload(36, Traits(app_jobs=4, restart_seconds=20.0, every_seconds=65.0, levels=True, curves=0.5))
    return one_pool("themis-gandiva", MIXED, jobs, EVENTS, options, outside=outside)


# Tenants

RESERVED: Mapping[str, Mapping[str, int]] = {
    "nlp": {"V100.rack": 2, "P100.node": 1},
    "vision": {"V100.node": 2, "V100.socket": 3, "K80.node": 2},
    "speech": {"V100.switch": 5, "P100.node": 2},
}


def tenant_jobs(seed: int, **changed: Any) -> list[Arrival]:
    base = Traits(
        count=500, every_seconds=30.0, tenants=("nlp", "vision", "speech", "nobody"), guests=0.3, restart_seconds=10.0,
        leaving_seconds=20.0, grace_seconds=25.0, gangs=(1, 1, 2, 2, 4, 8), levels=True,
    )  # fmt: skip
    return workload(seed, replace(base, **changed))


def tenants(policies: Mapping[str, tuple[str, Cadence]], spare: PoolSpec, **setup: Any) -> Setup:
    pools = [
        PoolSpec(name, policy, {}, cadence, tenants=(name,), cells=RESERVED[name])
        for name, (policy, cadence) in policies.items()
    ]
    return Setup(CELLS, (*pools, spare), seed=7, **setup)


def cells_dynamic() -> Input:
    policies = {"nlp": ("tiresias", ROUNDS), "vision": ("max-min", ROUNDS), "speech": ("fifo", EVENTS)}
    setup = tenants(policies, PoolSpec("spare", "srtf"))
    return Input(
        setup, tenant_jobs(37), faults(37, CELLS, 14, 16_000.0, Health.FAILED, 1800.0), checkpoint_seconds=300.0
    )


def cells_static() -> Input:
    policies = {"nlp": ("srtf", EVENTS), "vision": ("yarn-cs", EVENTS), "speech": ("las", ROUNDS)}
    setup = tenants(policies, PoolSpec("spare", "fifo", {"backfill": True}), static_binding=True)
    jobs = tenant_jobs(38)
    outside = faults(38, CELLS, 10, 16_000.0, Health.DRAINING, 1500.0) + cancellations(38, jobs, 0.05)
    return Input(setup, jobs, outside)


def cells_changing() -> Input:
    policies = {"nlp": ("fifo", EVENTS), "vision": ("srsf", EVENTS), "speech": ("srtf", ROUNDS)}
    setup = tenants(policies, PoolSpec("spare", "las", {}, ROUNDS, 120.0))
    less = {
        "nlp": {"V100.rack": 1},
        "vision": {"V100.node": 5, "K80.node": 2},
        "speech": {"V100.socket": 3, "P100.node": 2},
    }
    outside: list[Event] = [
        reservations_changed(4000.0, less),
        policy_changed(6000.0, "speech", "tiresias"),
        reservations_changed(8000.0, {"nlp": {"V100.rack": 3, "P100.rack": 1}, "vision": {"V100.node": 3}}),
        policy_changed(9000.0, "spare", "fifo", {"backfill": True}),
        reservations_changed(12_000.0, RESERVED),
    ]  # fmt: skip
    outside += faults(39, CELLS, 6, 16_000.0, Health.FAILED, 1200.0)
    return Input(setup, tenant_jobs(39), outside)


def quotas() -> Input:
    pools = (
        PoolSpec("a", "tiresias", {}, ROUNDS, 120.0, tenants=("a",), quota={V100: 16, P100: 8, K80: 4}),
        PoolSpec("b", "srtf", {}, EVENTS, tenants=("b",), quota={V100: 12, P100: 12}),
        PoolSpec("c", "max-min", {}, ROUNDS, tenants=("c",), quota={V100: 12, K80: 12}),
    )  # fmt: skip
    jobs = workload(
        40,
        Traits(
            tenants=("a", "b", "c"), restart_seconds=15.0, leaving_seconds=10.0, grace_seconds=15.0, every_seconds=75.0
        ),
    )
    return Input(Setup(MIXED, pools, seed=7), jobs)


RUNS = (
    golden("fifo-events-levels-racks", fifo_levels, finished=280, spread=60, types=3),
    golden("fifo-backfill-rounds-cpus-memory", fifo_cpus, finished=280, spread=70, types=3),
    golden("sjf-events-retries-cancellations", sjf_retries, finished=220, failed=120, cancelled=30, stopped=19),
    golden("srtf-rounds-restarts-flat", srtf_restarts, finished=280, stopped=30, resumed=30, moved=24),
    golden("srsf-events-grace-leaving", srsf_grace, finished=250, stopped=90, cancelled=28, spread=60),
    golden("las-rounds-failures-checkpoints", las_failures, finished=280, lost=30, stopped=120, resumed=140),
    golden("tiresias-events-members-budgets", tiresias_members, finished=280, stopped=340, spread=300, moved=240),
    golden("tiresias-themis-paper-apps", tiresias_apps, finished=280, stopped=90, resumed=90),
    golden("gittins-rounds-unknown-lengths", gittins_unknown, finished=280, stopped=170, unknown=280),
    golden("drf-events-tenants-lost-messages", drf_lost_messages, finished=280, surveys=60, starts=310, tenants=3),
    golden("yarn-cs-rounds-reclaim-racks", yarn_racks, finished=280, stopped=18, spread=30, tenants=3),
    golden("equal-share-rounds", equal_share, finished=170, stopped=110, moved=100, types=3),
    golden("highest-rho-search-halving", highest_rho_halving, finished=280, submitted=280, stopped=110),
    golden("themis-types-restarts", themis_types, finished=140, stopped=30, moved=16, types=3),
    golden("themis-paper-aim-search-hyperband", themis_hyperband, finished=250, submitted=250, stopped=70, tenants=3),
    golden("themis-private-aim-agents-bid", themis_agents, finished=280, bids=11790, stopped=190, unknown=70),
    golden("max-min-aware-fill-levels", max_min_aware, finished=170, stopped=90, moved=70),
    golden("max-min-unaware-type-order", max_min_unaware, finished=170, stopped=1000, moved=940),
    golden("max-min-sharing-pairs", max_min_pairs, finished=140, stopped=90, pairs=40),
    golden("finish-time-fairness-speeds-revised", finish_time_revised, finished=170, stopped=50, speeds_revised=12),
    golden("makespan-unaware-drains-joins", makespan_drains, finished=170, stopped=110, node_changes=22),
    golden("hierarchical-organisations", hierarchical, finished=170, stopped=90, tenants=5),
    golden("total-throughput-sharing-pairs", total_throughput_pairs, finished=140, stopped=70, pairs=40),
    golden(
        "dollars-then-min-cost-deadlines", dollars_and_deadlines, finished=170, stopped=130, pairs=90, policy_changes=2
    ),
    golden("partial-allocation-rounds", partial_allocation, finished=170, stopped=40, moved=30),
    golden("on-fastest-two-pools", on_fastest_two_pools, finished=280, stopped=270, pairs=40, tenants=2),
    golden("allox-events", allox, finished=280, stopped=60, unknown=30, types=3),
    golden("gandiva-rounds-pairs", gandiva_pairs, finished=170, stopped=230, pairs=130),
    golden("gandiva-own-slices-pairs-growth", gandiva_own, finished=280, stopped=600, pairs=40, resized=390),
    golden("gandiva-fair-users-trading", gandiva_fair, finished=170, stopped=50, moved=40),
    golden("optimus-elastic-levels", optimus, finished=170, resized=80, unknown=28),
    golden("slaq-elastic-search-curves", slaq_curves, finished=80, resized=120, cancelled=40, curves_revised=13),
    golden("afs-elastic-rounds", afs, finished=170, resized=230, unknown=80),
    golden("goodput-sia-then-pollux", goodput, finished=170, resized=150, policy_changes=1),
    golden("shockwave-rounds", shockwave, finished=280, stopped=100, unknown=60),
    golden("themis-paper-variants-changing", themis_paper_variants, finished=280, stopped=130, policy_changes=2),
    golden("cells-dynamic-guests-failures", cells_dynamic, finished=350, guests=150, lost=16, stopped=80, tenants=4),
    golden(
        "cells-static-guests-drains", cells_static, finished=330, guests=170, node_changes=20, stopped=200, tenants=4
    ),
    golden(
        "cells-reservations-policies-change",
        cells_changing,
        finished=350,
        guests=200,
        lost=8,
        stopped=140,
        reservation_changes=3,
        policy_changes=2,
    ),
    golden("quotas-three-pools", quotas, finished=280, stopped=100, tenants=3),
)
