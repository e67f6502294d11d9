"""How the time of a step depends on the gang: one curve for a model on one GPU type.

    seconds(k) = work/k + exchange (k-1)/k + latency (k-1)      in one node
                 + spread + spread_work/k                       more, where the k GPUs are on several nodes

No coefficient is negative. The first term is divided among k GPUs, the second is what each exchanges in a ring (it
tends to a constant), the third grows with every member. The same form fits all known tables:

- strong scaling (ITP, NCF: the global batch is fixed): a step is divided, `work` dominates and the rest limits it;
- weak scaling in steps of one GPU's batch (Gavel, vendors' images per second): the same, because k GPUs make k such
  steps at a time, so that a step takes 1/k of the time;
- weak scaling in global steps (Pollux: step times by local batch): `work` and `exchange` together are a constant.

The fit minimises the sum of fitted/measured + measured/fitted over the rows: errors are relative, and twice as slow is
as bad as twice as fast. (In plain relative least squares a row that is far too fast, such as Gavel's super-linear V100
rows, draws the whole curve towards itself, because being too slow there costs any amount and being too fast elsewhere
at most 1.) The sum is convex in the coefficients, so there is one best curve, whatever the order of the rows.

By its form a curve is never super-linear: k times the seconds of a step never falls as k grows. Nor is a gang on
several nodes ever faster than one on a single node.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import NamedTuple

import numpy as np

from horae.model.arrays import Floats

WORK, EXCHANGE, LATENCY, SPREAD, SPREAD_WORK = range(5)  # the columns of the terms
ITERATIONS_MAX, HALVINGS_MAX = 200, 30  # a dozen, and one or two, are usual
LATENCY_SIZES_MIN = 4  # with fewer gang sizes, latency would only follow their noise


class ScalingPoint(NamedTuple):
    """One measurement as input of the fit."""

    gpus: int
    is_spread: bool  # over several nodes
    seconds: float  # per step


class ScalingCurve(NamedTuple):
    work: float
    exchange: float
    latency: float
    spread: float
    spread_work: float
    error_max: float  # the largest relative error of a speed, over the rows that the curve was fitted to
    points: tuple[ScalingPoint, ...]

    def seconds(self, gpus: int, *, is_spread: bool) -> float:
        """The seconds per step by the formula."""
        terms = _terms(np.array([gpus], dtype=float), np.array([is_spread and gpus > 1]))
        return float((terms @ np.array(self[:5]))[0])

    def bent_seconds(self, gpus: int, *, is_spread: bool) -> float:
        """The seconds per step, corrected to pass through the measured rows.

        Between two of them the curve gives the form and they give the height; beyond the last, its correction is kept.
        """
        # Of several rows of one gang (in a rack, in the cluster) the slowest counts.
        same = sorted(point for point in self.points if point.is_spread == is_spread or point.gpus == 1)
        slowest = {point.gpus: point.seconds for point in same}
        sizes = list(slowest)
        off = [np.log(slowest[size] / self.seconds(size, is_spread=is_spread)) for size in sizes]
        height = np.interp(np.log(gpus), np.log(sizes), off) if sizes else 0.0
        return self.seconds(gpus, is_spread=is_spread) * float(np.exp(height))


def fit_curve(points: Sequence[ScalingPoint]) -> ScalingCurve | None:
    """The curve through these rows; None where all have one gang size, because then nothing is known of scaling."""
    points = sorted(points)  # so that rounding does not depend on the order of a file
    gpus = np.array([point.gpus for point in points], dtype=float)
    if len(np.unique(gpus)) < 2:
        return None
    is_spread = np.array([point.is_spread and point.gpus > 1 for point in points])
    seconds = np.array([point.seconds for point in points])
    terms = _terms(gpus, is_spread)
    used = _used(terms, len(np.unique(gpus)))
    coefficients = np.zeros(5)
    coefficients[used] = _symmetric_fit(terms[:, used], seconds)
    fitted = terms @ coefficients
    error_max = float(np.max(np.abs(seconds / fitted - 1.0)))
    work, exchange, latency, spread, spread_work = coefficients.tolist()
    return ScalingCurve(work, exchange, latency, spread, spread_work, error_max, tuple(points))


def _terms(gpus: Floats, is_spread: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Floats:
    spread = is_spread.astype(float)
    return np.stack([1.0 / gpus, (gpus - 1.0) / gpus, gpus - 1.0, spread, spread / gpus], axis=1)


def _used(terms: Floats, sizes: int) -> list[int]:
    """The terms that these rows can distinguish, the most important first: where two cannot be, the later is left out.

    So a gang that was only measured spread counts as no faster in one node.
    """
    used: list[int] = []
    for term in (WORK, EXCHANGE, SPREAD, LATENCY, SPREAD_WORK):
        is_allowed = term != LATENCY or sizes >= LATENCY_SIZES_MIN
        if is_allowed and np.linalg.matrix_rank(terms[:, [*used, term]]) > len(used):
            used.append(term)
    return used


def _symmetric_fit(terms: Floats, seconds: Floats) -> Floats:
    """The non-negative coefficients with the least sum of fitted/measured + measured/fitted.

    Iteratively: non-negative least squares with weights that have the same slope here as that sum, and as much of the
    step as makes the sum smaller.
    """
    from scipy.optimize import nnls  # noqa: PLC0415  (half a second to import, which commands should not pay)

    # In units of the rows and of the terms, so that a curve in milliseconds is the curve in seconds.
    scale = float(np.exp(np.log(seconds).mean())) / terms.mean(axis=0)
    scaled = terms * scale / seconds[:, None]
    coefficients = np.full(terms.shape[1], 1.0 / terms.shape[1])
    for _ in range(ITERATIONS_MAX):
        ratio = scaled @ coefficients
        weights = np.sqrt(ratio + 1.0) / ratio
        aim, _ = nnls(scaled * weights[:, None], weights)
        closer = _step(scaled, coefficients, aim)
        if closer is None:
            break
        coefficients = closer
    return coefficients * scale


def _step(scaled: Floats, start: Floats, aim: Floats) -> Floats | None:
    """The first of the whole step, half of it, a quarter and so on that improves the sum; None if none does."""
    for halvings in range(HALVINGS_MAX):
        candidate = start + (aim - start) / 2.0**halvings
        if _loss(scaled @ candidate) < _loss(scaled @ start):
            return candidate
    return None


def _loss(ratio: Floats) -> float:
    return float((ratio + 1.0 / ratio - 2.0).sum()) if ratio.min() > 0.0 else inf
