"""Policies that resize jobs, on cases that can be worked out by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest
from builders import cluster, simulate
from views import gang, view_of

from horae.model.cluster import NODE, Cluster, Node
from horae.model.decisions import Grants, Shares
from horae.model.errors import PolicyError
from horae.model.jobs import Arrival, Curve, Job, Truth
from horae.model.shapes import Option, Shape
from horae.model.view import View
from horae.policies import check_policy, make_policy
from horae.policies.elastic.goodput import rounded


def elastic(id: str, speeds: Mapping[int, float], steps: float | None, at: float = 0.0, **fields: Any) -> Job:
    """A job that accepts these counts of GPUs in one node, at these speeds; the first is its reference shape."""
    options = tuple(Option(Shape("v100", gpus, NODE), speed) for gpus, speed in speeds.items())
    return Job(id, at, options, steps_total=steps, **fields)


def decide(policy: str, view: View, **options: object) -> Grants:
    decision = make_policy(policy, options).decide(view)
    assert isinstance(decision, Grants)
    return decision


def sizes(grants: Grants, jobs: Sequence[Job]) -> dict[str, int]:
    """By job: the GPUs of the first shape that it was granted, in the order of the grants."""
    found: dict[str, int] = {}
    for row, option in zip(grants.row.tolist(), grants.option.tolist(), strict=True):
        found.setdefault(jobs[row].id, jobs[row].options[option].shape.gpus)
    return found


# Jobs that are resized

ELASTIC: list[tuple[str, dict[str, Any]]] = [
    ("optimus", {}),
    ("slaq", {}),
    ("afs", {}),
    ("goodput", {"left_out": 2.0}),
    ("goodput", {"variant": "pollux"}),
]
LINEAR = {1: 1.0, 2: 2.0, 3: 3.0, 4: 4.0}


def granted(
    policy: str, jobs: Sequence[Job], gpus: int, options: Mapping[str, object] | None = None, **view: Any
) -> dict[str, int]:
    """By job: the GPUs of the first shape that it is granted on one node of so many GPUs."""
    seen = view_of(cluster(nodes=1, gpus=gpus), jobs, **view)
    return sizes(decide(policy, seen, **(options or {})), jobs)


@pytest.mark.parametrize(("name", "options"), ELASTIC)
@pytest.mark.parametrize("seed", range(2))
def test_policies_that_resize_keep_the_rules(name: str, options: dict[str, Any], seed: int) -> None:
    check_policy(make_policy(name, options), seed)


@pytest.mark.parametrize(("name", "options"), ELASTIC)
def test_whoever_runs_grows_into_gpus_that_a_job_leaves_although_nobody_waits(
    name: str, options: dict[str, Any]
) -> None:
    """Both run on 2 of 4 GPUs; the short one ends at 600 s, and the long one does what is left, 1,200 steps, on 4."""
    jobs = [elastic("short", {2: 2.0}, 1200.0), elastic("long", {2: 2.0, 4: 4.0}, 2400.0)]
    arrivals = [Arrival(job, Truth(job.steps_total or 0.0, job.options)) for job in jobs]
    ended = {
        record.job_id: record.ended_at
        for record in simulate(cluster(nodes=1, gpus=4), arrivals, name, round_seconds=10.0, **options).records()
    }
    assert ended == {"short": pytest.approx(600.0), "long": pytest.approx(900.0)}


@pytest.mark.parametrize(("name", "options"), ELASTIC)
def test_who_is_under_a_lease_keeps_its_size_and_others_share_what_is_left(name: str, options: dict[str, Any]) -> None:
    jobs = [elastic("leased", LINEAR, 1000.0), elastic("new", LINEAR, 1000.0)]
    seen = granted(name, jobs, 4, options, running={"leased": 2}, columns={"lease_until": {"leased": 50.0}})
    assert seen == {"new": 1}


def test_optimus_gives_gpus_to_who_saves_most_time_with_each() -> None:
    """For each GPU: a saves 1000 - 556 = 444 s by a second one and (556 - 333) / 2 = 111 s by two more; b saves
    1000 - 833 = 167 s by a second one, a tenth of that where it has 100 steps left."""
    a = elastic("a", {1: 1.0, 2: 1.8, 4: 3.0}, 1000.0)
    assert granted("optimus", [a, elastic("b", {1: 1.0, 2: 1.2}, 1000.0)], 5) == {"a": 2, "b": 2}
    assert granted("optimus", [a, elastic("b", {1: 1.0, 2: 1.2}, 100.0)], 5) == {"b": 1, "a": 4}


def test_optimus_takes_a_job_with_a_curve_to_be_done_when_its_loss_has_fallen() -> None:
    """0.05 = 1 / (0.01 k + 1) after 1,900 steps, which is less than the 3,000 of the other."""
    plain = elastic("plain", {1: 1.0, 2: 2.0}, 3000.0)
    without, with_curve = (elastic("curved", {1: 1.0, 2: 2.0}, 9000.0, curve=c) for c in (None, Curve(0.01, 1.0, 0.2)))
    assert granted("optimus", [without, plain], 3) == {"plain": 1, "curved": 2}
    assert granted("optimus", [with_curve, plain], 3) == {"curved": 1, "plain": 2}


def test_a_job_that_runs_is_resized_only_if_that_is_worth_its_restart() -> None:
    job = elastic("job", {1: 1.0, 2: 2.0}, 1000.0, restart_seconds=600.0)
    assert granted("optimus", [job], 2, running={"job": 0}) == {"job": 1}  # it would save 500 s
    assert granted("optimus", [job], 2, {"damping": 0.5}, running={"job": 0}) == {"job": 2}
    assert granted("afs", [job], 2, running={"job": 0}) == {"job": 1}
    assert granted("afs", [job], 2) == {"job": 2}  # it does not run yet, and has nothing to lose


def test_slaq_gives_gpus_to_the_job_whose_loss_falls_and_not_to_the_one_that_has_converged() -> None:
    jobs = [elastic(name, LINEAR, 50_000.0, curve=Curve(0.01, 1.0, 0.0)) for name in ("old", "new")]
    assert granted("slaq", jobs, 4, columns={"steps_base": {"old": 10_000.0}}) == {"new": 3, "old": 1}


def test_slaq_takes_the_loss_of_a_job_without_a_curve_to_fall_with_the_part_of_its_steps() -> None:
    """In an epoch of 300 s on one GPU 1/(1 + 0) - 1/(1 + 0.1) against 1/(1 + 0) - 1/(1 + 1)."""
    jobs = [elastic("long", LINEAR, 3000.0), elastic("short", {1: 1.0}, 300.0)]
    assert granted("slaq", jobs, 1) == {"short": 1}
    assert granted("slaq", jobs, 3) == {"short": 1, "long": 2}


@pytest.mark.parametrize(
    ("speeds", "want"),
    [
        # Linear: the first to the shorter; its second too, for 1 is not more than 1; then 1 > 1/2: the longer; then
        # 1/2 is not more than 1/2: the shorter.
        (LINEAR, {"short": 3, "long": 1}),
        # 1 > 0.5: the longer has one; 1/2 is not more than 0.5; then the shorter is full.
        ({1: 1.0, 2: 1.5}, {"short": 2, "long": 2}),
        # 1 > 0.2, 1/2 > 0.2, 1/3 > 0.2: the longer has three.
        ({1: 1.0, 2: 1.2}, {"short": 1, "long": 3}),
    ],
)
def test_afs_plays_the_tournament_of_the_paper(speeds: dict[int, float], want: dict[str, int]) -> None:
    assert granted("afs", [elastic("short", speeds, 100.0), elastic("long", LINEAR, 1000.0)], 4) == want


def test_afs_takes_larger_steps_for_each_gpu_that_they_add() -> None:
    """The shorter has 2 of 4; two more would add 1/4 of its speed each, and one GPU all of that of the longer."""
    jobs = [elastic("short", {2: 2.0, 4: 3.0}, 100.0), elastic("long", {1: 1.0}, 1000.0)]
    assert granted("afs", jobs, 4) == {"short": 2, "long": 1}


STEEP, FLAT = {1: 1.0, 2: 2.0, 4: 4.0}, {1: 1.0, 2: 1.1, 4: 1.2}


def test_goodput_as_sia_has_it_is_a_sum_of_powers() -> None:
    """The steep job adds 1, 0.71 or 0.5 to the sum, the flat one 1, 0.95 or 0.91, and 1.1 without GPUs: 4 + 0 makes
    1.6, less than the 1.66 of 2 + 2. Where to be left out costs 2, nobody is."""
    jobs = [elastic("steep", STEEP, 1000.0), elastic("flat", FLAT, 1000.0)]
    assert granted("goodput", jobs, 4) == {"steep": 4}
    assert granted("goodput", jobs, 4, {"left_out": 2}) == {"steep": 2, "flat": 2}


def test_goodput_as_sia_has_it_moves_a_young_job_only_for_a_large_gain() -> None:
    """At an age of 10 s a restart of 30 s leaves 1/4: 2 GPUs are worth half of what one is worth."""
    job = elastic("job", STEEP, 1000.0, restart_seconds=30.0)
    assert granted("goodput", [job], 2, running={"job": 0}, now=10.0) == {"job": 1}
    assert granted("goodput", [job], 2, running={"job": 0}, now=1000.0) == {"job": 2}


def test_goodput_as_sia_has_it_sends_jobs_to_the_gpu_type_that_they_gain_most_from() -> None:
    def job(id: str, fast: float) -> Job:
        options = (Option(Shape("v100", 1, NODE), fast), Option(Shape("k80", 1, NODE), 1.0))
        return Job(id, 0.0, options, steps_total=100.0)

    jobs = [job("indifferent", 1.2), job("hungry", 4.0)]
    view = view_of(Cluster("two types", (Node("a", "v100", 1), Node("b", "k80", 1))), jobs)
    grants = decide("goodput", view)
    assert dict(zip(grants.row.tolist(), grants.option.tolist(), strict=True)) == {0: 1, 1: 0}


@pytest.mark.parametrize("seed", range(8))
def test_no_choice_of_sizes_has_a_better_sum_than_that_of_goodput(seed: int) -> None:
    random = np.random.default_rng(seed)
    jobs = [elastic(f"j{i}", {gpus: gpus ** random.uniform(0.3, 1.0) for gpus in (1, 2, 4)}, 100.0) for i in range(4)]
    adds = [
        {0: 1.1, **{o.shape.gpus: (o.steps_per_second / job.options[0].steps_per_second) ** -0.5 for o in job.options}}
        for job in jobs
    ]
    least = min(
        sum(each[count] for each, count in zip(adds, counts, strict=True))
        for counts in product((0, 1, 2, 4), repeat=4)
        if sum(counts) <= 7
    )
    chosen = granted("goodput", jobs, 7)
    assert sum(adds[i][chosen.get(f"j{i}", 0)] for i in range(4)) == pytest.approx(least)


def test_a_relaxed_answer_is_rounded_to_what_has_room() -> None:
    """The first job is whole; the second is torn between 4 and 1 GPUs, of which 3 are left."""
    job, kind, gpus = np.array([0, 1, 1]), np.zeros(3, dtype=np.int64), np.array([1, 4, 1])
    chosen = rounded(job, kind, gpus, np.array([0.5, 0.6, 0.1]), np.array([1.0, 0.6, 0.4]), np.array([4.0]))
    assert chosen.tolist() == [True, False, True]


def test_goodput_as_pollux_has_it_is_a_harmonic_mean_of_speed_ups() -> None:
    """Equal shares are 2 GPUs each. The steep job's slowness falls from 2 to 1 to 1/2, the flat one's from 1.1 to 1."""
    jobs = [elastic("steep", STEEP, 1000.0), elastic("flat", FLAT, 1000.0)]
    assert granted("goodput", jobs, 4, {"variant": "pollux"}) == {"steep": 2, "flat": 2}
    assert granted("goodput", jobs, 5, {"variant": "pollux"}) == {"steep": 4, "flat": 1}


# Users that trade

TWO_TYPES = Cluster("two types", (Node("a", "v100", 6), Node("b", "k80", 6)))


def shares_of(speed_ups: Mapping[str, float], jobs_each: int = 12, **options: Any) -> dict[str, list[float]]:
    """By user: the GPUs of the fast and of the slow type that its jobs of one GPU have together, of 6 each."""
    jobs = [
        Job(
            f"{user}{number}",
            0.0,
            (Option(Shape("v100", 1, NODE), speed_up), Option(Shape("k80", 1, NODE), 1.0)),
            tenant=user,
        )
        for user, speed_up in speed_ups.items()
        for number in range(jobs_each)
    ]
    weights = options.pop("weights", None)
    shares = make_policy("gandiva-fair", options).decide(view_of(TWO_TYPES, jobs, weights=weights))
    assert isinstance(shares, Shares)
    tenant = np.array([job.tenant for job in jobs])
    return {user: [round(part, 4) for part in shares.fraction[tenant == user].sum(axis=0)] for user in speed_ups}


def test_users_have_gpus_of_each_type_by_their_tickets() -> None:
    assert shares_of({"a": 4.0, "b": 1.2}, trading=False) == {"a": [3, 3], "b": [3, 3]}
    assert shares_of({"a": 4.0, "b": 1.2}, trading=False, weights={"a": 2.0}) == {"a": [4, 4], "b": [2, 2]}


def test_the_user_who_gains_most_buys_fast_gpus_at_the_second_highest_speed_up() -> None:
    """Of two, that is the seller's: 3 slow GPUs buy 3 / 1.2 = 2.5 fast ones. Of three, both who gain pay 2 for 1, and
    the third has 6 slow GPUs in the end, each worth more to it than what it gave."""
    assert shares_of({"a": 4.0, "b": 1.2}) == {"a": [5.5, 0], "b": [0.5, 6]}
    assert shares_of({"a": 4.0, "b": 2.0, "c": 1.2}) == {"a": [3, 0], "b": [3, 0], "c": [0, 6]}


def test_a_user_keeps_fast_gpus_for_jobs_that_run_nowhere_else() -> None:
    """Half of what the seller's jobs want is for one that runs on fast GPUs only: of its 3 it sells 1.5."""
    fast, slow = Shape("v100", 1, NODE), Shape("k80", 1, NODE)
    buyers = [Job(f"b{i}", 0.0, (Option(fast, 4.0), Option(slow, 1.0)), tenant="buyer") for i in range(12)]
    sellers = [Job(f"s{i}", 0.0, (Option(fast, 1.2), Option(slow, 1.0)), tenant="seller") for i in range(6)]
    fixed = [Job(f"f{i}", 0.0, (Option(fast, 1.0),), tenant="seller") for i in range(6)]
    shares = make_policy("gandiva-fair").decide(view_of(TWO_TYPES, [*buyers, *sellers, *fixed]))
    assert isinstance(shares, Shares)
    assert shares.fraction[:12, 0].sum() == pytest.approx(4.5)
    assert (shares.fraction[18:, 0] > 0).all()


def test_a_user_without_jobs_enough_leaves_gpus_to_the_others() -> None:
    few = Job("one", 0.0, (Option(Shape("v100", 1, NODE), 1.0),), tenant="few")
    many = [Job(f"m{i}", 0.0, (Option(Shape("v100", 1, NODE), 1.0),), tenant="many") for i in range(9)]
    shares = make_policy("gandiva-fair").decide(view_of(cluster(nodes=1, gpus=4), [few, *many]))
    assert isinstance(shares, Shares)
    assert shares.fraction[:, 0].tolist() == pytest.approx([1.0] + [1 / 3] * 9)


def test_jobs_of_a_user_have_equal_parts_of_gpu_time_whatever_their_gangs() -> None:
    jobs = [gang("one", "", 1, 100), gang("two", "", 2, 100), gang("other", "", 2, 100)]
    shares = make_policy("gandiva-fair").decide(view_of(cluster(nodes=1, gpus=2), jobs))
    assert isinstance(shares, Shares)
    assert shares.fraction[:, 0].tolist() == pytest.approx([2 / 3, 1 / 3, 1 / 3])


# Windows of rounds


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [
        ("optimus", "interval_seconds", 0),
        ("optimus", "convergence", 1),
        ("optimus", "damping", -1),
        ("slaq", "epoch_seconds", 0),
        ("slaq", "damping", -1),
        ("afs", "damping", -1),
        ("goodput", "variant", "none"),
        ("goodput", "power", 1),
        ("goodput", "left_out", 1),
        ("goodput", "interval_seconds", 0),
        ("shockwave", "rounds", 0),
        ("shockwave", "interval_seconds", 0),
        ("shockwave", "makespan_weight", -1),
        ("shockwave", "rho_max", 0),
        ("shockwave", "fairness_power", -1),
    ],
)
def test_an_option_that_makes_no_sense_is_told(name: str, option: str, value: object) -> None:
    with pytest.raises(PolicyError) as raised:
        make_policy(name, {option: value})
    assert raised.value.remedy
