"""Policies that know run times in advance are marked, and only these."""

from __future__ import annotations

import numpy as np
import pytest

from horae.model.decisions import Grants
from horae.model.view import Policy
from horae.policies.example_views import ExampleView, cases
from horae.policies.registry import POLICIES, make_policy, uses_lengths

TOO_SMALL = ("allox", "gandiva-time-slicing")  # the example views do not show that these use lengths


def plain(policy: Policy, case: ExampleView) -> list[object]:
    decision = policy.decide(case.view())
    numbers = [part for part in decision if isinstance(part, np.ndarray)]
    if isinstance(decision, Grants):
        numbers.append(decision.rest.order)
    return [np.round(part.astype(np.float64), 9).tolist() for part in numbers]


@pytest.mark.parametrize("name", POLICIES)
def test_the_mark_says_whether_lengths_matter(name: str) -> None:
    policy = make_policy(name)
    matter = any(plain(policy, case) != plain(policy, case.with_other_lengths()) for case in cases(crowds=12))
    if name not in TOO_SMALL:
        assert matter == uses_lengths(name)
