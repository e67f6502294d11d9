"""Each policy on a case that can be worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from builders import arrival, cluster, job, simulate, with_truth

from horae.model.errors import PolicyError
from horae.model.jobs import Job
from horae.model.setup import Cadence
from horae.model.shapes import Option, Shape
from horae.policies.gittins import Gittins
from horae.policies.registry import POLICIES, make_policy
from horae.reports.recorder import JobRecord


def run(policy: str, *jobs: tuple[str, float, int, float], gpus: int = 1, **options: Any) -> dict[str, JobRecord]:
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
    gangs = (1, 1, 1) if name == "allox" else (1, 2, 3)  # it serves no larger ones
    done = run(name, *((f"j{i}", 3.0 * i, gangs[i % 3], 7.0 + i) for i in range(20)), gpus=4)
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
        ("tiresias", {"promote_after": float("inf")}, "promote_after is inf"),
        ("tiresias", {"promote_after": "often"}, "give a number"),
        ("gittins", {"sigma": 0}, "sigma is 0"),
        ("gittins", {"sigma": 1000}, "sigma is 1000"),
        ("gittins", {"samples": [5, -1]}, "not a positive number"),
        ("gittins", {"horizon_gpu_seconds": -1}, "horizon_gpu_seconds is -1"),
        ("yarn-cs", {"guaranteed": {"a": 0.7, "b": 0.7}}, "guaranteed is"),
        ("yarn-cs", {"guaranteed": [1]}, "give numbers by name"),
        ("yarn-cs", {"maximum": 2}, "maximum is 2"),
        ("yarn-cs", {"tries": -1}, "tries is -1"),
    ],
)
def test_a_wrong_name_or_option_is_told_with_its_remedy(name: str, options: dict[str, object], complaint: str) -> None:
    with pytest.raises(PolicyError) as raised:
        make_policy(name, options)
    assert complaint in str(raised.value)
    assert raised.value.remedy


def test_the_shortest_remaining_time_goes_first_and_displaces_longer_ones() -> None:
    done = run("srtf", ("long", 0, 1, 100), ("short", 20, 1, 30))
    # At 20 the long one has 80 s left, more than 30.
    assert (done["short"].started_at, done["short"].ended_at) == (20.0, 50.0)
    assert (done["long"].ended_at, done["long"].starts) == (130.0, 2)


def test_who_is_nearly_done_is_not_displaced_by_a_job_that_is_short_in_all() -> None:
    done = run("srtf", ("long", 0, 1, 100), ("short", 80, 1, 30))
    assert done["long"].ended_at == 100.0  # 20 s left at 80
    assert done["short"].started_at == 100.0


def test_remaining_service_counts_gpus_and_remaining_time_does_not() -> None:
    jobs = (("now", 0, 4, 10), ("wide", 1, 4, 20), ("thin", 1, 1, 60))
    assert run("srtf", *jobs, gpus=4)["wide"].started_at == 10.0  # 20 s before 60 s
    by_service = run("srsf", *jobs, gpus=4)
    assert by_service["thin"].started_at == 10.0  # 60 GPU-seconds before 80
    assert by_service["wide"].started_at == 70.0


def test_strict_shortest_remaining_time_lets_nobody_pass_a_head_that_does_not_fit() -> None:
    jobs = [
        arrival("running", 0, 3, 50, min_runtime_seconds=1000.0),
        arrival("head", 1, 4, 10),
        arrival("thin", 2, 1, 30),
    ]
    for backfill, starts_at in ((True, 2.0), (False, 60.0)):
        recorder = simulate(cluster(nodes=1, gpus=4), jobs, "srtf", Cadence.EVENTS, backfill=backfill)
        assert {record.job_id: record.started_at for record in recorder.records()}["thin"] == starts_at


def test_dominant_resource_fairness_gives_the_allocation_of_the_paper() -> None:
    """Ghodsi et al., NSDI'11, section 4.1: 9 CPUs and 18 GB; <1 CPU, 4 GB> and <3 CPUs, 1 GB> get 3 and 2 tasks."""
    lab = cluster(nodes=1, gpus=100, cpus=9, memory_bytes=18e9)
    jobs = [
        *(arrival(f"a{i}", 0, 1, 100, user="a", cpus_per_gpu=1, memory_bytes_per_gpu=4e9) for i in range(9)),
        *(arrival(f"b{i}", 0, 1, 100, user="b", cpus_per_gpu=3, memory_bytes_per_gpu=1e9) for i in range(9)),
    ]
    recorder = simulate(lab, jobs, "drf")
    first = [record.job_id[0] for record in recorder.records() if record.started_at == 0.0]
    assert sorted(first) == ["a", "a", "a", "b", "b"]


def test_with_gpus_alone_dominant_resource_fairness_shares_them_evenly() -> None:
    jobs = [arrival(f"{user}{i}", 0, 1, 100, user=user) for user in "ab" for i in range(8)]
    recorder = simulate(cluster(nodes=1, gpus=8), jobs, "drf")
    first = [record.job_id[0] for record in recorder.records() if record.started_at == 0.0]
    assert sorted(first) == [*"aaaa", *"bbbb"]


def queues(*jobs: tuple[str, str, float, int, float], gpus: int = 8, **options: Any) -> dict[str, JobRecord]:
    """Jobs (name, tenant, submitted, gpus, seconds) on one node under the capacity scheduler."""
    arrivals = [arrival(name, at, gang, seconds, tenant=tenant) for name, tenant, at, gang, seconds in jobs]
    recorder = simulate(cluster(nodes=1, gpus=gpus), arrivals, "yarn-cs", Cadence.EVENTS, **options)
    return {record.job_id: record for record in recorder.records()}


HALVES = {"red": 0.5, "blue": 0.5}


def test_the_queue_of_the_lowest_use_over_its_guarantee_comes_first() -> None:
    done = queues(
        ("busy", "red", 0, 8, 10),
        ("red", "red", 1, 4, 10),
        ("blue", "blue", 2, 8, 10),
        guaranteed={"red": 0.75, "blue": 0.25},
        reclaim=False,
    )
    # At 10 both have nothing; red came first and takes 4. Blue needs all 8, more than is left.
    assert (done["red"].started_at, done["blue"].started_at) == (10.0, 20.0)


def test_idle_quota_is_lent_and_reclaimed_from_the_newest_of_the_queue_that_is_furthest_over() -> None:
    done = queues(
        ("red 1", "red", 0, 2, 100),
        ("red 2", "red", 1, 2, 100),
        ("red 3", "red", 2, 2, 100),
        ("red 4", "red", 3, 2, 100),  # beyond red's 4 GPUs: lent
        ("blue", "blue", 10, 2, 50),
        guaranteed=HALVES,
    )
    assert done["blue"].started_at == 10.0
    assert [name for name, record in done.items() if record.starts > 1] == ["red 4"]


def test_nobody_is_reclaimed_from_below_its_guarantee() -> None:
    done = queues(("red", "red", 0, 4, 100), ("blue", "blue", 10, 8, 50), guaranteed=HALVES)
    assert done["red"].starts == 1
    assert done["blue"].started_at == 100.0  # 8 GPUs are more than blue is guaranteed: it waits for idle ones


def test_without_reclaiming_a_borrower_stays() -> None:
    done = queues(("red", "red", 0, 8, 100), ("blue", "blue", 10, 2, 50), guaranteed=HALVES, reclaim=False)
    assert (done["red"].starts, done["blue"].started_at) == (1, 100.0)


def test_a_queue_stays_below_its_maximum_even_if_the_rest_is_idle() -> None:
    jobs = [(f"red {i}", "red", 0.0, 2, 100.0) for i in range(4)]
    done = queues(*jobs, guaranteed=HALVES, maximum=0.75)
    assert sorted(record.started_at for record in done.values()) == [0.0, 0.0, 0.0, 100.0]


def test_a_gang_that_does_not_fit_keeps_no_other_of_its_queue_waiting() -> None:
    done = queues(("now", "red", 0, 6, 100), ("wide", "red", 1, 8, 10), ("thin", "red", 2, 2, 10), guaranteed=HALVES)
    assert done["thin"].started_at == 2.0


def test_guarantees_that_are_not_named_go_by_weight() -> None:
    done = queues(("red", "red", 0, 8, 100), ("blue", "blue", 10, 4, 50))
    assert done["blue"].started_at == 10.0  # half each
    assert done["red"].starts == 2


def test_a_gang_waits_for_locality_then_for_a_rack_and_then_takes_what_it_accepts() -> None:
    """Two racks of two nodes; one GPU is free on a node of each rack, then a second one in the first rack."""
    lab = cluster(nodes=4, gpus=2, racks=2)
    pair = Job(
        "pair",
        100.0,
        tuple(Option(Shape("v100", 2, level), 1.0) for level in ("node", "rack", "cluster")),
        steps_total=10.0,
    )
    blockers = [arrival(f"b{index}", 0, 1, 100_000) for index in range(8)]

    def started(*ends: int) -> float:
        jobs = [with_truth(each.job, 90.0) if index in ends else each for index, each in enumerate(blockers)]
        recorder = simulate(lab, [*jobs, with_truth(pair, 10.0)], "yarn-cs", Cadence.ROUNDS, round_seconds=10.0)
        return next(record.started_at for record in recorder.records() if record.job_id == "pair")

    assert started(0, 1) == 100.0  # two GPUs of one node
    assert started(0, 2) == 130.0  # one rack: after three rounds
    assert started(0, 4) == 160.0  # two racks: after three more


@pytest.mark.parametrize("horizon", [0.0, 3250.0])
def test_the_gittins_index_is_the_best_ratio_of_chance_to_expected_gpu_time(horizon: float) -> None:
    """Against its definition, worked out by brute force on a sample of jobs spread evenly inside each bin."""
    policy = Gittins(samples=(100.0, 1000.0, 1000.0, 5000.0), horizon_gpu_seconds=horizon)
    even = (np.arange(20_000) + 0.5) / 20_000
    sizes = np.concatenate([100 * even, 100 + 900 * even, 100 + 900 * even, 1000 + 4000 * even])
    for age in (0.0, 50.0, 100.0, 700.0, 2000.0, 4500.0):
        alive = sizes[sizes >= age]
        horizons = [horizon] if horizon else np.geomspace(1.0, 5000.0, 400)
        best = max(np.mean(alive < age + d) / np.mean(np.minimum(alive - age, d)) for d in horizons)
        assert policy.index(np.array([age]))[0] == pytest.approx(best, rel=0.02)


def test_a_job_that_has_outlived_all_that_is_known_comes_last() -> None:
    index = Gittins(samples=(10.0, 20.0)).index(np.array([0.0, 15.0, 20.0, 99.0]))
    assert (index[:2] > 0).all()
    assert (index[2:] == 0).all()


def test_gittins_prefers_a_job_that_will_probably_end_soon() -> None:
    """Nine in ten jobs take 10 s: the newcomer comes before the one that has had its chance."""
    samples = (10.0,) * 9 + (1000.0,)
    done = run("gittins", ("long", 0, 1, 200), ("new", 25, 1, 10), samples=samples)
    assert (done["new"].started_at, done["new"].ended_at) == (30.0, 40.0)
    assert done["long"].ended_at == 210.0


def test_on_events_jobs_take_turns_once_a_round_however_short_their_restart_is() -> None:
    jobs = [arrival(name, 0, 1, 500, restart_seconds=5.0) for name in ("a", "b")]
    recorder = simulate(cluster(nodes=1, gpus=1), jobs, "las", Cadence.EVENTS, round_seconds=100.0)
    assert sum(record.starts for record in recorder.records()) <= 12  # 1,000 s of work in turns of 100 s, and restarts
