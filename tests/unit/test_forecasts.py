"""Forecasts of losses: how near they come, how often the band holds the truth, and what is refused."""

from __future__ import annotations

from math import inf, nan

import numpy as np
import pytest
from scipy.optimize import least_squares

from horae.engines.search.loss_forecast import POINTS_MIN, Forecast, forecast, steady_forecast
from horae.model.arrays import Floats
from horae.model.errors import JobError
from horae.model.jobs import Curve
from horae.model.searches import synthetic_curve

TOTAL = 1000.0


def loss(curve: Curve, steps: Floats) -> Floats:
    return np.asarray(1 / (curve.rate * steps + curve.start) + curve.floor)


def end(curve: Curve, steps: float = TOTAL) -> float:
    return float(loss(curve, np.array(steps)))


def reported(seed: int, part: float, noise: float = 0.01) -> tuple[Curve, Floats, Floats]:
    """A curve as searches draw it, and what is reported of this part of it: every hundredth, with noise."""
    curve = synthetic_curve(f"curve {seed}", TOTAL)
    steps = np.arange(1, round(100 * part) + 1) * TOTAL / 100
    uneven = 1 + noise * np.random.default_rng(seed).uniform(-1, 1, len(steps))
    return curve, steps, loss(curve, steps) * uneven


def made(steps: Floats, losses: Floats, total: float = TOTAL, confidence: float = 0.9) -> Forecast:
    found = forecast(steps, losses, total, confidence)
    assert found is not None
    return found


def squares(curve: Curve, steps: Floats, losses: Floats) -> float:
    return float((((loss(curve, steps) - losses) / losses) ** 2).sum())


@pytest.mark.parametrize(
    "curve",
    [
        Curve(0.01, 0.5, 0.6),
        Curve(0.1, 0.4, 0.0),  # no floor
        Curve(0.0001, 1.0, 0.3),  # hardly bent: a tenth of the way
        Curve(0.02, 1e-4, 0.5),  # all its height before the first report
        Curve(1e-5, 2e-3, 40.0),  # a loss in other units
    ],
)
def test_without_noise_the_end_is_found_from_a_tenth_of_the_steps(curve: Curve) -> None:
    steps = np.arange(1, 11) * TOTAL / 100
    found = made(steps, loss(curve, steps))
    assert found.loss == pytest.approx(end(curve), rel=2e-3)
    assert found.low <= end(curve) * (1 + 1e-6)
    assert found.high >= end(curve) * (1 - 1e-6)
    assert end(found.curve) == pytest.approx(found.loss)


def test_without_noise_the_coefficients_are_found() -> None:
    curve, steps = Curve(0.01, 0.5, 0.6), np.arange(1, 51) * TOTAL / 100
    assert made(steps, loss(curve, steps)).curve == pytest.approx(curve, rel=1e-2)


@pytest.mark.parametrize(("part", "tolerance"), [(0.1, 0.2), (0.2, 0.05), (0.5, 0.01), (1.0, 0.004)])
def test_with_noise_of_1_percent_nineteen_ends_of_twenty_are_this_near(part: float, tolerance: float) -> None:
    errors = []
    for seed in range(200):
        curve, steps, losses = reported(seed, part)
        errors.append(abs(made(steps, losses).loss / end(curve) - 1))
    assert np.quantile(errors, 0.95) <= tolerance


@pytest.mark.parametrize("part", [0.1, 0.5])
def test_a_band_of_90_percent_holds_four_of_five_ends_and_more_and_is_not_wide_for_that(part: float) -> None:
    held, width = [], []
    for seed in range(200):
        curve, steps, losses = reported(seed, part)
        found = made(steps, losses)
        held.append(found.low <= end(curve) <= found.high)
        width.append((found.high - found.low) / end(curve))
    assert 0.8 <= np.mean(held) <= 0.98
    assert np.median(width) <= (0.25 if part < 0.5 else 0.012)


def test_a_band_of_more_confidence_is_wider_and_more_reports_make_it_narrower() -> None:
    _, steps, losses = reported(3, 0.5)
    width = {confidence: _width(made(steps, losses, confidence=confidence)) for confidence in (0.5, 0.9, 0.99)}
    assert width[0.5] < width[0.9] < width[0.99]
    assert _width(made(steps[:15], losses[:15])) > width[0.9]


def _width(found: Forecast) -> float:
    return found.high - found.low


@pytest.mark.parametrize("seed", range(8))
def test_no_solver_finds_a_better_fit(seed: int) -> None:
    _, steps, losses = reported(seed, 0.3)
    found = made(steps, losses)

    def residuals(coefficients: Floats) -> Floats:
        return (loss(Curve(*(coefficients / [TOTAL, 1, 1])), steps) - losses) / losses

    solved = [
        least_squares(residuals, [rate, start, floor], bounds=([0, 1e-9, 0], inf))
        for rate in (1.0, 30.0) for start in (0.1, 1.0) for floor in (0.1, 0.8)
    ]  # fmt: skip
    assert squares(found.curve, steps, losses) <= 2 * min(each.cost for each in solved) * (1 + 1e-3)


@pytest.mark.parametrize(("seed", "part"), [(0, 0.1), (1, 0.1), (2, 0.3), (3, 0.05), (4, 0.7)])
def test_the_band_is_that_of_all_curves_that_explain_the_reports(seed: int, part: float) -> None:
    """Curves drawn at random, each scaled so that it fits as well as it can: none leaves the band, some come near."""
    _, steps, losses = reported(seed, part)
    found = made(steps, losses)
    freedom = len(steps) - 3
    student = {2: 2.920, 7: 1.895, 27: 1.703, 67: 1.668}[freedom]  # two-sided, 90%
    most = squares(found.curve, steps, losses) * (1 + student**2 / freedom)
    draw = np.random.default_rng(seed)
    near = 5.0 * (1 - part) ** 4  # the more is known, the nearer are those that do
    bend = found.curve.rate / found.curve.start * np.exp(near * draw.uniform(-1, 1, 100_000))
    floor = np.maximum(found.curve.floor + near * found.loss * draw.uniform(-1, 1, len(bend)), 0.0)
    shape = 1 / (1 + bend[:, None] * steps)
    target = 1 - floor[:, None] / losses
    shape /= losses
    height = np.maximum((shape * target).sum(axis=1) / (shape * shape).sum(axis=1), 0.0)
    rest = ((height[:, None] * shape - target) ** 2).sum(axis=1)
    ends = (height / (1 + bend * TOTAL) + floor)[rest <= most]
    assert len(ends) > 20
    slack = 0.01 * _width(found)
    assert found.low - slack <= ends.min()
    assert ends.max() <= found.high + slack
    assert ends.max() - ends.min() >= 0.75 * _width(found)


def test_losses_that_do_not_change_are_forecast_to_stay() -> None:
    found = made(np.arange(1.0, 11.0) * 50, np.full(10, 0.7))
    assert (found.low, found.loss, found.high) == pytest.approx((0.7, 0.7, 0.7), rel=1e-3)
    assert end(found.curve) == pytest.approx(0.7)


def test_losses_that_rise_are_forecast_to_stay_where_they_are_on_average() -> None:
    found = made(np.arange(1.0, 11.0), np.linspace(0.7, 0.8, 10), total=10.0)
    assert found.curve.rate == 0.0
    assert 0.7 < found.low <= found.loss <= found.high < 0.8
    assert found.curve.is_sound


def test_what_is_no_loss_and_what_is_told_twice_changes_nothing() -> None:
    _, steps, losses = reported(5, 0.2)
    want = forecast(steps, losses, TOTAL)
    bad = [(500.0, nan), (300.0, -1.0), (1.0, 0.0), (2.0, inf), (nan, 0.5), (-5.0, 0.5), (inf, 0.5), (3.0, 1e200)]
    more = [*bad, *zip(steps[:3].tolist(), losses[:3].tolist(), strict=True)]
    told = np.append(steps, [each for each, _ in more]), np.append(losses, [each for _, each in more])
    assert forecast(*told, TOTAL) == want


@pytest.mark.parametrize(
    "steps",
    [[], [1.0], [1.0, 2.0, 3.0, 4.0], [5.0] * 20, [1.0, 2.0, 3.0, 4.0] * 5, [0.0, 5e-324, 1e-323, 1e-300, 1e-6]],
    ids=["none", "one", "four", "one step", "four steps", "no steps to speak of"],
)
def test_of_too_few_steps_nothing_is_forecast(steps: list[float]) -> None:
    losses = np.linspace(1.0, 0.5, len(steps))
    assert len(set(steps)) < POINTS_MIN or max(steps) < 1e-6 * TOTAL
    assert forecast(np.array(steps), losses, TOTAL) is None


@pytest.mark.parametrize(("total", "confidence"), [(0.0, 0.9), (-1.0, 0.9), (nan, 0.9), (inf, 0.9), (10.0, 1.0)])
def test_an_end_that_is_none_is_refused(total: float, confidence: float) -> None:
    with pytest.raises(JobError, match="cannot be forecast"):
        forecast(np.arange(10.0), np.ones(10), total, confidence)


def test_a_job_that_goes_on_beyond_its_end_is_forecast_for_where_it_is() -> None:
    curve, steps, losses = reported(7, 1.0)
    assert made(steps, losses, 500.0).loss == pytest.approx(end(curve), rel=0.01)


@pytest.mark.parametrize("part", [0.1, 0.5])
def test_of_curves_of_this_form_nine_forecasts_of_ten_are_steady_and_they_are_the_same(part: float) -> None:
    steady = 0
    for seed in range(100):
        _, steps, losses = reported(seed, part)
        found = steady_forecast(steps, losses, TOTAL)
        assert found is None or found == forecast(steps, losses, TOTAL)
        steady += found is not None
    assert steady >= 88


def test_a_loss_that_falls_in_another_form_is_found_out_by_its_drift() -> None:
    """As a power of the steps: forecasts are ever lower, and no band of an earlier one holds the later."""
    steps = np.arange(1, 51) * TOTAL / 100
    losses = 0.4 + (steps / 10) ** -0.5
    uneven = 1 + 0.01 * np.random.default_rng(0).uniform(-1, 1, len(steps))
    assert made(steps, losses * uneven).low > 0.4 + (TOTAL / 10) ** -0.5  # the band knows nothing of it
    assert steady_forecast(steps, losses * uneven, TOTAL) is None
    shuffled = np.random.default_rng(1).permutation(len(steps))
    assert steady_forecast(steps[shuffled], (losses * uneven)[shuffled], TOTAL) is None


def test_what_two_thirds_of_the_reports_are_too_few_for_is_not_steady() -> None:
    _, steps, losses = reported(1, 0.07)
    assert forecast(steps, losses, TOTAL) is not None
    assert steady_forecast(steps, losses, TOTAL) is None
