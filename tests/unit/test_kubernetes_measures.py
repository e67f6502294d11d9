"""The figures by which schedulers are compared on Kubernetes (bench/kubernetes_measures.py)."""

from __future__ import annotations

import sys
from math import inf
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))  # `bench` is not installed

from bench.kubernetes_measures import GangTimes, PodTimes, equal_shares, shares_received, standstill


def gang(*pods: PodTimes, size: int = 2, created: float = 0.0, completed: float = 20.0, tenant: str = "a") -> GangTimes:
    named = {str(number): pod for number, pod in enumerate(pods)}
    return GangTimes(tenant, size, 8, created, completed, named)


def done(bound: float, ended: float) -> PodTimes:
    return PodTimes(bound, inf, ended, has_succeeded=True)


def stopped(bound: float, at: float) -> PodTimes:
    return PodTimes(bound, at, at + 1.0)


@pytest.mark.parametrize(
    ("found", "partial", "all_bound", "starts"),
    [
        (gang(done(1, 19), done(1, 19)), [], 1, 1),
        (gang(done(1, 19), done(4, 19)), [(3, 24)], 4, 1),
        (gang(done(4, 15), done(4, 19)), [], 4, 1),  # one pod is done before the other
        (gang(stopped(1, 5), stopped(1, 5), done(8, 19), done(8, 19)), [], 1, 2),
        (gang(stopped(1, 5), done(2, 19), done(8, 19)), [(1, 8), (3, 24)], 2, 2),
    ],
)
def test_a_gang_is_partly_bound_while_some_of_its_pods_are_bound_and_others_are_not(
    found: GangTimes, partial: list[tuple[float, int]], all_bound: float, starts: int
) -> None:
    assert (found.partial(), found.all_bound(), found.starts()) == (partial, all_bound, starts)


def test_what_a_tenant_does_not_ask_for_is_divided_among_the_others() -> None:
    assert equal_shares({"a": 100, "b": 8, "c": 40}, 64) == {"b": 8, "a": 28, "c": 28}
    assert equal_shares({"a": 8, "b": 8}, 64) == {"a": 8, "b": 8}


def test_shares_count_only_while_more_is_asked_for_than_there_is() -> None:
    first = gang(done(0, 10), done(0, 10), completed=10)
    second = gang(done(10, 20), done(10, 20), tenant="b")
    assert shares_received([first, second], 16) == {"a": 2.0, "b": 0.0}
    assert shares_received([first, second], 32) == {}


def test_a_run_that_does_not_end_says_what_its_pods_hold() -> None:
    gangs = [gang(PodTimes(1), size=3, completed=inf), gang(completed=inf), gang(done(1, 2), size=1)]
    assert standstill(gangs, 9) == "did not end: 2 gangs are left, 1 of them partly bound, with 1 pods"
