"""From shares and grants to claims."""

from __future__ import annotations

import numpy as np
from builders import ACCELERATOR, arrival, cluster, simulate

from horae.mechanism.claims import claim
from horae.mechanism.turns import Standing, round_priorities
from horae.model.decisions import Grants, Pairs, Ranking, Shares
from horae.model.job_table import JobColumns, JobNumbers, JobTable
from horae.model.jobs import Arrival, Job, Truth
from horae.model.setup import Cadence, RoundRules
from horae.model.shapes import Option, Shape
from horae.model.status import Status

TYPES = ("V100", "P100", "K80")


def table(received: list[list[float]], gpus: int = 1, apps: list[int] | None = None) -> JobColumns:
    """Pending jobs that accept each of the types, with the seconds that they had on each."""
    jobs = JobTable()
    options = tuple(Option(Shape(name, gpus, "node"), 1.0) for name in TYPES)
    for serial in range(len(received)):
        app = apps[serial] if apps else serial
        jobs.add(serial, Job(f"j{serial}", 0.0, options), JobNumbers(app, 0, 0, 0, (0, 1, 2), 0.0, 0.0))
    jobs.columns["received_base"][: len(received)] = received
    return jobs.view(0.0)


FRACTIONS = np.array([[0.6, 0.4, 0.0], [0.2, 0.6, 0.2], [0.2, 0.0, 0.8]])
ROUNDS = [[3.0, 1.0, 0.0], [1.0, 3.0, 0.0], [0.0, 0.0, 4.0]]


def test_the_priorities_of_gavels_example() -> None:
    priorities = round_priorities(FRACTIONS, np.array(ROUNDS))
    expected = [[0.2, 0.4, 0.0], [0.2, 0.2, np.inf], [np.inf, 0.0, 0.2]]
    np.testing.assert_allclose(priorities, expected)


def test_the_winners_of_gavels_example() -> None:
    claims = claim(Shares(FRACTIONS), table(ROUNDS))
    assert claims.option is not None
    winners: dict[int, str] = {}
    for row, option in zip(claims.row.tolist(), claims.option.tolist(), strict=True):
        if row not in winners and TYPES[option] not in winners.values():
            winners[row] = TYPES[option]
    assert winners == {0: "P100", 1: "K80", 2: "V100"}


def test_a_job_without_a_share_claims_nothing() -> None:
    claims = claim(Shares(np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])), table([[0.0] * 3] * 2))
    assert claims.row.tolist() == [0]


def test_who_runs_alone_without_a_share_may_go_on_unless_others_are_to_share() -> None:
    jobs = table([[0.0] * 3] * 3)
    columns = {name: column.copy() for name, column in jobs._columns.items()}
    columns["status"][0], columns["epoch"][0], columns["option"][0] = int(Status.RUNNING), 5, 0
    jobs = JobColumns(jobs.now, columns, len(jobs), bundles=0)
    fraction, standing = (
        np.array([[0.0, 1.0, 0.0], [0.5, 0.0, 0.0], [0.5, 0.0, 0.0]]),
        Standing(RoundRules(), pair_seconds=np.zeros(1)),
    )
    alone = claim(Shares(fraction), jobs, standing)
    assert alone.option is not None
    assert (0, 0) in zip(alone.row.tolist(), alone.option.tolist(), strict=True)
    two, first = np.array([1]), np.array([0])
    paired = claim(Shares(fraction, pairs=Pairs(two, two + 1, first, first, np.array([0.5]))), jobs, standing)
    assert paired.option is not None
    assert [option for row, option in zip(paired.row.tolist(), paired.option.tolist(), strict=True) if row == 0] == [1]


def test_grants_come_before_the_rest_and_the_rest_has_its_shapes_in_turn() -> None:
    jobs = table([[0.0] * 3] * 3, apps=[0, 1, 2])
    won = np.array([2]), np.array([1]), np.array([60.0])
    claims = claim(Grants(*won, Ranking(np.array([1, 0])), rest_lease_seconds=5.0), jobs)
    assert claims.option is not None
    assert claims.lease_seconds is not None
    pairs = list(zip(claims.row.tolist(), claims.option.tolist(), claims.lease_seconds.tolist(), strict=True))
    assert pairs == [(2, 1, 60.0), (1, 0, 5.0), (1, 1, 5.0), (1, 2, 5.0), (0, 0, 5.0), (0, 1, 5.0), (0, 2, 5.0)]


def test_equal_shares_give_two_jobs_half_the_time_each() -> None:
    """One GPU, two jobs of 100 s each: they take turns, and end within half a turn of each other."""
    recorder = simulate(
        cluster(nodes=1, gpus=1),
        [arrival("a", 0, 1, 100), arrival("b", 0, 1, 100)],
        "equal-share",
        Cadence.ROUNDS,
        round_seconds=10.0,
    )
    ended = {record.job_id: record.ended_at for record in recorder.records()}
    assert max(ended.values()) == 200.0
    assert 150.0 <= min(ended.values()) < 200.0


def test_equal_shares_follow_weights() -> None:
    """Weights 3 and 1 on one GPU: until the first ends it has had three quarters of the time, but for a turn."""
    recorder = simulate(
        cluster(nodes=1, gpus=1),
        [arrival("a", 0, 1, 300, weight=3.0), arrival("b", 0, 1, 300)],
        "equal-share",
        Cadence.ROUNDS,
        round_seconds=10.0,
    )
    ended = {record.job_id: record.ended_at for record in recorder.records()}
    assert abs(ended["a"] - 400.0) <= 40.0
    assert ended["b"] == 600.0


def test_equal_shares_do_not_move_a_job_between_two_localities_of_one_type() -> None:
    """A job that has four GPUs for itself and accepts two of them on a switch, or anywhere on the node, stays there."""
    options = tuple(Option(Shape(ACCELERATOR, 2, level), speed) for level, speed in (("switch", 1.0), ("node", 0.5)))
    only = Arrival(Job("a", 0.0, options, steps_total=1000.0), Truth(1000.0, options))
    where = cluster(nodes=1, gpus=4, levels=[("switch", 2)])
    recorder = simulate(where, [only], "equal-share", Cadence.ROUNDS, round_seconds=10.0)
    assert [record.starts for record in recorder.records()] == [1]


def test_a_lease_is_not_contested_before_it_ends() -> None:
    """Under highest-rho with leases of 50 s, the one who waits gets its turn when the lease ends, not before."""
    recorder = simulate(
        cluster(nodes=1, gpus=1),
        [arrival("long", 0, 1, 1000), arrival("short", 1, 1, 10)],
        "highest-rho",
        Cadence.ROUNDS,
        round_seconds=10.0,
        lease_seconds=50.0,
    )
    records = {record.job_id: record for record in recorder.records()}
    assert records["short"].started_at == 50.0
    assert records["long"].starts == 2
