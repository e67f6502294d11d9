"""The baselines of Themis' evaluation serve apps gang by gang, on cases that can be worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

import numpy as np
import pytest
from builders import arrival, cluster, simulate
from views import gang, view_of

from horae.model.cluster import CLUSTER, NODE, Cluster
from horae.model.decisions import Grants
from horae.model.errors import PolicyError
from horae.model.jobs import Curve, Job
from horae.model.view import View
from horae.policies import check_policy, make_policy

BASELINES = ("themis-tiresias", "themis-optimus", "themis-gandiva", "themis-slaq")


def decide(policy: str, view: View, **options: object) -> Grants:
    decision = make_policy(policy, options).decide(view)
    assert isinstance(decision, Grants)
    return decision


def winners(policy: str, jobs: Sequence[Job], machines: Cluster, **view: Any) -> list[str]:
    grants = decide(policy, view_of(machines, jobs, **view))
    return list(dict.fromkeys(jobs[row].id for row in grants.row.tolist()))


@pytest.mark.parametrize("name", BASELINES)
@pytest.mark.parametrize("seed", range(3))
def test_the_baselines_keep_the_rules(name: str, seed: int) -> None:
    check_policy(make_policy(name), seed)


@pytest.mark.parametrize("name", BASELINES)
def test_all_jobs_end_and_leases_are_kept(name: str) -> None:
    jobs = [arrival(f"j{i}", 5.0 * i, 1 + i % 3, 150.0 + i, app=f"a{i % 4}") for i in range(20)]
    run = simulate(cluster(nodes=2, gpus=4), jobs, name, lease_seconds=60.0)
    records = run.records()
    assert len(records) == 20
    # No job is stopped within a lease of 60 s, so that a job of less than 180 s starts three times at most.
    assert max(record.starts for record in records) <= 3


@pytest.mark.parametrize("name", BASELINES)
def test_winners_and_the_rest_have_leases_and_every_job_is_ranked(name: str) -> None:
    jobs = [gang(f"j{i}", f"a{i % 2}", 2, 100) for i in range(4)]
    grants = decide(name, view_of(cluster(nodes=2, gpus=2), jobs), lease_seconds=60)
    assert len(grants.row) == 2
    assert (grants.lease_seconds == 60.0).all()
    assert grants.rest_lease_seconds == 60.0
    assert sorted(grants.rest.order.tolist()) == [0, 1, 2, 3]


def test_tiresias_serves_the_app_with_the_least_service_first() -> None:
    jobs = [gang("a0", "a", 2, 100), gang("a1", "a", 2, 300), gang("b0", "b", 2, 100), gang("b1", "b", 2, 50)]
    node = cluster(nodes=1, gpus=6)
    # Without any service the app that came first, with its longest job before the others.
    assert winners("themis-tiresias", jobs, node) == ["a1", "a0", "b0"]
    assert winners("themis-tiresias", jobs, node, columns={"service_base": {"a0": 10.0}}) == ["b0", "b1", "a1"]
    assert winners("themis-tiresias", jobs, node, columns={"service_base": {"a0": 10.0, "b0": 9.0, "b1": 9.0}}) == [
        "a1", "a0", "b0"
    ]  # fmt: skip


def test_tiresias_counts_what_ended_jobs_of_an_app_took() -> None:
    jobs = [gang("a0", "a", 2, 100), gang("b0", "b", 2, 100)]
    view = view_of(cluster(nodes=1, gpus=2), jobs)
    had = view.app._replace(gpu_seconds=view.app.gpu_seconds + np.array([50.0, 0.0]))  # a job of app a has ended
    grants = decide("themis-tiresias", view._replace(app=had))
    assert [jobs[row].id for row in grants.row.tolist()] == ["b0"]


def test_optimus_serves_the_app_that_gains_most_per_gpu() -> None:
    """Work: a 800, b 300 GPU-seconds. First one gang each, a before b: 400 and 150 for each GPU. Then a gains
    800 / (2 x 4) = 100 and b 300 / (2 x 4) = 37.5 with a second gang, and a 800 / (4 x 6) = 33.3 with its third."""
    jobs = [gang(f"a{i}", "a", 2, 100) for i in range(4)] + [gang("b0", "b", 2, 100), gang("b1", "b", 2, 50)]
    assert winners("themis-optimus", jobs, cluster(nodes=5, gpus=2)) == ["a0", "b0", "a1", "b1", "a2"]


def test_a_job_under_a_lease_keeps_its_gpus_and_they_count_as_those_of_its_app() -> None:
    jobs = [gang("a0", "a", 2, 1000), gang("a1", "a", 2, 1000), gang("b0", "b", 2, 10)]
    two = cluster(nodes=2, gpus=2)
    # A lease that has ended is contested; the app with more work to do comes first, and goes on with what runs.
    assert winners("themis-optimus", jobs, two, running={"a1": 0}) == ["a1", "b0"]
    # One that has not ended is not offered, and app a has GPUs already.
    leased = {"lease_until": {"a1": 100.0}}
    assert winners("themis-optimus", jobs, two, running={"a1": 0}, columns=leased) == ["b0"]


def test_slaq_serves_the_job_whose_loss_falls_most_in_a_lease() -> None:
    """In 1,200 steps: 1 - 1/(1 + 12) = 0.92; 1 - 1/(1 + 0.5) = 0.33 without a curve; 1 - 1/(1 + 0.12) = 0.11."""
    jobs = [
        gang("slow", "a", 1, 10_000, curve=Curve(0.0001, 1.0, 0.3)),
        gang("fast", "a", 1, 10_000, curve=Curve(0.01, 1.0, 0.3)),
        gang("unknown", "b", 1, 2400),
    ]
    assert winners("themis-slaq", jobs, cluster(nodes=1, gpus=3)) == ["fast", "unknown", "slow"]
    assert winners("themis-slaq", jobs, cluster(nodes=1, gpus=1), running={"slow": 0}) == ["fast"]


def test_gandiva_takes_what_fits_most_tightly_and_then_the_largest() -> None:
    """Two nodes of 4: the two gangs of 3 have a node each and leave a GPU on each; the single fits in a node, and what
    is left for the pair, which would take it across nodes, is one GPU."""
    jobs = [
        gang("pair", "a", 2, 100, NODE, CLUSTER),
        gang("single", "b", 1, 100),
        gang("three", "c", 3, 100),
        gang("other", "d", 3, 100),
    ]
    assert winners("themis-gandiva", jobs, cluster(nodes=2, gpus=4)) == ["three", "other", "single"]
    assert winners("themis-gandiva", [jobs[0], *jobs[2:]], cluster(nodes=2, gpus=4)) == ["three", "other", "pair"]


def test_gandiva_prefers_a_running_job_among_equals() -> None:
    jobs = [gang("first", "a", 2, 100), gang("runs", "b", 2, 100)]
    assert winners("themis-gandiva", jobs, cluster(nodes=1, gpus=2), running={"runs": 0}) == ["runs"]


@pytest.mark.parametrize("name", BASELINES)
@pytest.mark.parametrize("seconds", [0.0, -1.0, inf])
def test_a_lease_that_makes_no_sense_is_rejected_with_a_remedy(name: str, seconds: float) -> None:
    with pytest.raises(PolicyError) as raised:
        make_policy(name, {"lease_seconds": seconds})
    assert raised.value.field == "lease_seconds"
    assert raised.value.remedy
