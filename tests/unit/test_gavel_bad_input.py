"""Jobs and clusters that make no sense to a policy over GPU types: the answer names them, and all others go on."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, nan
from typing import Any

import numpy as np
import pytest
from builders import handle
from pools_of_types import Instance

from horae.experiments.simulate import Run, simulate
from horae.model.cluster import Cluster, Node
from horae.model.decisions import Limit, Shares
from horae.model.errors import InputError, JobError
from horae.model.events import Event, Health, JobSubmitted, NodeChanged, SpeedRevised, Tick
from horae.model.jobs import Arrival, Job, Truth
from horae.model.reasons import Never, Unclaimed
from horae.model.setup import Cadence, PoolSpec, Setup
from horae.model.shapes import Option, Shape
from horae.policies import make_policy
from horae.scheduler import Scheduler

POLICIES = ("max-min", "finish-time-fairness", "makespan", "min-cost", "hierarchical", "total-throughput")
TYPES = ("fast", "slow", "rare")
OTHERS = ("other-0", "other-1", "other-2", "other-3")

for_each_policy = pytest.mark.parametrize("policy", POLICIES)
for_each_cadence = pytest.mark.parametrize("cadence", list(Cadence))


def job(id: str, speed: Sequence[float], at: float = 0.0, gpus: int = 1, steps: float = 400.0, **fields: Any) -> Job:
    """Its speed by GPU type; 0: it does not accept that one."""
    options = tuple(
        Option(Shape(name, gpus, "cluster"), each) for name, each in zip(TYPES, speed, strict=False) if each
    )
    return Job(id, at, options, steps_total=steps, **fields)


def lab(policy: str, cadence: Cadence = Cadence.EVENTS) -> Setup:
    nodes = (Node("f", "fast", 2, price_per_hour=2.0), Node("s", "slow", 2, price_per_hour=0.5))
    rare = Node("r", "rare", 1, price_per_hour=1.0)
    return Setup(Cluster("lab", (*nodes, rare)), (PoolSpec("all", policy, cadence=cadence),))


def run_with(setup: Setup, odd: Sequence[Job], outside: Sequence[Event] = ()) -> Run:
    """These jobs among four ordinary ones."""
    ordinary = [job(id, (4.0, 1.0 + index), 5.0 * index, 1 + index % 2) for index, id in enumerate(OTHERS)]
    jobs = sorted((*ordinary, *odd), key=lambda each: each.submitted_at)
    arrivals = [Arrival(each, Truth(each.steps_total or 1.0, each.options)) for each in jobs]
    return simulate(setup, arrivals, outside)


def check_others_ended(run: Run) -> None:
    ended_at = dict(zip(run.log.jobs.id, run.log.jobs.ended_at.tolist(), strict=True))
    assert all(np.isfinite(ended_at[id]) for id in OTHERS)


def limits_of(policy: str, instance: Instance) -> list[Limit]:
    decided = make_policy(policy).decide(instance.view())
    assert isinstance(decided, Shares) and decided.evidence is not None
    return [Limit(number) for number in decided.evidence.limit.tolist()]


# Speeds


@pytest.mark.parametrize("speed", [0.0, -1.0, nan, inf])
def test_a_speed_that_is_none_is_refused_with_the_name_of_the_job_and_of_the_type(speed: float) -> None:
    with pytest.raises(JobError, match=r"job 'odd' has speed .* on fast") as raised:
        Job("odd", 0.0, (Option(Shape("fast", 1, "cluster"), speed),))
    assert (raised.value.field, raised.value.remedy) == (
        "speed",
        "give a positive number of steps a second, or leave the type out",
    )


def test_a_job_without_any_speed_is_refused() -> None:
    with pytest.raises(JobError, match="job 'odd' accepts no shape; name at least one GPU type"):
        job("odd", (0.0, 0.0, 0.0))


@pytest.mark.parametrize("speed", [0.0, -1.0, nan, inf])
def test_a_revision_to_no_speed_at_all_changes_nothing(speed: float) -> None:
    scheduler = Scheduler(lab("max-min"))
    handle(scheduler, JobSubmitted(0.0, job("a", (1.0, 0.0), model="m")))
    before = scheduler.ignored
    handle(scheduler, SpeedRevised(1.0, "m", Shape("fast", 1, "cluster"), speed))
    assert scheduler.ignored == before + 1


@for_each_policy
def test_a_type_for_which_a_job_has_no_speed_is_never_given_to_it(policy: str) -> None:
    run = run_with(lab(policy), [job("odd", (0.0, 1.0))])
    assert not run.unfinished and not run.refused
    leases, accelerators = run.log.leases, run.log.cluster.accelerators
    odd = leases.job == list(run.log.jobs.id).index("odd")
    assert {accelerators[number] for number in leases.accelerator[odd].tolist()} == {"slow"}


# Jobs that fit nowhere


@for_each_policy
@for_each_cadence
def test_a_job_that_fits_no_type_is_refused_and_the_others_are_served(policy: str, cadence: Cadence) -> None:
    wide, foreign = job("wide", (4.0, 1.0), 2.0, gpus=3), job("foreign", (0.0, 0.0, 1.0), 2.0, gpus=2)
    run = run_with(lab(policy, cadence), [wide, foreign])
    assert run.refused == {
        "wide": Never("all", Shape("fast", 3, "cluster"), 2),
        "foreign": Never("all", Shape("rare", 2, "cluster"), 1),
    }
    assert not run.unfinished
    check_others_ended(run)


# Types without GPUs


@for_each_policy
@for_each_cadence
def test_a_type_whose_nodes_all_failed_is_given_to_nobody(policy: str, cadence: Cadence) -> None:
    odd = job("odd", (0.0, 0.0, 1.0), 2.0)
    lost = [NodeChanged(50.0, "r", Health.FAILED)]
    run = run_with(lab(policy, cadence), [odd], lost)
    assert run.unfinished == {"odd": Unclaimed(policy)}
    check_others_ended(run)
    back = run_with(lab(policy, cadence), [odd], [*lost, NodeChanged(5000.0, "r", Health.HEALTHY)])
    assert not back.unfinished


@for_each_policy
def test_evidence_says_who_runs_nowhere(policy: str) -> None:
    speed = np.array([[4.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    instance = Instance(speed, [1, 1], [1.0, 1.0], [1, 1, 0], price=(2.0, 0.5, 1.0), steps_left=[400.0, 400.0])
    assert limits_of(policy, instance) == [Limit.TIME, Limit.NOWHERE]


@for_each_policy
def test_if_all_nodes_are_down_everybody_is_told_that_it_runs_nowhere(policy: str) -> None:
    instance = Instance(np.array([[2.0, 1.0], [1.0, 3.0]]), [1, 2], [1.0, 1.0], gpus=[0, 0])
    assert limits_of(policy, instance) == [Limit.NOWHERE, Limit.NOWHERE]


@for_each_policy
def test_who_runs_nowhere_can_ask_why(policy: str) -> None:
    scheduler = Scheduler(lab(policy))
    handle(scheduler, NodeChanged(0.0, "r", Health.FAILED))
    for each in (job("a", (4.0, 1.0)), job("odd", (0.0, 0.0, 1.0))):
        handle(scheduler, JobSubmitted(0.0, each))
    handle(scheduler, Tick(0.0))
    assert scheduler.why("a") is None
    assert scheduler.why("odd") == Unclaimed(policy)
    told = scheduler.explain("odd")
    assert told is not None and told.unblocking is None
    assert told.share is not None and told.share.solve is not None
    assert told.share.solve.limit is Limit.NOWHERE


# Deadlines


@for_each_policy
@for_each_cadence
def test_deadlines_that_cannot_all_be_kept_keep_nobody_from_ending(policy: str, cadence: Cadence) -> None:
    one, other = (job(id, (4.0, 0.0), gpus=2, steps=4000.0, deadline_at=1100.0) for id in ("one", "other"))
    run = run_with(lab(policy, cadence), [one, other, job("late", (4.0, 1.0), 50.0, deadline_at=1.0)])
    assert not run.unfinished and not run.refused


def test_min_cost_says_whose_deadline_is_dropped() -> None:
    """The first two need all of the GPU until then, the third wants what has passed, the fourth wants nothing."""
    instance = Instance(
        np.ones((4, 1)), [1] * 4, [1.0] * 4, [1], steps_left=[100.0] * 4, deadline_seconds=[100.0, 100.0, -5.0, inf]
    )
    assert limits_of("min-cost", instance) == [Limit.TIME, Limit.DROPPED, Limit.DROPPED, Limit.SCARCE]


def test_a_deadline_at_no_time_is_refused() -> None:
    with pytest.raises(JobError, match="job 'odd' has deadline nan; give seconds, or leave it out"):
        job("odd", (1.0,), deadline_at=nan)


# Weights


@pytest.mark.parametrize("weight", [0.0, -1.0, nan, inf])
def test_a_weight_that_is_none_is_refused_with_the_name_of_the_job(weight: float) -> None:
    with pytest.raises(JobError, match=r"job 'odd' has weight .*; give a positive number") as raised:
        job("odd", (1.0,), weight=weight)
    assert raised.value.field == "weight"


@pytest.mark.parametrize("weight", [0.0, -1.0, nan, inf])
def test_a_tenant_has_a_weight_or_is_not_named(weight: float) -> None:
    with pytest.raises(InputError, match=r"tenant 'lab' has weight .*; give a positive number"):
        Setup(lab("hierarchical").cluster, (PoolSpec("all"),), tenant_weights={"lab": weight})


@for_each_policy
def test_next_to_no_weight_and_nearly_all_of_it_keep_nobody_from_ending(policy: str) -> None:
    run = run_with(lab(policy), [job("light", (4.0, 1.0), weight=1e-12), job("heavy", (4.0, 1.0), weight=1e12)])
    assert not run.unfinished and not run.refused


@for_each_policy
def test_speeds_far_apart_keep_nobody_from_ending(policy: str) -> None:
    odd = [job("snail", (1e-9, 1e-10), steps=1e-7), job("hare", (1e9, 1e8), steps=1e11)]
    run = run_with(lab(policy), odd)
    assert not run.unfinished and not run.refused
