"""What holds for every forecast, whatever was reported."""

from __future__ import annotations

from math import inf, isfinite
from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from horae.engines.search.loss_forecast import POINTS_MIN, forecast, is_loss, steady_forecast
from horae.model.arrays import Floats

ANYTHING = st.floats(allow_nan=True, allow_infinity=True)
STEPS = st.floats(0.0, 1e9)
LOSSES = st.floats(1e-6, 1e6)
SOUND = st.lists(st.tuples(STEPS, LOSSES), min_size=POINTS_MIN, max_size=40)
REPORTS = st.lists(st.tuples(st.one_of(STEPS, ANYTHING), st.one_of(LOSSES, ANYTHING)), max_size=40)
TOTALS = st.floats(1.0, 1e9)


def of(points: list[tuple[float, float]]) -> tuple[Floats, Floats]:
    return np.array([step for step, _ in points]), np.array([loss for _, loss in points])


@given(REPORTS, TOTALS)
def test_a_forecast_is_a_sound_curve_with_its_end_within_a_band_that_is_not_below_0(
    points: list[tuple[float, float]], total: float
) -> None:
    steps, losses = of(points)
    found = forecast(steps, losses, total)
    usable = {step for step, loss in points if is_loss(loss) and 0 <= step < inf}
    if len(usable) < POINTS_MIN:
        assert found is None
    if found is None:
        return
    assert found.curve.is_sound
    assert found.curve.floor >= 0
    assert 0 <= found.low <= found.loss <= found.high
    assert isfinite(found.high)


@given(SOUND, TOTALS, st.randoms(use_true_random=False))
def test_the_order_of_reports_changes_nothing(points: list[tuple[float, float]], total: float, random: Random) -> None:
    shuffled = points.copy()
    random.shuffle(shuffled)
    for each in (forecast, steady_forecast):
        assert each(*of(points), total) == each(*of(shuffled), total) == each(*of(points), total)


@given(SOUND, TOTALS, st.sampled_from([2.0**-20, 0.5, 8.0, 2.0**20]), st.sampled_from([0.25, 4.0, 1024.0]))
def test_other_units_of_loss_and_of_steps_change_nothing_but_the_units(
    points: list[tuple[float, float]], total: float, unit: float, pace: float
) -> None:
    """Powers of two, so that rounding is the same."""
    steps, losses = of(points)
    found, scaled = forecast(steps, losses, total), forecast(steps * pace, losses * unit, total * pace)
    assert (found is None) == (scaled is None)
    if found is not None and scaled is not None:
        assert scaled[1:] == tuple(unit * each for each in found[1:])


@given(LOSSES, st.lists(st.integers(0, 1000), min_size=POINTS_MIN, max_size=40, unique=True), st.floats(1.0, 1e5))
def test_a_loss_that_never_changes_is_forecast_to_stay(loss: float, steps: list[int], total: float) -> None:
    found = forecast(np.array(steps, dtype=float), np.full(len(steps), loss), total)
    assert found is not None
    assert abs(found.loss - loss) <= 1e-3 * loss
