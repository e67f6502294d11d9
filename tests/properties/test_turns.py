"""The order of turns: the compiled one is the one that is written down, and nobody stays behind for long."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from builders import arrival, cluster, handle
from hypothesis import given
from hypothesis import strategies as st

from horae.experiments.simulate import simulate
from horae.mechanism.turns import Standing, _alone, _order, claims_of_shares
from horae.model.arrays import Floats
from horae.model.cluster import Cluster, Node
from horae.model.decisions import Shares
from horae.model.errors import InputError, PolicyError
from horae.model.events import Health, JobEnded, JobSubmitted, NodeChanged, Tick
from horae.model.job_table import JobColumns, JobNumbers, JobTable
from horae.model.jobs import Job
from horae.model.setup import Cadence, PoolSpec, RoundRules, Setup
from horae.model.shapes import Option, Shape
from horae.model.status import Status
from horae.model.view import View
from horae.policies.equal_share import EqualShare
from horae.scheduler import Scheduler
from horae.solvers.solution import Unsolved

SHAPES = (Shape("v100", 1, "node"), Shape("p100", 1, "node"), Shape("k80", 1, "node"))
NOW = 1e5
fractions = st.sampled_from([0.0, 0.0, 0.25, 0.5, 1.0])
seconds = st.sampled_from([-720.0, 0.0, 0.0, 360.0, 1000.0])


@st.composite
def pools(draw: st.DrawFn) -> tuple[Shares, JobColumns]:
    """Jobs that wait, run or have never run, with debts of all kinds; ties are common."""
    count = draw(st.integers(0, 8))
    table = JobTable(options=3)
    for serial in draw(st.permutations(range(count))):
        restart_seconds = draw(st.sampled_from([0.0, 60.0, 500.0]))
        options = tuple(Option(shape, 1.0) for shape in SHAPES)
        job = Job(str(serial), 0.0, options, steps_total=1.0, restart_seconds=restart_seconds)
        table.add(serial, job, JobNumbers(serial, 0, 0, 0, (0, 1, 2), 0.0, 0.0))
        columns, row = table.columns, table.row[serial]
        columns["deficit"][row] = [draw(seconds) for _ in SHAPES]
        columns["received_base"][row] = [abs(draw(seconds)) for _ in SHAPES]
        columns["run_base"][row] = columns["received_base"][row].sum()
        if draw(st.booleans()):
            columns["status"][row], columns["epoch"][row] = int(Status.RUNNING), serial
            columns["option"][row], columns["since"][row] = draw(st.integers(0, 2)), NOW - draw(st.integers(0, 2)) * 360
    fraction = np.array([[draw(fractions) for _ in SHAPES] for _ in range(count)]).reshape(count, 3)
    return Shares(fraction), table.view(NOW)


@given(pools(), st.sampled_from([0.0, 360.0]))
def test_the_compiled_order_is_the_written_one(pool: tuple[Shares, JobColumns], elapsed_seconds: float) -> None:
    shares, jobs = pool
    standing = Standing(RoundRules(), 360.0, elapsed_seconds)
    claims = claims_of_shares(shares, jobs, standing)
    lots = _alone(shares, jobs, standing)
    order = _order(lots, jobs, standing)
    assert claims.option is not None
    assert claims.row.tolist() == lots.row[order].tolist()
    assert claims.option.tolist() == lots.option[order].tolist()


@pytest.mark.parametrize("turn_rounds", [0.0, 1.0, 4.0, 10.0])
@pytest.mark.parametrize("weights", [(1.0, 1.0, 1.0), (5.0, 1.0, 1.0), (3.0, 2.0, 1.0)])
def test_nobody_is_behind_its_share_by_much_more_than_a_turn(turn_rounds: float, weights: tuple[float, ...]) -> None:
    """Three jobs of very long run time on one GPU: what each has had, over two hundred rounds."""
    round_seconds, rounds = 10.0, 200
    jobs = [arrival(str(index), 0, 1, 1e9, weight=weight) for index, weight in enumerate(weights)]
    pool = PoolSpec("all", "equal-share", {}, Cadence.ROUNDS, round_seconds, rules=RoundRules(turn_rounds=turn_rounds))
    setup = Setup(cluster(nodes=1, gpus=1), (pool,))
    seen: list[float] = []

    class Clock:
        def reacted(self, event: object, reaction: object) -> None:
            seen.append(getattr(event, "at"))  # noqa: B009

    run = simulate(setup, jobs, observers=[Clock()], enough=lambda: bool(seen) and seen[-1] >= rounds * round_seconds)
    had: Floats = run.log.run_seconds[np.argsort(run.log.jobs.id)]
    share = np.array(weights) / sum(weights) * run.log.until
    assert np.abs(had - share).max() <= (max(turn_rounds, 1.0) + 2) * round_seconds


def _wait_of_a_newcomer(hours: float) -> float:
    """Three gangs of 3 on two nodes of 4: a third of their time cannot be had. Then comes a gang of 4."""
    jobs = [arrival(f"gang-{index}", 0, 3, 1e7) for index in range(3)]
    jobs.append(arrival("late", hours * 3600.0, 4, 7200.0))
    setup = Setup(cluster(nodes=2, gpus=4), (PoolSpec("all", "max-min", {}, Cadence.ROUNDS),))
    ended: list[str] = []

    class Watch:
        def reacted(self, event: object, reaction: object) -> None:
            if isinstance(event, JobEnded):
                ended.append(event.job_id)

    log = simulate(setup, jobs, observers=[Watch()], enough=lambda: "late" in ended).log
    return float(log.jobs.started_at[log.jobs.id.index("late")] - hours * 3600.0)


def test_a_newcomer_does_not_wait_for_debts_that_nobody_could_pay() -> None:
    assert _wait_of_a_newcomer(100.0) == pytest.approx(_wait_of_a_newcomer(10.0), abs=3600.0)
    assert _wait_of_a_newcomer(100.0) <= 5 * 3600.0


def test_a_share_that_is_no_number_is_refused_and_spoils_nothing() -> None:
    setup = Setup(cluster(nodes=1, gpus=1), (PoolSpec("all", "equal-share", {}, Cadence.ROUNDS),))
    scheduler = Scheduler(setup)
    handle(scheduler, JobSubmitted(0.0, arrival("a").job))
    with (
        patch.object(EqualShare, "decide", lambda self, view: Shares(np.full(view.jobs.shape.shape, np.nan))),
        pytest.raises(PolicyError, match="no fractions of time"),
    ):
        handle(scheduler, Tick(0.0))


def test_jobs_that_come_while_a_solver_fails_still_run() -> None:
    """A has a share from before; B comes when nothing can be solved any more, and there is a GPU for it."""
    setup = Setup(cluster(nodes=1, gpus=2), (PoolSpec("all", "equal-share", {}, Cadence.ROUNDS),))
    whole = EqualShare.decide

    def decide(self: EqualShare, view: View) -> Shares:
        if view.now > 100.0:
            raise Unsolved("anything", "no luck")
        return whole(self, view)

    with patch.object(EqualShare, "decide", decide):
        log = simulate(setup, [arrival("a", 0, 1, 5000.0), arrival("b", 400.0, 1, 1000.0)]).log
    assert log.jobs.ended_at[log.jobs.id.index("b")] == 1720.0
    assert log.jobs.ended_at[log.jobs.id.index("a")] == 5000.0


@pytest.mark.parametrize(
    "rules",
    [{"turn_rounds": -1.0}, {"turn_rounds": np.nan}, {"restart_share_max": 0.0}, {"reconsider_seconds": np.inf},
     {"type_order": ("v100", "v100")}],
)  # fmt: skip
def test_rules_that_make_no_sense_are_refused(rules: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(rules))):
        RoundRules(**rules)


@pytest.mark.parametrize("policy", ["max-min", "makespan", "total-throughput", "equal-share", "gandiva"])
def test_no_share_is_given_of_a_type_that_cannot_hold_the_gang(policy: str) -> None:
    """A gang of 4 on 4 fast GPUs, of which a node fails, and 8 slow ones: after that all of its time is on the slow."""
    fast = tuple(Node(f"fast-{index}", "v100", 2) for index in range(2))
    machines = Cluster("two types", (*fast, Node("slow", "k80", 8)))
    options = (Option(Shape("v100", 4, "cluster"), 10.0), Option(Shape("k80", 4, "cluster"), 1.0))
    scheduler = Scheduler(Setup(machines, (PoolSpec("all", policy, {}, Cadence.ROUNDS),)))
    handle(scheduler, JobSubmitted(0.0, Job("gang", 0.0, options, steps_total=1e9)))
    before = handle(scheduler, Tick(0.0)).rounds[0].decision
    handle(scheduler, NodeChanged(100.0, "fast-1", Health.FAILED))
    after = handle(scheduler, Tick(360.0)).rounds[0].decision
    assert isinstance(before, Shares)
    assert isinstance(after, Shares)
    assert before.fraction[0, 0] > 0
    assert after.fraction[0].tolist() == pytest.approx([0.0, 1.0])


@given(pools())
def test_where_types_have_an_order_no_claim_moves_a_job_against_it(pool: tuple[Shares, JobColumns]) -> None:
    shares, jobs = pool
    rules = RoundRules(type_order=("k80",), turn_rounds=1.0)
    standing = Standing(rules=rules, round_seconds=360.0, elapsed_seconds=0.0, shape_turn=np.array([1, 1, 0]))
    assert claims_of_shares(shares, jobs, standing).moves is None
