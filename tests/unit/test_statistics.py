"""Paired differences against values worked out by hand."""

from __future__ import annotations

from math import inf, isnan, sqrt

import numpy as np
import pytest

from horae.reports.statistics import Difference, paired, paired_by_block, resampled


def test_student_on_four_seeds() -> None:
    # Differences 1, 2, 3, 6: mean 3, variance (4 + 1 + 0 + 9) / 3; the table has t(3) = 3.182446 at 97.5%.
    found = paired([10, 20, 30, 40], [11, 22, 33, 46])
    margin = 3.182446 * sqrt(14 / 3) / 2
    assert found == pytest.approx((3.0, 3 - margin, 3 + margin, 4), rel=1e-6)
    assert not found.is_clear


def test_less_confidence_is_a_smaller_interval() -> None:
    # t(3) = 1.637744 at 90%.
    found = paired([10, 20, 30, 40], [11, 22, 33, 46], confidence=0.8)
    assert found.low == pytest.approx(3 - 1.637744 * sqrt(14 / 3) / 2, rel=1e-6)
    assert found.is_clear


DEGENERATE: dict[str, tuple[list[float], list[float], Difference]] = {
    "one seed says nothing of the spread": ([5], [3], Difference(-2.0, -inf, inf, 1)),
    "no spread is no doubt": ([1, 2, 3], [3, 4, 5], Difference(2.0, 2.0, 2.0, 3)),
    "the same is no difference": ([1, 2], [1, 2], Difference(0.0, 0.0, 0.0, 2)),
}


@pytest.mark.parametrize(("baseline", "other", "want"), DEGENERATE.values(), ids=DEGENERATE)
def test_degenerate_samples(baseline: list[float], other: list[float], want: Difference) -> None:
    assert paired(baseline, other) == want


def test_nothing_has_no_difference() -> None:
    for found in (paired([], []), paired_by_block([], [], [], 86400.0, seed=0)):
        assert isnan(found.mean) and found.samples == 0 and not found.is_clear


def test_samples_of_different_length_are_no_pairs() -> None:
    with pytest.raises(ValueError, match="3 values cannot be paired with 2"):
        paired([1, 2, 3], [1, 2])


def test_blocks_are_days_and_only_those_with_jobs() -> None:
    # Two jobs on the first day, one on the third: (1 + 3 + 8) / 3 = 4.
    found = paired_by_block([0, 10, 200], [0, 0, 0], [1, 3, 8], block_seconds=100.0, seed=0)
    # Two blocks of (sum 4, 2 jobs) and (8, 1 job): drawn twice each, means are 2, 12 / 3 = 4 or 8.
    assert (found.mean, found.low, found.high, found.samples) == (4.0, 2.0, 8.0, 2)


def test_one_block_says_nothing_of_the_spread() -> None:
    assert paired_by_block([1, 2], [0, 0], [1, 3], 86400.0, seed=0) == Difference(2.0, -inf, inf, 1)


def test_blocks_that_agree_leave_no_doubt() -> None:
    assert paired_by_block([0, 100, 200], [1, 2, 3], [0, 1, 2], 100.0, seed=3) == Difference(-1.0, -1.0, -1.0, 3)


def test_the_same_seed_draws_the_same() -> None:
    random = np.random.default_rng(1)
    times, values = np.arange(0.0, 500 * 3600.0, 3600.0), random.normal(size=500)
    one, two, other = (paired_by_block(times, 0 * values, values, 86400.0, seed) for seed in (5, 5, 6))
    assert one == two != other


def test_many_independent_blocks_give_about_the_interval_of_student() -> None:
    values = np.random.default_rng(7).normal(1.0, 2.0, size=400)
    times = np.arange(0.0, 40000.0, 100.0)
    blocks, student = paired_by_block(times, 0 * values, values, 100.0, seed=0), paired(0 * values, values)
    assert blocks.mean == student.mean
    assert (blocks.low, blocks.high) == pytest.approx((student.low, student.high), abs=0.03)


def test_a_few_draws_give_students_interval_around_the_estimate_and_are_not_averaged() -> None:
    # Draws 1, 2, 3, 6 have a variance of 14 / 3; their spread is the standard error itself.
    margin = 3.182446 * sqrt(14 / 3)
    assert resampled(2.5, [1, 2, 3, 6]) == pytest.approx((2.5, 2.5 - margin, 2.5 + margin, 4), rel=1e-6)


def test_many_draws_give_their_percentiles() -> None:
    draws = np.random.default_rng(3).permutation(np.arange(0.0, 101.0))
    assert resampled(40.0, draws) == pytest.approx((40.0, 2.5, 97.5, 101))


def test_one_draw_says_nothing_of_the_spread() -> None:
    assert resampled(1.0, [2.0]) == Difference(1.0, -inf, inf, 1)
    assert resampled(1.0, []) == Difference(1.0, -inf, inf, 0)


def test_the_interval_of_a_bootstrap_covers_the_truth_about_as_often_as_it_says() -> None:
    """Days with mean 0: each trial has 30 of them, and 60 draws of these."""
    random, covered = np.random.default_rng(11), 0
    for _ in range(300):
        days = random.normal(size=30)
        draws = days[random.integers(30, size=(60, 30))].mean(axis=1)
        found = resampled(float(days.mean()), draws)
        covered += found.low <= 0 <= found.high
    assert 0.87 <= covered / 300 <= 0.98
