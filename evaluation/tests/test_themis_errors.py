"""Themis with agents that are wrong, or lie, about the work left of their apps."""

from __future__ import annotations

from math import inf

import pytest
from builders import arrival, cluster, handle, job, simulate
from command_line import horae

from horae.model.decisions import Grants
from horae.model.errors import PolicyError
from horae.model.events import JobSubmitted, Tick
from horae.model.jobs import Arrival
from horae.model.setup import PoolSpec, Setup
from horae.policies import check_policy, make_policy
from horae.scheduler import Scheduler

NAME = "themis-with-errors"


def first_leases(seconds_by_job: dict[str, float], **options: object) -> dict[str, float]:
    """By job that wins in the first auction for one GPU: the seconds of its lease. Every job is an app."""
    pool = PoolSpec("all", NAME, {"lease_seconds": 1200.0, **options})
    scheduler = Scheduler(Setup(cluster(gpus=1), (pool,)))
    for name, seconds in seconds_by_job.items():
        handle(scheduler, JobSubmitted(0.0, job(name, seconds=seconds)))
    (first,) = handle(scheduler, Tick(0.0)).rounds
    assert isinstance(first.decision, Grants)
    lease = first.decision.lease_seconds.tolist()
    return {first.job_ids[row]: each for row, each in zip(first.decision.row.tolist(), lease, strict=True)}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("options", [{}, {"noise": 0.3}, {"liar": 0, "overstates": 1.0}])
def test_the_policy_keeps_the_rules(seed: int, options: dict[str, object]) -> None:
    check_policy(make_policy(NAME, options), seed)


def test_a_liar_can_have_a_better_rho_for_one_round_so_that_is_not_promised() -> None:
    """The shorter job would win. An app that understates its work left wins instead, pays, and is still better off.

    Its true rho, as agents compute it: one lease with what it has of it, and the rest on its share of half a GPU.
    """
    apps = {"first": 2000.0, "second": 1500.0}
    honest = first_leases(apps, f=0.0).get("first", 0.0)
    lied = first_leases(apps, f=0.0, liar=0, overstates=-0.9).get("first", 0.0)
    assert honest == 0.0
    assert 0.0 < lied < 1200.0
    rho_honest, rho_lied = ((1200.0 + 2 * (2000.0 - lease)) / (2 * 2000.0) for lease in (honest, lied))
    assert rho_lied < rho_honest


def test_no_app_receives_an_offer_by_a_lie_unless_agents_are_polled() -> None:
    """The shorter app loses more of its time by waiting. With twice as much left, the long one would be worse off."""
    apps = {"long": 4000.0, "short": 3000.0}
    lie = {"liar": 0, "overstates": 1.0}
    assert list(first_leases(apps, f=1.0)) == ["short"]
    assert list(first_leases(apps, f=1.0, **lie)) == ["short"]
    assert list(first_leases(apps, f=1.0, **lie, poll="said")) == ["long"]


def test_without_errors_it_decides_as_themis_does() -> None:
    jobs = [_arrival(number) for number in range(12)]
    runs = [simulate(cluster(nodes=2, gpus=4), jobs, name, lease_seconds=60.0) for name in ("themis", NAME)]
    assert runs[0].records() == runs[1].records()


def test_with_noise_it_decides_otherwise() -> None:
    jobs = [_arrival(number) for number in range(12)]
    runs = [simulate(cluster(nodes=2, gpus=4), jobs, NAME, lease_seconds=60.0, noise=noise) for noise in (0.0, 0.9)]
    assert runs[0].records() != runs[1].records()


def test_its_description_has_the_options_of_themis_too() -> None:
    shown = horae("policy", "show", NAME).out
    assert "  f: 0.8  (the worst (1 - f) of the apps receive an offer)" in shown
    assert "  overstates: 0  (by this fraction)" in shown


@pytest.mark.parametrize(
    ("option", "value"), [("noise", 1.0), ("noise", -0.1), ("overstates", -1.0), ("overstates", inf), ("f", 1.5)]
)
def test_an_option_that_makes_no_sense_is_rejected_with_a_remedy(option: str, value: float) -> None:
    with pytest.raises(PolicyError) as raised:
        make_policy(NAME, {option: value})
    assert raised.value.field == option
    assert raised.value.remedy


def _arrival(number: int) -> Arrival:
    return arrival(f"j{number}", 5.0 * number, 1 + number % 3, 150.0 + 40.0 * number, app=f"a{number % 4}")
