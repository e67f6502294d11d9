"""The estimator: measured cells, completed ones, and how far it says that it may be wrong."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from math import isfinite
from pathlib import Path

import numpy as np
import pytest

from horae.model.errors import InputError
from horae.model.shapes import Shape
from horae.model.speeds import Measurement
from horae.speed.estimator import (
    BY_FAMILY,
    BY_OTHERS,
    COMPLETED,
    MEASURED,
    NOISE_MIN,
    Estimator,
    SpeedEstimate,
    batch_size_of,
    family_of,
)
from horae.traces.speed_tables import read_gavel_csv

TYPES = ("v100", "p100", "k80")
FACTORS = {"v100": 4.0, "p100": 2.0, "k80": 1.0}


def shape(accelerator: str, gpus: int = 1, level: str = "node") -> Shape:
    return Shape(accelerator, gpus, level)


def references(*names: str, factors: Mapping[str, float] = FACTORS) -> list[Measurement]:
    """Jobs measured on every type; each is faster than the one before, and types always compare alike."""
    return [
        Measurement(name, shape(accelerator), 1.7**index * factors[accelerator], "a test")
        for index, name in enumerate(names)
        for accelerator in TYPES
    ]


KNOWN = Estimator.of(references("a", "b", "c", "d", "e", "f"))


@pytest.mark.parametrize("row", references("a", "b", "c"), ids=lambda row: f"{row.model} on {row.shape.accelerator}")
def test_a_measured_cell_is_as_it_was_measured(row: Measurement) -> None:
    estimate = KNOWN.estimate(row.model, row.shape)
    assert estimate.source == MEASURED
    assert estimate.steps_per_second == pytest.approx(row.steps_per_second, rel=NOISE_MIN)
    assert estimate.uncertainty <= NOISE_MIN


def test_one_measured_cell_gives_the_others_if_types_always_compare_alike() -> None:
    estimator, alone = (
        known.profiled("new", shape("p100"), 6.0, noise=0.01).refitted() for known in (KNOWN, Estimator())
    )
    for accelerator, want in (("v100", 12.0), ("k80", 3.0)):
        estimate = estimator.estimate("new", shape(accelerator))
        assert estimate.source == COMPLETED
        assert estimate.steps_per_second == pytest.approx(want, rel=0.05)
        assert estimate.uncertainty < alone.estimate("new", shape(accelerator)).uncertainty / 2


def test_ratios_are_known_of_a_model_of_which_nothing_was_measured_but_not_its_scale() -> None:
    fast, slow = KNOWN.estimates([("new", shape("v100")), ("new", shape("k80"))])
    assert fast.source == slow.source == BY_OTHERS
    assert fast.steps_per_second / slow.steps_per_second == pytest.approx(4.0, rel=0.1)
    assert slow.uncertainty > 0.5


def test_a_family_says_more_than_other_models() -> None:
    odd = {"v100": 1.0, "p100": 2.0, "k80": 4.0}
    twins = references("odd (batch size 8)", "odd (batch size 16)", factors=odd)
    estimator = Estimator.of([*references("a", "b", "c"), *twins])
    twin, other = ("odd (batch size 32)", "even")
    assert estimator.estimate(twin, shape("k80")).source == BY_FAMILY
    ratio = {
        name: estimator.estimate(name, shape("v100")).steps_per_second
        / estimator.estimate(name, shape("k80")).steps_per_second
        for name in (twin, other)
    }
    assert ratio[twin] < 0.5
    assert ratio[other] > 1.0


def test_models_of_a_family_are_as_much_slower_as_batch_sizes_tell() -> None:
    rows = [
        Measurement(f"{name} (batch size {size})", shape("v100"), speed / size**0.9, "a test")
        for name, speed in (("a", 100.0), ("b", 900.0), ("c", 30.0))
        for size in (16, 32, 64)
    ]
    estimate = Estimator.of(rows).estimate("a (batch size 256)", shape("v100"))
    assert estimate.source == BY_FAMILY
    assert estimate.steps_per_second == pytest.approx(100.0 / 256**0.9, rel=0.15)


@pytest.mark.parametrize(
    ("model", "family", "batch_size"),
    [("LM (batch size 80)", "LM", 80), ("A3C", "A3C", 64), ("SSD300 (mixed precision, batch size 8)", "SSD300", 8)],
)
def test_names_tell_the_family_and_the_batch_size(model: str, family: str, batch_size: int) -> None:
    assert (family_of(model), batch_size_of(model)) == (family, batch_size)


def test_before_anything_is_measured_all_types_are_alike_and_nothing_is_certain() -> None:
    fast, slow = Estimator().estimates([("new", shape("v100")), ("new", shape("k80"))])
    assert fast.steps_per_second == slow.steps_per_second > 0
    assert fast.uncertainty > 1.0
    assert Estimator().estimates([]) == []


def test_a_gang_never_measured_scales_as_other_models_do() -> None:
    rows = [
        Measurement(name, shape("v100", gpus), scale * gpus**0.5, "a test")
        for name, scale in (("a", 1.0), ("b", 3.0), ("c", 9.0), ("d", 2.0))
        for gpus in (1, 2, 4, 8)
    ]
    estimate = Estimator.of(rows).profiled("new", shape("v100"), 5.0, 0.01).refitted().estimate("new", shape("v100", 4))
    assert estimate.steps_per_second == pytest.approx(10.0, rel=0.1)


def test_one_gpu_is_never_spread_and_types_are_found_in_capital_and_in_small_letters() -> None:
    assert KNOWN.estimate("a", Shape("V100", 1, "cluster")) == KNOWN.estimate("a", shape("v100"))


def test_the_longer_a_speed_was_measured_the_more_it_counts() -> None:
    profiled = Estimator().profiled("a", shape("v100"), 10.0, noise=0.2)
    short, long = (
        profiled.observed("a", shape("v100"), 20.0, seconds).estimate("a", shape("v100")).steps_per_second
        for seconds in (2.0, 3600.0)
    )
    assert 10.0 < short < 19.0 < long < 20.0


def test_a_speed_of_which_the_steps_are_old_counts_less() -> None:
    profiled = Estimator().profiled("a", shape("v100"), 10.0, noise=0.1)
    fresh, stale = (
        profiled.observed("a", shape("v100"), 20.0, 600.0, seconds).estimate("a", shape("v100")).steps_per_second
        for seconds in (0.0, 300.0)
    )
    assert stale < 12.0 < fresh


def test_a_speed_that_changes_is_followed() -> None:
    estimator = Estimator()
    for steps_per_second in [10.0] * 50 + [20.0] * 20:
        estimator = estimator.observed("a", shape("v100"), steps_per_second, 3600.0)
    assert estimator.estimate("a", shape("v100")).steps_per_second > 19.0


def test_a_type_that_was_never_measured_gets_an_estimate_of_its_own() -> None:
    estimate = KNOWN.estimate("a", shape("h100"))
    assert isfinite(estimate.steps_per_second)
    assert estimate.uncertainty > 10 * KNOWN.estimate("a", shape("k80")).uncertainty


def test_a_cautious_speed_lies_below_the_estimate() -> None:
    estimate = SpeedEstimate(10.0, 0.5, MEASURED)
    assert estimate.low(0.0) == 10.0
    assert estimate.low(1.0) == pytest.approx(6.065, rel=1e-3)


def test_the_nearest_reference_is_the_one_whose_types_compare_alike() -> None:
    upside_down = {"v100": 1.0, "p100": 2.0, "k80": 4.0}
    rows = [*references("a", "b"), *references("c", "d", factors=upside_down)]
    estimator = Estimator.of(rows).profiled("new", shape("v100"), 300.0, 0.01).profiled("new", shape("k80"), 70.0, 0.01)
    likeness = estimator.refitted().nearest("new")
    assert likeness is not None
    assert likeness.model in ("a", "b")
    assert likeness.cosine > 0.8
    limited = estimator.nearest("new", ["c", "d"])
    assert limited is not None
    assert limited.cosine < 0


def test_nobody_is_near_where_there_is_no_reference_or_nothing_is_known() -> None:
    assert KNOWN.nearest("new") is None
    assert Estimator().profiled("a", shape("v100"), 1.0, 0.1).nearest("a") is None


def test_an_estimator_can_be_pickled_even_after_it_was_asked() -> None:
    asked = KNOWN.estimate("a", shape("v100"))
    assert pickle.loads(pickle.dumps(KNOWN)).estimate("a", shape("v100")) == asked


def test_measuring_leaves_the_former_estimator_as_it_was() -> None:
    before = KNOWN.estimate("new", shape("v100"))
    KNOWN.profiled("new", shape("v100"), 1e6, 0.01)
    assert KNOWN.estimate("new", shape("v100")) == before


@pytest.mark.parametrize(("speed", "noise"), [(0.0, 0.1), (-1.0, 0.1), (float("nan"), 0.1), (1.0, -0.1)])
def test_nonsense_is_no_measurement(speed: float, noise: float) -> None:
    with pytest.raises(InputError):
        KNOWN.profiled("a", shape("v100"), speed, noise)
    with pytest.raises(InputError):
        KNOWN.observed("a", shape("v100"), 1.0, 0.0)


# The published table


@pytest.mark.parametrize(
    ("share", "gang_max", "median_max", "coverage"),
    [(0.2, 1, 0.15, 0.9), (0.4, 1, 0.12, 0.9), (0.2, 8, 0.15, 0.9), (0.4, 8, 0.12, 0.9)],
)
def test_on_gavel_s_table_ratios_between_types_are_good_and_the_uncertainty_is_honest(
    share: float, gang_max: int, median_max: float, coverage: float, data: Path
) -> None:
    """Whole classes are measured; of the others, speeds relative to the class's mean are compared."""
    classes: dict[tuple[str, int], list[Measurement]] = {}
    for row in read_gavel_csv(data):
        is_spread_alone = row.shape.gpus == 1 and row.shape.level != "node"
        if row.steps_per_second > 0 and row.shape.gpus <= gang_max and not is_spread_alone:
            classes.setdefault((row.model, row.shape.gpus), []).append(row)
    off: list[float] = []
    within: list[bool] = []
    for seed in range(4):
        order = np.random.default_rng(seed).permutation(len(classes))
        ordered = [classes[key] for key in sorted(classes)]
        count = round(share * len(classes))
        estimator = Estimator.of(row for index in order[:count] for row in ordered[index])
        for index in order[count:]:
            rows = ordered[index]
            estimates = estimator.estimates([(row.model, row.shape) for row in rows])
            wrong = np.log([estimate.steps_per_second for estimate in estimates])
            wrong -= np.log([row.steps_per_second for row in rows])
            off.extend(np.abs(wrong - wrong.mean()).tolist())
            sigma = np.array([estimate.uncertainty for estimate in estimates])
            within.extend((np.abs(wrong) < 2 * sigma).tolist())
    assert np.median(off) < median_max
    assert np.mean(within) > coverage
