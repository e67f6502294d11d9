"""Who sees an offer, and how loud it may bid: by app, or by tenant."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from horae.policies.themis.offer_filter import seated

RHO = np.array([1.0, 3.0, 2.0, 0.5, 2.5])
ALL = np.arange(5)


@pytest.mark.parametrize(
    ("f", "sees", "others"),
    [
        (0.0, [1, 4, 2, 0, 3], []),
        (0.5, [1, 4, 2], [0, 3]),
        (0.8, [1], [4, 2, 0, 3]),
        (1.0, [1], [4, 2, 0, 3]),
    ],
)
def test_the_worst_off_see_an_offer_and_at_least_one_does(f: float, sees: list[int], others: list[int]) -> None:
    first, second = seated(ALL, RHO, f)
    assert (first.tolist(), second.tolist()) == (sees, others)


def test_who_may_not_enter_takes_no_seat() -> None:
    first, second = seated(np.array([0, 2, 3]), RHO, 0.6)
    assert (first.tolist(), second.tolist()) == ([2, 0], [3])


def test_all_apps_of_a_tenant_sit_on_one_seat_and_are_as_badly_off_as_they_are_on_average() -> None:
    """Apps 0, 1 and 3 are of one tenant, at 1.5 on average; so of three tenants it is the last, with the worst app."""
    owner = np.array([7, 7, 4, 7, 5])
    first, second = seated(ALL, RHO, 0.4, owner)
    assert (first.tolist(), second.tolist()) == ([4, 2], [1, 0, 3])
    first, second = seated(ALL, RHO, 0.8, owner)
    assert (first.tolist(), second.tolist()) == ([4], [1, 2, 0, 3])


def test_ties_go_to_whoever_came_first() -> None:
    first, _ = seated(ALL, np.ones(5), 0.6)
    assert first.tolist() == [0, 1]


@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=8), st.floats(0, 1), st.integers(1, 4), st.data())
def test_to_come_as_several_apps_gives_a_tenant_no_seat_that_it_had_not_as_one(
    rho: list[float], f: float, parts: int, data: st.DataObject
) -> None:
    split = data.draw(st.integers(0, len(rho) - 1))
    owner = np.arange(len(rho))
    whole, _ = seated(owner, np.array(rho), f, owner)
    more = np.array([*rho, *[rho[split]] * parts])
    owners = np.append(owner, np.full(parts, split))
    several, _ = seated(np.arange(len(more)), more, f, owners)
    assert set(owners[several].tolist()) == set(whole.tolist())
