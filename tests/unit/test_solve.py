"""Level problems at their edges: what is missing, worth nothing or all the same."""

from __future__ import annotations

from math import nan

import numpy as np
import pytest
from pools_of_types import Instance

from horae.model.arrays import Floats
from horae.model.decisions import Evidence, Limit
from horae.model.shapes import Shape
from horae.model.view import Policy, View
from horae.policies.finish_time_fairness import FinishTimeFairness
from horae.policies.makespan import Makespan
from horae.policies.max_min import MaxMin
from horae.solvers.classes import collapse
from horae.solvers.classes_kernel import sorted_out
from horae.solvers.levels.objectives import isolated_speed
from horae.solvers.linear_program import ProgramRow, maximise
from horae.solvers.solution import Unsolved

POLICIES = (MaxMin(), MaxMin(fill=False), FinishTimeFairness(), FinishTimeFairness(aware=False), Makespan())


def pool(speed: list[list[float]], gpus: list[int], **columns: list[float]) -> Instance:
    jobs = len(speed)
    return Instance(np.array(speed), [1] * jobs, [1.0] * jobs, gpus, **columns)  # type: ignore[arg-type]


def decide(policy: Policy, instance: Instance) -> tuple[Floats, Evidence]:
    """Shares by job and type, feasible, and their evidence."""
    view = instance.view()
    answer = policy.decide(view)
    shares = instance.by_type(view, answer.fraction)  # type: ignore[union-attr]
    instance.check_feasible(shares)
    evidence = answer.evidence  # type: ignore[union-attr]
    assert evidence is not None
    return shares, evidence


@pytest.mark.parametrize("policy", POLICIES, ids=repr)
def test_an_empty_pool_gets_no_shares(policy: Policy) -> None:
    answer = policy.decide(Instance(np.zeros((0, 2)), [], [], [4, 4]).view())
    assert answer.fraction.shape == (0, 2)  # type: ignore[union-attr]


@pytest.mark.parametrize("policy", POLICIES, ids=repr)
def test_a_type_without_gpus_serves_nobody_and_is_named_as_the_limit(policy: Policy) -> None:
    instance = pool([[2.0, 0.0], [2.0, 1.0]], [0, 1], steps_left=[100.0, 100.0])
    view = instance.view()
    answer = policy.decide(view)
    shares = instance.by_type(view, answer.fraction)  # type: ignore[union-attr]
    assert shares == pytest.approx(np.array([[0.0, 0.0], [0.0, 1.0]]), abs=1e-9)
    assert answer.evidence.limit.tolist() == [Limit.NOWHERE, Limit.TIME]  # type: ignore[union-attr]


def test_without_weight_a_job_gets_what_is_left_over() -> None:
    instance = pool([[1.0], [1.0], [1.0]], [2])
    view = _with(instance.view(), "weight", [1.0, 0.0, 0.0])
    answer = MaxMin().decide(view)
    shares = instance.by_type(view, answer.fraction)
    instance.check_feasible(shares)
    assert shares[0] == pytest.approx([1.0])
    assert shares.sum() == pytest.approx(2.0)
    assert answer.evidence is not None
    assert answer.evidence.value == answer.evidence.bound == pytest.approx(1.0)


@pytest.mark.parametrize("policy", [FinishTimeFairness(), Makespan()], ids=repr)
@pytest.mark.parametrize("left", [nan, 0.0])
def test_a_job_of_which_nobody_knows_what_is_left_gets_what_is_left_over(policy: Policy, left: float) -> None:
    for gpus, want in ((1, [[1.0], [0.0]]), (2, [[1.0], [1.0]])):
        instance = pool([[1.0], [1.0]], [gpus])
        view = _with(instance.view(), "steps_left", [100.0, left])
        shares = instance.by_type(view, policy.decide(view).fraction)  # type: ignore[union-attr]
        assert shares == pytest.approx(np.array(want), abs=1e-9)


def _with(view: View, column: str, values: list[float]) -> View:
    """A view with another column than jobs could have come with."""
    vars(view.jobs)[column] = np.array(values)[view.jobs.serial]
    return view


def test_the_reference_stands_for_all_types_where_a_policy_is_not_aware() -> None:
    instance = pool([[1.0, 4.0], [1.0, 2.0]], [1, 1], steps_left=[400.0, 200.0])
    first, _ = decide(Makespan(aware=False), instance)
    assert first.sum(axis=1) == pytest.approx([1.0, 1.0])  # 400 and 200 steps at a speed of 1: the longer one is served
    _, evidence = decide(Makespan(aware=False, reference="type-1"), instance)
    assert evidence.value == pytest.approx(100.0)  # both take 100 s at the speeds of type 1


def test_prices_are_what_one_more_gpu_would_add() -> None:
    speed = [[4.0, 1.0], [3.0, 2.0], [5.0, 1.5], [2.0, 1.0]] * 8
    _, here = decide(MaxMin(fill=False), pool(speed, [1000, 1000]))
    assert here.prices == pytest.approx([0.0, 0.0])
    for policy in (MaxMin(fill=False), FinishTimeFairness(), Makespan()):
        columns = {"steps_left": [1000.0] * 32, "age_seconds": [5.0] * 32, "isolated_seconds": [4.0] * 32}
        _, before = decide(policy, pool(speed, [8, 8], **columns))
        assert (before.prices > 0).all()
    _, before = decide(Makespan(), pool(speed, [800, 800], steps_left=[1000.0] * 32))
    assert before.prices == pytest.approx([0.0, 0.0])  # everybody runs all the time


def test_the_price_of_a_type_is_the_slope_of_the_makespan() -> None:
    speed = [[4.0, 1.0], [3.0, 2.0], [5.0, 1.5], [2.0, 1.0]] * 64
    left = [1000.0 + index for index in range(256)]
    _, before = decide(Makespan(), pool(speed, [100, 100], steps_left=left))
    _, after = decide(Makespan(), pool(speed, [101, 100], steps_left=left))
    assert before.value - after.value == pytest.approx(before.prices[0], rel=0.05)


def test_jobs_whose_marks_collide_are_still_told_apart() -> None:
    """The second number of a row is chosen so that its mark is that of another row with another first number."""

    def mixed(number: float) -> int:
        mark = int(np.float64(number).view(np.uint64)) * 0x9E3779B97F4A7C15 % 2**64
        return mark ^ (mark >> 29)

    bits = mixed(1.0) ^ mixed(2.0) ^ int(np.float64(3.0).view(np.uint64))
    key = np.array([[1.0, 3.0], [2.0, np.uint64(bits).view(np.float64)], [1.0, 3.0], [2.0, 3.0]])
    assert np.isfinite(key).all()
    first, member = sorted_out(key.view(np.uint64), np.array([3, 2, 1, 0]))
    assert first.tolist() == [3, 2, 1]
    assert member.tolist() == [1, 2, 1, 0]


def test_the_isolated_speed_is_that_on_an_nth_of_every_type() -> None:
    view = pool([[2.0, 1.0], [3.0, 2.0]], [1, 3]).view()
    classes = collapse(view, view.jobs.speed)
    # Half of one GPU and of three: two GPUs' worth for a job of one, so its row is scaled down.
    assert isolated_speed(classes) == pytest.approx([(0.5 * 2 + 1.5 * 1) / 2, (0.5 * 3 + 1.5 * 2) / 2])


def test_of_equally_fast_shapes_of_one_type_only_the_loosest_is_asked_for() -> None:
    """Otherwise a solver may take one today and the other tomorrow, and a gang would move for nothing."""
    instance = pool([[2.0, 2.0]], [4, 4])
    view = instance.view()
    shapes = tuple(Shape("type-0", 1, level) for level in ("node", "cluster"))
    twins = view._replace(
        shapes=shapes,
        shape_accelerator=np.array([0, 0]),
        shape_gpus=np.array([1, 1]),
        shape_level=np.array([0, 1]),
        levels=("node", "cluster"),
    )
    assert collapse(twins, twins.jobs.speed).choice.tolist() == [[False, True]]
    faster = collapse(twins, np.array([[3.0, 2.0]]))
    assert faster.choice.tolist() == [[True, True]]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_program_whose_numbers_are_not_finite_is_unsolved_rather_than_a_crash(value: float) -> None:
    row = ProgramRow(np.array([0]), np.array([value]), -np.inf, 1.0)
    with pytest.raises(Unsolved, match="its numbers are not finite"):
        maximise("a test", np.ones(1), (row,))
