"""The order of turns: the compiled one is the one that is written down, and nobody stays behind for long."""

from __future__ import annotations

import numpy as np
import pytest
from builders import arrival, cluster
from hypothesis import given, settings
from hypothesis import strategies as st

from horae.experiment import simulate
from horae.mechanism.turns import Standing, _alone, _order, claims_of_shares
from horae.model.arrays import Floats
from horae.model.decisions import Shares
from horae.model.jobs import Job
from horae.model.pools import Cadence, PoolSpec, RoundRules, Setup
from horae.model.shapes import Option, Shape
from horae.model.status import Status
from horae.model.table import Entry, JobColumns, JobTable

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
        table.add(serial, job, Entry(serial, 0, 0, 0, (0, 1, 2), 0.0, 0.0))
        columns, row = table.columns, table.row[serial]
        columns["deficit"][row] = [draw(seconds) for _ in SHAPES]
        columns["received_base"][row] = [abs(draw(seconds)) for _ in SHAPES]
        columns["run_base"][row] = columns["received_base"][row].sum()
        if draw(st.booleans()):
            columns["status"][row], columns["epoch"][row] = int(Status.RUNNING), serial
            columns["option"][row], columns["since"][row] = draw(st.integers(0, 2)), NOW - draw(st.integers(0, 2)) * 360
    fraction = np.array([[draw(fractions) for _ in SHAPES] for _ in range(count)]).reshape(count, 3)
    return Shares(fraction), table.view(NOW)


@settings(deadline=None)
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
