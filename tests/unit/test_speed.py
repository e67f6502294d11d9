"""Speeds: the book, its curves, what ships with Horae, and the readers of public tables."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from horae.model.errors import InputError
from horae.model.shapes import Shape
from horae.model.speeds import Measurement, PairMeasurement
from horae.speed.published_speeds import SHIPPED
from horae.speed.scaling import ScalingCurve, ScalingPoint, fit_curve
from horae.speed.table import SpeedBook
from horae.traces.speed_tables import (
    read_gavel_colocated,
    read_gavel_csv,
    read_gavel_json,
    read_itp,
    read_pollux,
)

NET, SOURCE = "net", "a test"


def row(gpus: int, level: str, speed: float, model: str = NET, source: str = SOURCE) -> Measurement:
    return Measurement(model, Shape("V100", gpus, level), speed, source)


def book(*rows: Measurement) -> SpeedBook:
    return SpeedBook(rows)


def speed(known: SpeedBook, gpus: int, level: str) -> float | None:
    return known.steps_per_second(NET, Shape("V100", gpus, level))


SCALES = book(
    row(1, "node", 10.0), row(2, "node", 18.0), row(8, "node", 56.0), row(2, "cluster", 12.0), row(8, "cluster", 40.0)
)


# The book


@pytest.mark.parametrize(
    ("gpus", "level", "want"),
    [(1, "node", 10.0), (8, "node", 56.0), (8, "cluster", 40.0), (2, "gpu", 18.0), (8, "socket", 56.0)],
)
def test_a_measured_row_is_returned_as_it_is_and_holds_inside_a_node(gpus: int, level: str, want: float) -> None:
    estimate = SCALES.lookup(NET, Shape("V100", gpus, level))
    assert estimate is not None
    assert (estimate.steps_per_second, estimate.source, estimate.fitted) == (want, SOURCE, False)


@pytest.mark.parametrize("level", ["gpu", "node", "rack", "cluster"])
def test_one_gpu_is_never_spread(level: str) -> None:
    assert speed(SCALES, 1, level) == 10.0
    assert speed(book(row(1, "cluster", 3.0)), 1, level) == 3.0


def test_gpu_types_are_found_in_capital_and_in_small_letters() -> None:
    assert SCALES.steps_per_second(NET, Shape("v100", 1, "node")) == 10.0


def test_a_rack_counts_as_the_cluster_unless_it_was_measured() -> None:
    estimate = SCALES.lookup(NET, Shape("V100", 8, "rack"))
    assert estimate is not None
    assert (estimate.steps_per_second, estimate.fitted) == (40.0, True)
    assert estimate.source == "as in one cluster: a test"
    assert speed(SpeedBook.of(SCALES.measurements, [row(8, "rack", 50.0)]), 8, "rack") == 50.0


def test_a_missing_gang_lies_between_its_neighbours_and_says_from_which_rows_it_comes() -> None:
    estimate = SCALES.lookup(NET, Shape("V100", 4, "node"))
    assert estimate is not None
    assert 18.0 < estimate.steps_per_second < 56.0
    assert estimate.fitted
    assert estimate.source == "fitted to 5 rows of 1 to 8 GPUs (a test)"


@pytest.mark.parametrize(
    ("known", "gpus", "level"),
    [
        pytest.param(SCALES, 33, "node", id="more than four times the largest gang"),
        pytest.param(SCALES, 33, "cluster", id="the same when spread"),
        pytest.param(
            book(row(8, "node", 4.0), row(16, "node", 7.0)), 1, "node", id="less than a quarter of the smallest"
        ),
        pytest.param(book(row(1, "node", 4.0)), 2, "node", id="one gang size says nothing of scaling"),
        pytest.param(book(row(1, "node", 4.0), row(2, "node", 7.0)), 2, "cluster", id="nothing measured when spread"),
        pytest.param(book(row(2, "node", 4.0), row(8, "node", 0.0)), 4, "node", id="fits on one side only"),
    ],
)
def test_where_nothing_is_known_nothing_is_guessed(known: SpeedBook, gpus: int, level: str) -> None:
    assert speed(known, gpus, level) is None


def test_an_unknown_model_or_gpu_type_is_not_known() -> None:
    assert SCALES.lookup("other", Shape("V100", 1, "node")) is None
    assert SCALES.lookup(NET, Shape("K80", 1, "node")) is None
    assert SCALES.curve("other", "V100") is None


def test_curves_reach_four_times_the_largest_gang_and_not_beyond() -> None:
    assert speed(SCALES, 32, "node") is not None
    assert speed(SCALES, 32, "cluster") is not None


def test_what_does_not_fit_is_zero_also_between_and_beyond_and_when_spread() -> None:
    known = book(row(1, "node", 4.0), row(2, "node", 0.0), row(8, "node", 0.0))
    assert [speed(known, gpus, "node") for gpus in (2, 4, 16)] == [0.0, 0.0, 0.0]
    assert speed(known, 2, "cluster") == 0.0


def test_a_gang_that_was_only_measured_spread_is_at_least_as_fast_in_a_node() -> None:
    known = book(row(1, "node", 10.0), row(4, "cluster", 20.0), row(8, "cluster", 30.0))
    estimate = known.lookup(NET, Shape("V100", 8, "node"))
    assert estimate is not None
    assert estimate.steps_per_second == pytest.approx(30.0)
    assert estimate.source.startswith("at least as when spread: fitted to 3 rows")


def test_what_is_not_measured_gains_nothing_from_being_spread() -> None:
    known = book(row(1, "node", 10.0), row(2, "node", 15.0), row(4, "node", 20.0), row(2, "cluster", 19.0))
    node, cluster = speed(known, 4, "node"), speed(known, 4, "cluster")
    assert node is not None
    assert cluster is not None
    assert cluster <= node


def test_of_two_measurements_of_one_shape_the_first_holds() -> None:
    known = SpeedBook.of([row(1, "node", 2.0, source="mine")], [row(1, "node", 3.0), row(2, "node", 5.0)])
    assert known.rows() == (
        (NET, Shape("V100", 1, "node"), (2.0, "mine", False)),
        (NET, Shape("V100", 2, "node"), (5.0, SOURCE, False)),
    )
    assert known.models == (NET,)


@pytest.mark.parametrize("bad", [row(0, "node", 1.0), row(1, "node", -1.0), row(1, "node", float("nan"))])
def test_an_impossible_measurement_is_one_line(bad: Measurement) -> None:
    with pytest.raises(InputError, match=r"speed: net has .* GPUs; give 1 or more GPUs and a finite number"):
        book(bad)


# The curve


def points(curve: Sequence[float], sizes: Sequence[int], spread_sizes: Sequence[int] = ()) -> list[ScalingPoint]:
    work, exchange, latency, spread, spread_work = curve
    inside = [ScalingPoint(k, False, work / k + exchange * (k - 1) / k + latency * (k - 1)) for k in sizes]
    outside = [
        ScalingPoint(k, True, work / k + exchange * (k - 1) / k + latency * (k - 1) + spread + spread_work / k)
        for k in spread_sizes
    ]
    return [*inside, *outside]


@pytest.mark.parametrize(
    "want",
    [
        pytest.param((1.0, 0.0, 0.0, 0.0, 0.0), id="linear"),
        pytest.param((1.0, 0.1, 0.0, 0.0, 0.0), id="strong scaling with exchange"),
        pytest.param((2.0, 0.3, 0.01, 0.2, 0.0), id="latency, and a price for being spread"),
        pytest.param((1.0, 0.2, 0.005, 0.1, 0.4), id="all terms"),
        pytest.param((1.0, 1.3, 0.0, 0.3, 0.0), id="weak scaling in global steps"),
    ],
)
def test_the_coefficients_of_a_made_up_curve_are_recovered(want: tuple[float, ...]) -> None:
    curve = fit_curve(points(want, (1, 2, 4, 8, 16), (2, 4, 8, 16)))
    assert curve is not None
    assert curve[:5] == pytest.approx(want, abs=1e-6)
    assert curve.error_max < 1e-6


def test_a_super_linear_row_does_not_throw_what_lies_between_the_others() -> None:
    rows = points((1.0, 0.1, 0.0, 0.0, 0.0), (1, 2, 4, 8))
    wild = [*rows[:3], rows[3]._replace(seconds=rows[3].seconds / 4)]
    plain, thrown = fit_curve(rows), fit_curve(wild)
    assert plain is not None
    assert thrown is not None
    want = plain.seconds(3, is_spread=False)
    assert thrown.bent_seconds(3, is_spread=False) == pytest.approx(want, rel=0.05)


def test_twice_as_slow_is_as_bad_as_twice_as_fast() -> None:
    """Two rows of one gang that differ by a factor of 4 draw the curve to their geometric mean."""
    curve = fit_curve([ScalingPoint(1, False, 1.0), ScalingPoint(1, False, 4.0), ScalingPoint(2, False, 1.0)])
    assert curve is not None
    assert curve.seconds(1, is_spread=False) == pytest.approx(2.0)


def test_the_error_is_the_worst_relative_error_of_a_speed() -> None:
    curve = fit_curve([ScalingPoint(1, False, 1.0), ScalingPoint(1, False, 2.0), ScalingPoint(2, False, 1.0)])
    assert curve is not None
    fitted = curve.seconds(1, is_spread=False)
    assert curve.error_max == pytest.approx(max(abs(1 / fitted - 1), abs(2 / fitted - 1)))


def test_the_curve_is_bent_through_its_rows_and_keeps_their_height_beyond() -> None:
    rows = [ScalingPoint(1, False, 1.0), ScalingPoint(2, False, 0.6), ScalingPoint(4, False, 0.2)]
    curve = fit_curve(rows)
    assert curve is not None
    assert [curve.bent_seconds(point.gpus, is_spread=False) for point in rows] == pytest.approx([1.0, 0.6, 0.2])
    height = 0.2 / curve.seconds(4, is_spread=False)
    assert curve.bent_seconds(16, is_spread=False) == pytest.approx(curve.seconds(16, is_spread=False) * height)


# What ships with Horae


def test_every_shipped_row_has_a_speed_and_a_source() -> None:
    assert all(row.steps_per_second > 0 and "20" in row.source for row in SHIPPED)
    assert {row.shape.accelerator for row in SHIPPED} == {"K80", "P100", "V100", "A100", "H100"}
    assert len({(row.model, row.shape) for row in SHIPPED}) == len(SHIPPED)


def test_shipped_scaling_curves_are_close_to_their_rows() -> None:
    known = SpeedBook(SHIPPED)
    for model in known.models:
        for accelerator in ("K80", "P100", "V100", "A100"):
            curve = known.curve(model, accelerator)
            assert curve is None or curve.error_max < 0.06, (model, accelerator)


# Readers


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)
    return folder


ISOLATED = "gavel/throughputs_isolated.csv"
ISOLATED_HEADER = "table,gpu_type,consolidated,job_type,scale_factor,steps_per_s\n"
COLOCATED = "gavel/throughputs_colocated.csv.gz"
COLOCATED_HEADER = "gpu_type,job_type_a,scale_a,job_type_b,scale_b,steps_per_s_a,steps_per_s_b\n"
THROUGHPUTS = "itp/throughputs.csv"
THROUGHPUTS_HEADER = "gpu_type,model,global_batch_size,num_gpu,iters_per_s\n"
PLACEMENTS = "pollux/profile_placements.csv.gz"
PLACEMENTS_HEADER = "model,placement,local_bsz,step_time,sync_time\n"


def test_gavel_rows_are_of_one_table_and_spread_where_not_consolidated(tmp_path: Path) -> None:
    text = (
        f"{ISOLATED_HEADER}simulation,k80,1,LM (batch size 5),2,3.5\nsimulation,k80,0,LM,2,0\nphysical,k80,1,LM,1,9\n"
    )
    data = write(tmp_path, ISOLATED, text)
    source = "Gavel (OSDI'20), throughputs, simulation table"
    assert read_gavel_csv(data) == (
        Measurement("LM (batch size 5)", Shape("k80", 2, "node"), 3.5, source),
        Measurement("LM", Shape("k80", 2, "cluster"), 0.0, source),
    )
    assert [row.steps_per_second for row in read_gavel_csv(data, "physical")] == [9.0]


def test_gavel_pairs_keep_both_speeds(tmp_path: Path) -> None:
    data = write(tmp_path, COLOCATED, f"{COLOCATED_HEADER}k80,A,2,B,2,1.5,2.5\n")
    source = "Gavel (OSDI'20), throughputs, colocated"
    assert read_gavel_colocated(data) == (PairMeasurement(("A", "B"), Shape("k80", 2, "node"), (1.5, 2.5), source),)


def test_itp_gangs_beyond_a_server_are_spread(tmp_path: Path) -> None:
    text = f"{THROUGHPUTS_HEADER}A100,bert,64,8,2\nA100,bert,64,16,3\nT4,bert,64,4,1\nT4,bert,64,8,0\n"
    rows = read_itp(write(tmp_path, THROUGHPUTS, text))
    assert {row.model for row in rows} == {"bert (global batch size 64)"}
    assert [row.shape.level for row in rows] == ["node", "cluster", "node", "cluster"]


def test_pollux_placements_are_gangs_and_the_slowest_of_one_shape_counts(tmp_path: Path) -> None:
    text = f"{PLACEMENTS_HEADER}bert,4,8,0.5,0\nbert,13,8,2.0,0\nbert,22,8,4.0,0\nbert,112,8,3.2,0\n"
    assert read_pollux(write(tmp_path, PLACEMENTS, text)) == (
        Measurement(
            "bert (local batch size 8)", Shape("T4", 4, "node"), 2.0, "Pollux (OSDI'21), profiles, placement 4"
        ),
        Measurement(
            "bert (local batch size 8)", Shape("T4", 4, "cluster"), 0.25, "Pollux (OSDI'21), profiles, placement 22"
        ),
    )


def test_gavel_json_is_read_with_pairs_and_spread_types(tmp_path: Path) -> None:
    text = {
        "v100": {
            "('ResNet-50 (batch size 64)', 2)": {"null": 7.5, "('LM (batch size 5)', 2)": [3.0, 4]},
            "('LM (batch size 5)', 2)": {"null": 9},
        },
        "v100_unconsolidated": {"('LM (batch size 5)', 2)": {"null": 0}},
    }
    path = tmp_path / "throughputs.json"
    path.write_text(json.dumps(text))
    source = "Gavel (OSDI'20), throughputs, throughputs.json"
    table = read_gavel_json(path)
    assert table.measurements == (
        Measurement("ResNet-50 (batch size 64)", Shape("v100", 2, "node"), 7.5, source),
        Measurement("LM (batch size 5)", Shape("v100", 2, "node"), 9.0, source),
        Measurement("LM (batch size 5)", Shape("v100", 2, "cluster"), 0.0, source),
    )
    models = ("ResNet-50 (batch size 64)", "LM (batch size 5)")
    assert table.pairs == (PairMeasurement(models, Shape("v100", 2, "node"), (3.0, 4.0), source),)


READERS: dict[str, Callable[[Path], object]] = {
    ISOLATED: read_gavel_csv,
    COLOCATED: read_gavel_colocated,
    THROUGHPUTS: read_itp,
    PLACEMENTS: read_pollux,
}


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        (ISOLATED, "table,gpu_type\nsimulation,k80\n", ":1: consolidated: is missing; fetch the file again"),
        (ISOLATED, f"{ISOLATED_HEADER}simulation,k80,1,LM,1,fast\n", ":2: steps_per_s: is 'fast'; give a number of"),
        (ISOLATED, f"{ISOLATED_HEADER}simulation,k80,1,LM,1,-1\n", ":2: steps_per_s: is '-1'; give a number of at"),
        (ISOLATED, f"{ISOLATED_HEADER}simulation,k80,1,LM,1,inf\n", ":2: steps_per_s: is 'inf'; give a number of at"),
        (ISOLATED, f"{ISOLATED_HEADER}simulation,k80,1,LM,0,1\n", ":2: scale_factor: is '0'; give a whole number from"),
        (ISOLATED, f"{ISOLATED_HEADER}simulation,k80,2,LM,1,1\n", ":2: consolidated: is '2'; give 0 or 1"),
        (ISOLATED, f"{ISOLATED_HEADER}simulation,k80,1,,1,1\n", ":2: job_type: is ''; give a name"),
        (
            ISOLATED,
            f"{ISOLATED_HEADER}physical,k80,1,LM,1,1\n",
            ": table: has no table 'simulation'; use simulation or",
        ),
        (COLOCATED, f"{COLOCATED_HEADER}k80,A,2,B,1,1,1\n", ":2: scale_b: is '1'; only gangs of one size share GPUs"),
        (THROUGHPUTS, f"{THROUGHPUTS_HEADER}H100,bert,64,8,2\n", ":2: gpu_type: is 'H100'; use A100 or T4"),
        (PLACEMENTS, f"{PLACEMENTS_HEADER}bert,1a,8,1,0\n", ":2: placement: is '1a'; give one digit a node"),
        (PLACEMENTS, f"{PLACEMENTS_HEADER}bert,1,8,0,0\n", ":2: step_time: is '0'; give a number above 0"),
    ],
)
def test_a_wrong_row_is_one_line_with_file_line_field_and_remedy(
    tmp_path: Path, name: str, text: str, complaint: str
) -> None:
    data = write(tmp_path, name, text)
    with pytest.raises(InputError) as error:
        READERS[name](data)
    assert str(error.value).startswith(f"{data / name}{complaint}")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", READERS)
def test_a_missing_file_names_the_data_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="is not in the data folder; name the folder that holds it with --data"):
        READERS[name](tmp_path)


@pytest.mark.parametrize("name", READERS)
def test_a_file_that_is_not_csv_is_one_line(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True)
    path.write_bytes(b"\x1f\x8b\x00broken" if name.endswith(".gz") else b'a,"b\n\xff\xfe')
    with pytest.raises(InputError) as error:
        READERS[name](tmp_path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", ":1: not JSON: Expecting property name enclosed in double quotes; fix it"),
        ("[]", ": is not a mapping; use Gavel's throughput format"),
        ("{}", ": has no speeds; name a throughput file of Gavel's format"),
        ('{"v100": {"LM": {"null": 1}}}', ": v100: has the job type 'LM'; write ('job type', gpus)"),
        ('{"v100": {"(\'LM\', 1)": {"null": "x"}}}', ": v100 / ('LM', 1) / null: is 'x'; give a number of at least 0"),
        ('{"v100": {"(\'LM\', 1)": {"null": NaN}}}', ": v100 / ('LM', 1) / null: is nan; give a number of at least 0"),
        (
            '{"v100": {"(\'LM\', 1)": {"(\'A\', 1)": [1]}}}',
            ": v100 / ('LM', 1) / ('A', 1): is [1]; give two speeds: [own, other]",
        ),
        (
            '{"v100": {"(\'LM\', 1)": {"(\'A\', 2)": [1, 1]}}}',
            ": v100 / ('LM', 1) / ('A', 2): is a gang of 2; only gangs of one size share GPUs: give 1",
        ),
    ],
)
def test_a_wrong_throughput_file_is_one_line(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "throughputs.json"
    path.write_text(text)
    with pytest.raises(InputError) as error:
        read_gavel_json(path)
    assert str(error.value) == f"{path}{complaint}"


def test_a_throughput_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read: No such file or directory; name a file"):
        read_gavel_json(tmp_path / "none.json")


# The published tables


def tables(data: Path) -> dict[str, tuple[Measurement, ...]]:
    return {"gavel": read_gavel_csv(data), "itp": read_itp(data), "pollux": read_pollux(data)}


def curves(rows: Sequence[Measurement], accelerator: str) -> list[ScalingCurve]:
    known = SpeedBook(tuple(rows))
    return [curve for model in known.models if (curve := known.curve(model, accelerator)) is not None]


def left_out_errors(rows: Sequence[Measurement], accelerator: str) -> list[float]:
    """The relative error of each gang's speed, as estimated from all other rows, where they are enough for that."""
    errors = []
    for row in rows:
        if row.shape.accelerator == accelerator and row.shape.gpus > 1 and row.steps_per_second > 0:
            others = tuple(other for other in rows if other.model == row.model and other is not row)
            estimate = SpeedBook(others).steps_per_second(row.model, row.shape)
            if estimate:
                errors.append(abs(estimate / row.steps_per_second - 1))
    return errors


# Median over the curves of the largest error on their own rows, and median error of a row that was left out. They are
# upper limits with a little room; docs/reference/speeds.md has the figures.
@pytest.mark.parametrize(
    ("table", "accelerator", "own", "left_out"),
    [
        ("gavel", "k80", 0.13, 0.09),
        ("gavel", "p100", 0.09, 0.10),
        ("gavel", "v100", 0.36, 0.30),
        ("itp", "A100", 0.04, 0.05),
        ("itp", "T4", 0.10, 0.12),
        ("pollux", "T4", 0.30, 0.07),
    ],
)
def test_curves_fit_the_published_tables(data: Path, table: str, accelerator: str, own: float, left_out: float) -> None:
    rows = tables(data)[table]
    assert np.median([curve.error_max for curve in curves(rows, accelerator)]) < own
    assert np.median(left_out_errors(rows, accelerator)) < left_out


def test_the_published_tables_have_the_rows_that_their_authors_published(data: Path) -> None:
    assert {name: len(rows) for name, rows in tables(data).items()} == {"gavel": 492, "itp": 178, "pollux": 986}
    assert len(read_gavel_colocated(data)) == 5277
