"""What holds for every estimator, whatever was measured."""

from __future__ import annotations

from math import isfinite

from hypothesis import given
from hypothesis import strategies as st

from horae.model.shapes import Shape
from horae.speed.estimator import Estimator, key_of

SHAPES = st.builds(
    Shape, st.sampled_from(["v100", "p100", "k80"]), st.sampled_from([1, 2, 8]), st.sampled_from(["node", "cluster"])
)
MODELS = st.sampled_from(["a", "b (batch size 1)", "b (batch size 2)", "c"])
ROWS = st.lists(
    st.tuples(MODELS, SHAPES, st.floats(1e-3, 1e3), st.floats(0.0, 0.5)),
    max_size=12,
    unique_by=lambda row: key_of(row[0], row[1]),
)
Row = tuple[str, Shape, float, float]


def measured(rows: list[Row]) -> Estimator:
    estimator = Estimator()
    for row in rows:
        estimator = estimator.profiled(*row)
    return estimator


@given(ROWS, MODELS, SHAPES)
def test_every_estimate_is_a_positive_speed_with_an_uncertainty(rows: list[Row], model: str, shape: Shape) -> None:
    estimate = measured(rows).refitted().estimate(model, shape)
    assert estimate.steps_per_second > 0
    assert isfinite(estimate.steps_per_second)
    assert 0 <= estimate.uncertainty < 10


@given(ROWS, MODELS, SHAPES, st.randoms(use_true_random=False))
def test_the_order_of_measurements_changes_nothing(rows: list[Row], model: str, shape: Shape, random: object) -> None:
    shuffled = list(rows)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert measured(rows).refitted().estimate(model, shape) == measured(shuffled).refitted().estimate(model, shape)


@given(ROWS, MODELS, SHAPES, MODELS, SHAPES)
def test_a_measurement_more_makes_nothing_less_certain(
    rows: list[Row], model: str, shape: Shape, other: str, elsewhere: Shape
) -> None:
    before = measured(rows).knowing([shape, elsewhere])
    after = before.profiled(other, elsewhere, 1.0, 0.1)
    assert after.estimate(model, shape).uncertainty <= before.estimate(model, shape).uncertainty + 1e-6


@given(ROWS)
def test_a_measured_cell_is_at_most_as_uncertain_as_its_measurement(rows: list[Row]) -> None:
    estimator = measured(rows).refitted()
    for model, shape, _, noise in rows:
        assert estimator.estimate(model, shape).uncertainty <= max(noise, 0.005) * (1 + 1e-6)
