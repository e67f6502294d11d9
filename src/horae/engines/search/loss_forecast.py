"""Forecasts a loss from its reports: a fitted curve, and an interval for its final value.

The curve is that of Optimus (EuroSys'18), loss(k) = 1 / (rate x k + start) + floor with no coefficient below 0. It is
written as height / (1 + bend x k) + floor here: for a given bend, height and floor are a problem of non-negative least
squares with two unknowns, which has a closed form. So bends are scanned, coarsely at first and then ever finer around
those that explain the reports. (To scan the floor instead makes a line of 1 / (loss - floor); but then noise decides
which floors are possible at all, as none may lie above a reported loss.) Noise is assumed to be proportional to the
loss.

The interval is that of profile likelihood: every final value that some curve of this form reaches while its squared
residuals exceed the least ones by no more than noise explains, by Student's t. Unlike an interval from the covariance
at the best fit it is asymmetric where necessary: early in a curve a much lower floor is nearly as likely, a higher one
is not.
"""

from __future__ import annotations

from functools import cache
from math import inf, isfinite, log
from typing import NamedTuple

import numpy as np

from horae.model.arrays import Floats
from horae.model.errors import JobError
from horae.model.jobs import Curve

POINTS_MIN = 5  # at different steps: three coefficients, and two more to estimate the noise
BENDS = 40  # examined in each scan
SCANS = 3
STEADY_PART = 2 / 3  # the fraction of reports that must predict what all of them say
LOSS_MIN, LOSS_MAX = 1e-100, 1e100  # values outside are diverged training
_WEIGHED_MIN = 1e-6  # of the largest loss: a smaller one gets no larger weight
_EXACT = 1e-8  # of the sum of all squares: no loss is known better than to a ten thousandth
_SAME = 1e-12  # two columns that differ by less are indistinguishable
_PLACES = np.linspace(0.0, 1.0, BENDS)
_KNOWN_MIN = 1e-6  # of all steps: from fewer nothing is concluded
_FLAT = 1e-9  # of the largest loss: a curve that falls by less does not fall


class Report(NamedTuple):
    """A job's loss after a number of steps, as reported by the job."""

    job_id: str
    steps: float
    loss: float


class Forecast(NamedTuple):
    curve: Curve
    loss: float  # at the end
    low: float  # the final loss is between these two, with the requested confidence
    high: float


class _Sums(NamedTuple):
    """By bend: the normal equations of height and floor, weighted by the noise."""

    hh: Floats
    hf: Floats
    hy: Floats
    ff: float
    fy: float
    yy: float


class _Fits(NamedTuple):
    """By bend: the fitted height and floor, and the residuals."""

    height: Floats
    floor: Floats
    squares: Floats  # residual sum of squares


def is_loss(loss: float) -> bool:
    return LOSS_MIN < loss < LOSS_MAX


def forecast(steps: Floats, losses: Floats, steps_total: float, confidence: float = 0.9) -> Forecast | None:
    """The forecast loss after all steps; None if there are too few reports.

    Reports may come in any order. Invalid losses (not a number, 0 or less) and steps are ignored.
    """
    if not (steps_total > 0 and isfinite(steps_total) and 0 < confidence < 1):
        raise JobError(
            f"a loss cannot be forecast for step {steps_total} with confidence {confidence}",
            field="steps_total",
            remedy="give a positive number of steps, and a confidence between 0 and 1",
        )
    steps, losses = _usable(steps, losses)
    if len(steps) < POINTS_MIN or 1 + np.count_nonzero(np.diff(steps)) < POINTS_MIN:
        return None
    end = max(steps_total, float(steps[-1]))
    if steps[-1] < _KNOWN_MIN * end:
        return None
    scale = float(losses.max())
    slack = _student(len(steps) - 3, confidence) ** 2 / (len(steps) - 3)
    bend, fits, sums = _scan(steps / end, losses / scale, slack)
    low, high = _band(1 / (1 + bend), fits, sums, slack)
    best = int(fits.squares.argmin())
    height, floor = float(fits.height[best]) * scale, float(fits.floor[best]) * scale
    loss = height / (1 + float(bend[best])) + floor
    curve = _curve(height, floor, float(bend[best]) / end, scale)
    return Forecast(curve, loss, min(low * scale, loss), max(high * scale, loss)) if curve.is_sound else None


def steady_forecast(steps: Floats, losses: Floats, steps_total: float, confidence: float = 0.9) -> Forecast | None:
    """A forecast that the earlier part of the reports predicts as well; otherwise None.

    The interval of a forecast accounts for noise, but not for losses of another functional form. Those are detected by
    drift: the forecast moves as reports arrive, further than noise moves it.
    """
    steps, losses = _usable(steps, losses)
    found = forecast(steps, losses, steps_total, confidence)
    if found is None:
        return None
    earlier = int(len(steps) * STEADY_PART)
    before = forecast(steps[:earlier], losses[:earlier], steps_total, confidence)
    return found if before is not None and before.low <= found.loss <= before.high else None


def _usable(steps: Floats, losses: Floats) -> tuple[Floats, Floats]:
    """Valid reports sorted by step; duplicates count once."""
    with np.errstate(invalid="ignore"):
        kept = (losses > LOSS_MIN) & (losses < LOSS_MAX) & (steps >= 0) & (steps < inf)
    steps, losses = steps[kept], losses[kept]
    order = np.lexsort((losses, steps))
    steps, losses = steps[order], losses[order]
    new = np.ones(len(steps), dtype=bool)
    new[1:] = (np.diff(steps) > 0) | (np.diff(losses) > 0)
    return steps[new], losses[new]


def _curve(height: float, floor: float, bend: float, scale: float) -> Curve:
    if height <= _FLAT * scale:
        return Curve(0.0, 1 / (height + floor), 0.0)
    return Curve(bend / height, 1 / height, floor)


def _scan(known: Floats, wanted: Floats, slack: float) -> tuple[Floats, _Fits, _Sums]:
    """Bends, in units of one that halves the height over all steps, with the fit for each."""
    weight = 1 / np.maximum(wanted, _WEIGHED_MIN) ** 2
    weighed = weight * wanted
    both = np.stack((weight, weighed), axis=1)
    totals = float(weight.sum()), float(weighed.sum()), float(weighed @ wanted)
    # From a line that falls by a ten thousandth to a curve that has all its fall before the first report.
    low, high = log(1e-4 / known[-1]), log(1e3 / max(known[known.searchsorted(0.0, "right")], _KNOWN_MIN))
    for _ in range(SCANS):
        bend = np.exp(low + (high - low) * _PLACES)
        shape = 1 / (1 + bend[:, None] * known)
        mixed = shape @ both
        sums = _Sums((shape * shape) @ weight, mixed[:, 0], mixed[:, 1], *totals)
        fits = _fits(sums)
        likely = (fits.squares <= _most(fits, sums, slack)).nonzero()[0]
        low, high = (
            low + (high - low) * _PLACES[max(likely[0] - 1, 0)],
            low + (high - low) * _PLACES[min(likely[-1] + 1, BENDS - 1)],
        )
    return bend, fits, sums


def _fits(sums: _Sums) -> _Fits:
    """The non-negative fits: with two unknowns, a negative one is set to 0 and the other is fitted alone;
    never both."""
    hh, _, hy, ff, fy, yy = sums
    height, floor, squares = _unbound(sums)
    rises, sinks = height < 0, floor < 0
    height[rises], floor[rises], squares[rises] = 0.0, fy / ff, yy - fy * fy / ff
    height[sinks], floor[sinks], squares[sinks] = (hy / hh)[sinks], 0.0, (yy - hy * hy / hh)[sinks]
    return _Fits(height, floor, np.maximum(squares, 0.0))


def _most(fits: _Fits, sums: _Sums, slack: float) -> float:
    """The sum of squares up to which noise explains the residuals."""
    return max(float(fits.squares.min()), _EXACT * sums.yy) * (1 + slack)


def _unbound(sums: _Sums) -> _Fits:
    """The unconstrained minimum of the squares, with coefficients that may be negative."""
    hh, hf, hy, ff, fy, yy = sums
    spread = np.maximum(hh * ff - hf * hf, _SAME * hh * ff)
    height, floor = (ff * hy - hf * fy) / spread, (hh * fy - hf * hy) / spread
    # In full, so that cancellation where the two columns hardly differ does not look like a better fit.
    return _Fits(height, floor, yy + height * (height * hh + 2 * (floor * hf - hy)) + floor * (floor * ff - 2 * fy))


def _band(left: Floats, fits: _Fits, sums: _Sums, slack: float) -> tuple[float, float]:
    """The lowest and the highest final value, `left` x height + floor, whose squares are small enough.

    For one bend, the heights and floors with small enough squares form an ellipse. Its lowest and highest values are
    where a line touches it, if no coefficient is negative there; else where one of them is 0.
    """
    hh, hf, hy, ff, fy, yy = sums
    most = _most(fits, sums, slack)
    spread = np.maximum(hh * ff - hf * hf, _SAME * hh * ff)
    height, floor, squares = _unbound(sums)
    room = np.maximum(most - squares, 0.0)
    towards_height, towards_floor = (ff * left - hf) / spread, (hh - hf * left) / spread
    reach = np.sqrt(room / np.maximum(left * towards_height + towards_floor, 1e-300))
    lowest, highest = inf, 0.0
    possible = fits.squares <= most
    for sign in (-1.0, 1.0):
        at_height, at_floor = height + sign * reach * towards_height, floor + sign * reach * towards_floor
        ends = (left * at_height + at_floor)[possible & (at_height >= 0) & (at_floor >= 0)]
        # Where the floor is 0, and where the height is: a parabola in the other.
        alone = hy * hy - hh * (yy - most)
        there = (left * np.maximum(hy + sign * np.sqrt(np.maximum(alone, 0.0)), 0.0) / hh)[alone >= 0]
        level = fy * fy - ff * (yy - most)
        flat = [max(fy + sign * level**0.5, 0.0) / ff] if level >= 0 else []
        every = np.concatenate((ends, there, flat))
        lowest, highest = min(lowest, float(every.min(initial=inf))), max(highest, float(every.max(initial=0.0)))
    return lowest, highest


@cache
def _student(freedom: int, confidence: float) -> float:
    from scipy.special import stdtrit  # noqa: PLC0415  (a tenth of a second to import, for searches only)

    return float(stdtrit(freedom, (1 + confidence) / 2))
