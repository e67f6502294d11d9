"""Each policy on a case that can be worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest
from builders import arrival, cluster, job, simulate, with_truth

from horae.model.errors import PolicyError
from horae.model.pools import Cadence
from horae.policies.registry import POLICIES, make_policy
from horae.reports.records import Record


def run(policy: str, *jobs: tuple[str, float, int, float], gpus: int = 1, **options: Any) -> dict[str, Record]:
    """Jobs (name, submitted, gpus, seconds) on one node, in rounds of 10 s."""
    arrivals = [arrival(name, at, gang, seconds) for name, at, gang, seconds in jobs]
    recorder = simulate(cluster(nodes=1, gpus=gpus), arrivals, policy, Cadence.ROUNDS, round_seconds=10.0, **options)
    return {record.job_id: record for record in recorder.records()}


def test_least_attained_service_lets_a_newcomer_catch_up() -> None:
    done = run("las", ("old", 0, 1, 100), ("new", 50, 1, 100))
    # From 50 to 100 the newcomer draws level at 50 s each; then they take turns.
    assert done["old"].starts > 1
    assert done["new"].started_at == 50.0
    assert sorted(record.ended_at for record in done.values()) == [190.0, 200.0]


def test_tiresias_demotes_a_long_job_when_a_short_one_waits() -> None:
    done = run("tiresias", ("long", 0, 1, 100), ("short", 5, 1, 20), limits=(30.0,), promote_after=0.0)
    # The long job passes 30 GPU-seconds at 30; the short one is in the upper queue and runs to its end.
    assert done["short"].started_at == 30.0
    assert done["short"].ended_at == 50.0
    assert done["long"].ended_at == 120.0


def test_tiresias_is_first_come_first_served_within_a_queue() -> None:
    done = run("tiresias", ("first", 0, 1, 25), ("second", 1, 1, 25), limits=(1000.0,))
    assert done["first"].starts == 1
    assert done["second"].started_at == 30.0  # the round after 25


def test_tiresias_counts_service_in_gpus_times_seconds() -> None:
    done = run("tiresias", ("wide", 0, 4, 100), ("thin", 5, 1, 20), gpus=4, limits=(80.0,), promote_after=0.0)
    assert done["thin"].started_at == 20.0  # 4 GPUs x 20 s


def test_tiresias_promotes_a_starved_job_once() -> None:
    shorts = [(f"s{i}", 10.0 * i, 1, 10.0) for i in range(1, 60)]
    starved = run("tiresias", ("long", 0, 1, 40), *shorts, limits=(10.0,), promote_after=0.0)
    helped = run("tiresias", ("long", 0, 1, 40), *shorts, limits=(10.0,), promote_after=8.0)
    assert starved["long"].ended_at > 600.0  # waits until no short job is left
    assert helped["long"].ended_at < starved["long"].ended_at


def test_jobs_that_displace_each_other_still_get_somewhere() -> None:
    """With a restart as long as a round, a job that could be stopped the moment it is back would never work."""
    jobs = [arrival(name, 0, 1, 25, restart_seconds=10.0) for name in ("a", "b")]
    recorder = simulate(cluster(nodes=1, gpus=1), jobs, "las", Cadence.ROUNDS, round_seconds=10.0)
    assert sorted(record.ended_at for record in recorder.records())[-1] < 200.0


def test_the_shortest_job_goes_first() -> None:
    done = run("sjf", ("now", 0, 1, 10), ("long", 1, 1, 50), ("short", 2, 1, 20))
    assert done["short"].started_at < done["long"].started_at


def test_a_job_of_unknown_length_is_taken_to_be_the_longest() -> None:
    unknown = with_truth(job("unknown", 1, 1, None), 5)
    jobs = [arrival("now", 0, 1, 10), unknown, arrival("known", 2, 1, 500)]
    recorder = simulate(cluster(nodes=1, gpus=1), jobs, "sjf", Cadence.EVENTS)
    order = [record.job_id for record in recorder.records()]
    assert order == ["now", "known", "unknown"]


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_is_safe_when_there_are_no_jobs_and_finishes_all_it_gets(name: str) -> None:
    assert run(name) == {}
    done = run(name, *((f"j{i}", 3.0 * i, 1 + i % 3, 7.0 + i) for i in range(20)), gpus=4)
    assert len(done) == 20


@pytest.mark.parametrize(
    ("name", "options", "complaint"),
    [
        ("magic", {}, "no policy 'magic'"),
        ("tiresias", {"limit": [1]}, "no option 'limit'"),
        ("tiresias", {"limits": [3, 1]}, "not increasing"),
        ("tiresias", {"limits": "many"}, "give a list of numbers"),
        ("tiresias", {"promote_after": -1}, "promote_after is -1"),
        ("fifo", {"backfill": "yes"}, "give true or false"),
        ("highest-rho", {"lease_seconds": 0}, "a lease of 0"),
    ],
)
def test_a_wrong_name_or_option_is_told_with_its_remedy(name: str, options: dict[str, object], complaint: str) -> None:
    with pytest.raises(PolicyError) as raised:
        make_policy(name, options)
    assert complaint in str(raised.value)
    assert raised.value.remedy
