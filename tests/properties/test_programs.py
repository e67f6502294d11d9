"""Policies that are programs, against the same programs written out job by job, and what must not change an answer."""

from __future__ import annotations

from typing import Any, NamedTuple

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pools_of_types import Instance, reached
from scipy.optimize import LinearConstraint, linprog, milp

from horae.model.arrays import Bools, Floats, Ints
from horae.model.decisions import Limit, Shares
from horae.policies.cost import MinCost, ThroughputPerDollar
from horae.policies.hierarchical import Hierarchical
from horae.policies.partial_allocation import PartialAllocation
from horae.policies.total_throughput import TotalThroughput

PRICES = (0.5, 2.0, 1.0, 7.0)
TENANTS = ("lab/vision/alice", "lab/vision/bob", "lab", "office", "lab/nlp")
FEW = settings(max_examples=30)


@st.composite
def instances(draw: st.DrawFn, jobs_max: int = 4, scarce: bool = False) -> Instance:
    """A few models with gangs and weights, each with several jobs; types may be empty, and gangs may be spread."""
    types = draw(st.integers(1, 4))
    speeds = st.lists(st.sampled_from([0.0, 0.5, 1.0, 3.0, 10.0]), min_size=types, max_size=types).filter(any)
    model = st.tuples(speeds, st.sampled_from([1, 2, 4]), st.sampled_from([1.0, 2.0, 5.0]), st.integers(1, jobs_max))
    rows = [(s, g, w) for s, g, w, count in draw(st.lists(model, min_size=1, max_size=4)) for _ in range(count)]
    gpus = draw(st.lists(st.integers(0, 3 if scarce else 8), min_size=types, max_size=types))
    speed = np.array([row[0] for row in rows])
    slower = draw(st.sampled_from([None, 0.5, 0.8]))
    return Instance(
        speed,
        [row[1] for row in rows],
        [row[2] for row in rows],
        gpus,
        price=PRICES[:types],
        spread=None if slower is None else speed * slower,
    )


@st.composite
def with_deadlines(draw: st.DrawFn) -> Instance:
    instance = draw(instances(jobs_max=3, scarce=True))
    jobs = len(instance.gang)
    seconds = st.sampled_from([-5.0, 10.0, 20.0, 40.0, np.inf])
    return instance._replace(
        steps_left=draw(st.lists(st.sampled_from([7.0, 30.0, 90.0]), min_size=jobs, max_size=jobs)),
        deadline_seconds=draw(st.lists(seconds, min_size=jobs, max_size=jobs)),
    )


@st.composite
def with_tenants(draw: st.DrawFn) -> Instance:
    instance = draw(instances())
    jobs = len(instance.gang)
    return instance._replace(
        tenant=draw(st.lists(st.sampled_from(TENANTS), min_size=jobs, max_size=jobs)),
        age_seconds=draw(st.lists(st.sampled_from([0.0, 50.0, 100.0]), min_size=jobs, max_size=jobs)),
    )


class Written(NamedTuple):
    """Every job, type and level as a column of its own."""

    job: Ints
    kind: Ints
    speed: Floats
    rows: Floats  # time of each job, GPUs of each type
    sides: Floats

    def speeds(self, jobs: int) -> Floats:
        """By job and column."""
        return np.where(np.arange(jobs)[:, None] == self.job, self.speed, 0.0)


def written_out(instance: Instance) -> Written:
    jobs, types = instance.speed.shape
    cells = [
        (job, kind, speed[job, kind])
        for _, speed in instance.levels
        for job in range(jobs)
        for kind in range(types)
        if speed[job, kind] > 0
    ]
    job, kind, speed = (np.array(column) for column in zip(*cells, strict=True))
    time = np.where(np.arange(jobs)[:, None] == job, 1.0, 0.0)
    used = np.where(np.arange(types)[:, None] == kind, np.array(instance.gang)[job], 0.0)
    return Written(job, kind, speed, np.vstack([time, used]), np.concatenate([np.ones(jobs), instance.gpus]))


def most(cost: Floats, written: Written, above: Floats | None = None, sides: Floats | None = None) -> tuple[float, Any]:
    """`above`: further rows, at least `sides`."""
    extra = len(cost) - written.rows.shape[1]
    rows, high = np.pad(written.rows, ((0, 0), (0, extra))), written.sides
    if above is not None and sides is not None:
        rows, high = np.vstack([rows, -above]), np.concatenate([high, -sides])
    solved = linprog(-cost, rows, high, method="highs")
    if solved.fun is None:  # a side that was just reached may be out of reach again by a rounding error
        solved = linprog(-cost, rows, high + 1e-8 * np.abs(high), method="highs")
    assert solved.fun is not None, solved.message
    return -float(solved.fun), solved.x


def check(instance: Instance, decided: Shares) -> None:
    shares = instance.by_type(instance.view(), decided.fraction)
    instance.check_feasible(shares)
    assert (shares[:, np.array(instance.gpus) == 0] == 0).all()
    assert decided.evidence is not None
    assert decided.evidence.bound == pytest.approx(decided.evidence.value, rel=1e-6)
    nowhere = ~((instance.speed > 0) & (np.array(instance.gpus) > 0)).any(axis=1)
    assert ((decided.evidence.limit == Limit.NOWHERE) == nowhere).all()


@FEW
@given(instances(), st.booleans())
def test_the_total_is_that_of_an_independent_program(instance: Instance, normalised: bool) -> None:
    view, written = instance.view(), written_out(instance)
    decided = TotalThroughput(normalised=normalised).decide(view)
    check(instance, decided)
    gpus = np.array(instance.gpus, dtype=np.float64)
    equal = instance.speed @ gpus / max(gpus.sum(), 1.0)
    unit = np.where(equal > 0, equal, np.inf) if normalised else np.ones(len(equal))
    want, _ = most(written.speed / unit[written.job], written)
    assert (reached(view, decided) / unit).sum() == pytest.approx(want, rel=1e-6, abs=1e-9)
    assert decided.evidence is not None
    assert decided.evidence.value == pytest.approx(want, rel=1e-6, abs=1e-9)


@FEW
@given(instances())
def test_steps_a_dollar_are_those_of_an_independent_program(instance: Instance) -> None:
    written = written_out(instance)
    decided = ThroughputPerDollar().decide(instance.view())
    check(instance, decided)
    want, _ = most(written.speed / np.array(instance.price)[written.kind], written)
    assert decided.evidence is not None
    assert decided.evidence.value == pytest.approx(want, rel=1e-6, abs=1e-9)


def kept_by_single_jobs(instance: Instance) -> tuple[int, float]:
    """How many deadlines can be kept, and the best total with as many: one binary a job, for another solver to do."""
    written, jobs = written_out(instance), len(instance.gang)
    cells = len(written.job)
    need = np.array(instance.steps_left) / np.array(instance.deadline_seconds)
    wishes = np.isfinite(instance.deadline_seconds) & (need > 0)
    need = np.where(wishes, need, 0.0)
    floors = np.hstack([written.speeds(jobs), -np.diag(need)])
    limits = [
        LinearConstraint(np.pad(written.rows, ((0, 0), (0, jobs))), -np.inf, written.sides),
        LinearConstraint(floors, -1e-7, np.inf),
        LinearConstraint(np.eye(cells + jobs)[cells:], 0.0, wishes.astype(np.float64)),
    ]
    whole = (np.arange(cells + jobs) >= cells).astype(np.int64)
    count = whole.astype(np.float64)
    first = milp(-count, integrality=whole, constraints=limits)
    assert first.fun is not None
    kept = round(-first.fun)
    value = np.concatenate([written.speed / np.array(instance.price)[written.kind], np.zeros(jobs)])
    limits.append(LinearConstraint(count[None, :], kept, np.inf))
    second = milp(-value, integrality=whole, constraints=limits, options={"mip_rel_gap": 1e-9})
    assert second.x is not None
    # Whole numbers are found only nearly so; with the choice made, the total is exact.
    chosen = np.flatnonzero(np.round(second.x[cells:]))
    total, _ = most(value[:cells], written, written.speeds(jobs)[chosen], need[chosen] * (1 - 1e-9))
    return kept, total


@FEW
@given(with_deadlines())
def test_as_many_deadlines_are_kept_as_can_be_and_then_the_best_total_is_reached(instance: Instance) -> None:
    view = instance.view()
    decided = MinCost().decide(view)
    check(instance, decided)
    assert decided.evidence is not None
    limit = decided.evidence.limit
    seconds = np.array(instance.deadline_seconds)
    wishes = np.isfinite(seconds)
    kept = wishes & (limit != Limit.DROPPED) & (limit != Limit.NOWHERE)
    want_kept, want = kept_by_single_jobs(instance)
    assert kept.sum() == want_kept
    assert decided.evidence.value == pytest.approx(want, rel=1e-6, abs=1e-6)
    speed = reached(view, decided)
    assert (speed[kept] * seconds[kept] >= np.array(instance.steps_left)[kept] * (1 - 1e-7)).all()
    assert not (limit[~wishes] == Limit.DROPPED).any()


def parts_of(instance: Instance, weights: dict[str, float], in_turn: set[str], active: Bools) -> Floats:
    """By job: its part of all weights, passed down one organisation after the other."""
    part = np.zeros(len(active))
    order = sorted(range(len(active)), key=lambda job: (-instance.age_seconds[job], job))

    def pass_down(prefix: str, jobs: list[int], amount: float) -> None:
        if prefix.rstrip("/") in in_turn:
            part[jobs[0]] = amount
            return
        members: dict[str, list[int]] = {}
        for job in jobs:
            rest = instance.tenant[job][len(prefix) :].split("/")[0]
            members.setdefault(rest or f"job {job}", []).append(job)
        claim = {
            name: instance.weight[inside[0]] if name.startswith("job ") else weights.get(prefix + name, 1.0)
            for name, inside in members.items()
        }
        for name, inside in members.items():
            share = amount * claim[name] / sum(claim.values())
            if name.startswith("job "):
                part[inside[0]] = share
            else:
                pass_down(f"{prefix}{name}/", inside, share)

    pass_down("", [job for job in order if active[job]], 1.0)
    return part


def risen(instance: Instance, weights: dict[str, float], in_turn: set[str]) -> Floats:
    """By job: its level in the end; after each stage every job is asked whether it could rise alone."""
    written, jobs = written_out(instance), len(instance.gang)
    gpus = np.array(instance.gpus, dtype=np.float64)
    equal = instance.speed @ gpus / max(gpus.sum(), 1.0)
    active = equal > 0
    level = written.speeds(jobs) / np.where(active, equal, 1.0)[:, None]
    floor = np.zeros(jobs)
    while active.any():
        pace = parts_of(instance, weights, in_turn, active) / np.array(instance.gang)
        cost = np.append(np.zeros(level.shape[1]), 1.0)
        rise, _ = most(cost, written, np.hstack([level, -pace[:, None]]), floor * (1 - 1e-8))
        floor = floor + pace * max(rise, 0.0)
        for job in np.flatnonzero(pace > 0):
            highest, _ = most(level[job], written, level, floor * (1 - 1e-8))
            active[job] = highest > floor[job] + 1e-6
    return floor


@settings(max_examples=20)
@given(with_tenants(), st.sampled_from(["", "lab", "office, lab/vision", "lab/vision/bob,lab/nlp", "*"]))
def test_levels_of_organisations_are_those_of_an_independent_filling(instance: Instance, fifo: str) -> None:
    weights = {"lab": 3.0, "lab/vision": 2.0, "office": 2.0, "lab/vision/bob": 0.5}
    view = instance.view()
    decided = Hierarchical(weights=weights, fifo=fifo).decide(view)
    check(instance, decided)
    gpus = np.array(instance.gpus, dtype=np.float64)
    equal = instance.speed @ gpus / max(gpus.sum(), 1.0)
    in_turn = {"lab", "office"} if fifo == "*" else {path.strip() for path in fifo.split(",")} - {""}
    level = reached(view, decided) / np.where(equal > 0, equal, 1.0)
    assert level == pytest.approx(risen(instance, weights, in_turn), rel=1e-5, abs=1e-5)


def log_speeds(instance: Instance, rows: Ints) -> Floats:
    """By job, of those whose number is in rows: the logarithm of its speed where the welfare of them all is largest."""
    speed, atoms = instance.speed[rows], cp
    shares: Any = atoms.Variable(speed.shape, nonneg=True)
    logs: Any = atoms.log(atoms.sum(atoms.multiply(speed, shares), axis=1))  # type: ignore[attr-defined]
    rules = [atoms.sum(shares, axis=1) <= 1, np.array(instance.gang)[rows] @ shares <= np.array(instance.gpus)]  # type: ignore[attr-defined]
    problem: Any = atoms.Problem(atoms.Maximize(np.array(instance.weight)[rows] @ logs), rules)
    problem.solve(solver="CLARABEL", tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
    found: Floats = logs.value
    return found


@settings(max_examples=10)
@given(instances(jobs_max=2))
def test_each_job_keeps_what_makes_up_for_its_being_there(instance: Instance) -> None:
    instance = instance._replace(spread=None, gpus=[max(gpus, 1) for gpus in instance.gpus])
    assume(len(instance.gang) > 1)
    view = instance.view()
    decided = PartialAllocation().decide(view)
    check(instance, decided)
    jobs, weight = np.arange(len(instance.gang)), np.array(instance.weight)
    together = log_speeds(instance, jobs)
    for job in jobs:
        others = np.delete(jobs, job)
        lost = weight[others] @ (together[others] - log_speeds(instance, others))
        want = np.exp(together[job] + lost / weight[job])
        assert reached(view, decided)[job] == pytest.approx(want, rel=1e-5)


@FEW
@given(instances(), st.lists(st.sampled_from([1e-3, 0.1, 1.0, 1e3]), min_size=16, max_size=16))
def test_the_largest_nash_welfare_is_proven_whatever_the_weights(instance: Instance, weights: list[float]) -> None:
    """With ties, zero speeds, types that nobody needs, and jobs a million times as heavy as others."""
    instance = instance._replace(weight=weights[: len(instance.gang)])
    view = instance.view()
    decided = PartialAllocation().decide(view)
    check(instance, decided)
    assert decided.evidence is not None
    assert decided.evidence.bound == pytest.approx(decided.evidence.value, rel=1e-9)


POLICIES = (
    TotalThroughput(),
    TotalThroughput(normalised=True),
    ThroughputPerDollar(),
    MinCost(),
    Hierarchical(),
    Hierarchical(fifo="lab/vision,office"),
    PartialAllocation(),
)


@pytest.mark.parametrize("policy", POLICIES, ids=repr)
@settings(max_examples=10)
@given(with_deadlines(), st.randoms(use_true_random=False))
def test_the_order_of_jobs_changes_nothing(policy: Any, instance: Instance, random: Any) -> None:
    instance = instance._replace(tenant=[TENANTS[job % len(TENANTS)] for job in range(len(instance.gang))])
    order = list(range(len(instance.gang)))
    random.shuffle(order)
    first, other = instance.view(), instance.view(order)
    one, two = policy.decide(first), policy.decide(other)
    back = np.argsort(other.jobs.serial)
    assert one.fraction == pytest.approx(two.fraction[back], abs=1e-12)
    assert (one.evidence.limit == two.evidence.limit[back]).all()
