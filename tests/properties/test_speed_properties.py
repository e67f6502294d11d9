"""What holds for every curve and every book, whatever was measured."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from horae.model.shapes import Shape
from horae.model.speeds import Measurement
from horae.speed.scaling import ScalingPoint, fit_curve
from horae.speed.table import GANG_FACTOR_MAX, SpeedBook

GANGS = st.sampled_from([1, 2, 3, 4, 8, 16, 64])
SPEEDS = st.floats(1e-3, 1e3)
LEVELS = ("gpu", "node", "rack", "cluster")
POINTS = st.lists(st.builds(ScalingPoint, GANGS, st.booleans(), SPEEDS), min_size=1, max_size=12)
ROWS = st.lists(
    st.builds(
        Measurement,
        st.just("net"),
        st.builds(Shape, st.just("V100"), GANGS, st.sampled_from(["node", "rack", "cluster"])),
        st.one_of(st.just(0.0), SPEEDS),
        st.just("a test"),
    ),
    min_size=1,
    max_size=12,
)


@given(POINTS)
def test_no_curve_is_super_linear_and_none_gains_from_being_spread(points: list[ScalingPoint]) -> None:
    curve = fit_curve(points)
    if curve is None:
        assert len({point.gpus for point in points}) == 1
        return
    for is_spread in (False, True):
        gpu_seconds = [gpus * curve.seconds(gpus, is_spread=is_spread) for gpus in (2, 3, 4, 8, 16, 64, 256)]
        assert all(later >= sooner * (1 - 1e-9) for sooner, later in pairwise(gpu_seconds))
    for gpus in (2, 3, 8, 256):
        assert curve.seconds(gpus, is_spread=True) >= curve.seconds(gpus, is_spread=False)


@given(POINTS, st.floats(1e-3, 1e3))
def test_a_curve_in_another_unit_of_time_is_the_same_curve(points: list[ScalingPoint], factor: float) -> None:
    curve = fit_curve(points)
    scaled = fit_curve([point._replace(seconds=point.seconds * factor) for point in points])
    assert (curve is None) == (scaled is None)
    if curve is not None and scaled is not None:
        for gpus in (1, 2, 8):
            want = curve.seconds(gpus, is_spread=False) * factor
            assert abs(scaled.seconds(gpus, is_spread=False) - want) <= 1e-3 * want


@given(ROWS)
def test_measured_rows_are_returned_as_they_are(rows: list[Measurement]) -> None:
    book = SpeedBook(tuple(rows))
    for model, shape, estimate in book.rows():
        assert book.lookup(model, shape) == estimate
        assert not estimate.fitted


@given(ROWS, st.integers(1, 300), st.sampled_from(LEVELS))
def test_a_lookup_is_finite_says_where_it_comes_from_and_stays_within_its_bounds(
    rows: list[Measurement], gpus: int, level: str
) -> None:
    estimate = SpeedBook(tuple(rows)).lookup("net", Shape("V100", gpus, level))
    largest = max(row.shape.gpus for row in rows)
    if estimate is None:
        return
    assert 0.0 <= estimate.steps_per_second < float("inf")
    assert estimate.source
    if estimate.steps_per_second > 0:
        assert gpus <= GANG_FACTOR_MAX * largest


@given(ROWS, st.integers(1, 300))
def test_a_fitted_speed_in_the_cluster_is_not_above_that_in_a_node(rows: list[Measurement], gpus: int) -> None:
    book = SpeedBook(tuple(rows))
    node = book.lookup("net", Shape("V100", gpus, "node"))
    cluster = book.lookup("net", Shape("V100", gpus, "cluster"))
    if node is not None and cluster is not None and cluster.fitted:
        assert cluster.steps_per_second <= node.steps_per_second * (1 + 1e-9)


@given(ROWS, st.integers(1, 300), st.sampled_from(LEVELS))
def test_the_order_of_the_rows_changes_nothing_but_which_of_equals_holds(
    rows: list[Measurement], gpus: int, level: str
) -> None:
    unique = list({(row.shape.gpus, row.shape.level if row.shape.gpus > 1 else ""): row for row in rows}.values())
    there = SpeedBook(tuple(unique)).steps_per_second("net", Shape("V100", gpus, level))
    back = SpeedBook(tuple(reversed(unique))).steps_per_second("net", Shape("V100", gpus, level))
    assert (there is None) == (back is None)
    if there is not None and back is not None:
        assert abs(there - back) <= 1e-3 * max(there, back)
