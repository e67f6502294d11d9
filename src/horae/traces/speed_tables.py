"""Readers of measured speeds: the public tables of Gavel, ITP (ElasticFlow) and Pollux.

What a step is differs from table to table; the model's name says which batch size it was measured with:

- Gavel (OSDI'20): steps of one GPU's batch, summed over the gang. Level `node` where consolidated, else `cluster`.
- ITP (ElasticFlow, ASPLOS'23): steps of a fixed global batch. The table does not say where the GPUs were; a gang that
  fits a server of that testbed (8 A100, 4 T4) is taken to have been in one node, a larger one in the cluster.
- Pollux (OSDI'21): global steps, 1 / step time, by local batch size; a larger gang does more work in each. Of several
  placements over nodes the slowest counts, because a level promises no more.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from math import isfinite
from pathlib import Path
from typing import NamedTuple

import polars as pl

from horae.model.cluster import CLUSTER, NODE
from horae.model.errors import InputError
from horae.model.safe_text import brief
from horae.model.shapes import Shape
from horae.model.speeds import Measurement, PairMeasurement

GAVEL = "Gavel (OSDI'20)"
ITP = "ElasticFlow (ASPLOS'23)"
POLLUX = "Pollux (OSDI'21)"
ITP_GPUS_PER_NODE: Mapping[str, int] = {"A100": 8, "T4": 4}
POLLUX_ACCELERATOR = "T4"
UNCONSOLIDATED = "_unconsolidated"
ALONE = "null"  # the key of a job type's own speed in Gavel's JSON
GPUS_MAX = 1_000_000

_FETCH = "fetch the file again"
_JOB_TYPE = re.compile(r"""\(\s*(['"])(?P<model>.+)\1\s*,\s*(?P<gpus>[0-9]{1,6})\s*\)""")
_PLACEMENT = re.compile("[1-9]+")


class GavelTable(NamedTuple):
    measurements: tuple[Measurement, ...]
    pairs: tuple[PairMeasurement, ...]


class _Row(NamedTuple):
    """One line of a CSV file, with its fields as text."""

    path: Path
    line: int
    fields: Mapping[str, str]

    def wrong(self, field: str, remedy: str) -> InputError:
        return InputError(f"is {self.fields[field]!r}", file=str(self.path), line=self.line, field=field, remedy=remedy)

    def text(self, field: str) -> str:
        if not self.fields[field].strip():
            raise self.wrong(field, "give a name")
        return self.fields[field].strip()

    def speed(self, field: str) -> float:
        value = _number(self.fields[field])
        if value is None or value < 0:
            raise self.wrong(field, "give a number of at least 0")
        return value

    def seconds(self, field: str) -> float:
        value = _number(self.fields[field])
        if value is None or value <= 0 or not isfinite(1.0 / value):
            raise self.wrong(field, "give a number above 0")
        return value

    def gpus(self, field: str) -> int:
        value = _whole(self.fields[field])
        if value is None or not 1 <= value <= GPUS_MAX:
            raise self.wrong(field, f"give a whole number from 1 to {GPUS_MAX}")
        return value

    def flag(self, field: str) -> bool:
        if self.fields[field].strip() not in ("0", "1"):
            raise self.wrong(field, "give 0 or 1")
        return self.fields[field].strip() == "1"


def read_gavel_csv(data: Path, table: str = "simulation") -> tuple[Measurement, ...]:
    """Reads `gavel/throughputs_isolated.csv`: one of its two tables, `simulation` or `physical`."""
    path = data / "gavel" / "throughputs_isolated.csv"
    columns = ("table", "gpu_type", "consolidated", "job_type", "scale_factor", "steps_per_s")
    source = f"{GAVEL}, throughputs, {table} table"
    found = tuple(_gavel_row(row, source) for row in _rows(path, columns) if row.text("table") == table)
    if not found:
        raise InputError(f"has no table {table!r}", file=str(path), field="table", remedy="use simulation or physical")
    return found


def _gavel_row(row: _Row, source: str) -> Measurement:
    level = NODE if row.flag("consolidated") else CLUSTER
    shape = Shape(row.text("gpu_type"), row.gpus("scale_factor"), level)
    return Measurement(row.text("job_type"), shape, row.speed("steps_per_s"), source)


def read_gavel_colocated(data: Path) -> tuple[PairMeasurement, ...]:
    """`gavel/throughputs_colocated.csv.gz`: two jobs on the same GPUs of one node."""
    path = data / "gavel" / "throughputs_colocated.csv.gz"
    columns = ("gpu_type", "job_type_a", "scale_a", "job_type_b", "scale_b", "steps_per_s_a", "steps_per_s_b")
    return tuple(_pair_row(row) for row in _rows(path, columns))


def _pair_row(row: _Row) -> PairMeasurement:
    gpus = row.gpus("scale_a")
    if row.gpus("scale_b") != gpus:
        raise row.wrong("scale_b", f"only gangs of one size share GPUs: give {gpus}, as scale_a does")
    return PairMeasurement(
        (row.text("job_type_a"), row.text("job_type_b")),
        Shape(row.text("gpu_type"), gpus, NODE),
        (row.speed("steps_per_s_a"), row.speed("steps_per_s_b")),
        f"{GAVEL}, throughputs, colocated",
    )


def read_itp(data: Path) -> tuple[Measurement, ...]:
    """`itp/throughputs.csv`: strong scaling at a fixed global batch."""
    columns = ("gpu_type", "model", "global_batch_size", "num_gpu", "iters_per_s")
    return tuple(_itp_row(row) for row in _rows(data / "itp" / "throughputs.csv", columns))


def _itp_row(row: _Row) -> Measurement:
    gpu_type, gpus = row.text("gpu_type"), row.gpus("num_gpu")
    if gpu_type not in ITP_GPUS_PER_NODE:
        raise row.wrong("gpu_type", f"use {' or '.join(ITP_GPUS_PER_NODE)}")
    level = NODE if gpus <= ITP_GPUS_PER_NODE[gpu_type] else CLUSTER
    model = f"{row.text('model')} (global batch size {row.gpus('global_batch_size')})"
    return Measurement(model, Shape(gpu_type, gpus, level), row.speed("iters_per_s"), f"{ITP}, throughputs")


def read_pollux(data: Path) -> tuple[Measurement, ...]:
    """`pollux/profile_placements.csv.gz`: step times by placement (the digits: GPUs on each node) and local batch."""
    path = data / "pollux" / "profile_placements.csv.gz"
    slowest: dict[tuple[str, Shape], Measurement] = {}
    for row in _rows(path, ("model", "placement", "local_bsz", "step_time")):
        measured = _pollux_row(row)
        key = (measured.model, measured.shape)
        if key not in slowest or measured.steps_per_second < slowest[key].steps_per_second:
            slowest[key] = measured
    return tuple(slowest.values())


def _pollux_row(row: _Row) -> Measurement:
    placement = row.text("placement")
    if not _PLACEMENT.fullmatch(placement):
        raise row.wrong("placement", "give one digit a node, its GPUs: 44 for 8 GPUs on two nodes")
    model = f"{row.text('model')} (local batch size {row.gpus('local_bsz')})"
    level = NODE if len(placement) == 1 else CLUSTER
    shape = Shape(POLLUX_ACCELERATOR, sum(map(int, placement)), level)
    return Measurement(model, shape, 1.0 / row.seconds("step_time"), f"{POLLUX}, profiles, placement {placement}")


def read_gavel_json(path: Path) -> GavelTable:
    """Gavel's public throughput file: `{gpu_type: {"('job type', gpus)": {"null": alone, "('other', gpus)": [own,
    other]}}}`; types that end in `_unconsolidated` hold gangs spread over nodes."""
    measurements: list[Measurement] = []
    pairs: list[PairMeasurement] = []
    source = f"{GAVEL}, throughputs, {path.name}"
    for gpu_type, job_types in _members(_load_json(path), path, ""):
        accelerator = gpu_type.removesuffix(UNCONSOLIDATED)
        level = NODE if accelerator == gpu_type else CLUSTER
        for job_type, partners in _members(job_types, path, gpu_type):
            model, gpus = _job_type(job_type, path, gpu_type)
            shape = Shape(accelerator, gpus, level)
            for partner, speed in _members(partners, path, f"{gpu_type} / {job_type}"):
                place = f"{gpu_type} / {job_type} / {partner}"
                if partner == ALONE:
                    measurements.append(Measurement(model, shape, _json_speed(speed, path, place), source))
                else:
                    other = _job_type(partner, path, place)
                    if other[1] != gpus:
                        remedy = f"only gangs of one size share GPUs: give {gpus}"
                        raise InputError(f"is a gang of {other[1]}", file=str(path), field=place, remedy=remedy)
                    pairs.append(PairMeasurement((model, other[0]), shape, _json_pair(speed, path, place), source))
    if not measurements:
        raise InputError("has no speeds", file=str(path), remedy="name a throughput file of Gavel's format")
    return GavelTable(tuple(measurements), tuple(pairs))


def _load_json(path: Path) -> object:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", file=str(path), remedy="name a file") from None
    except json.JSONDecodeError as error:
        raise InputError(f"not JSON: {error.msg}", file=str(path), line=error.lineno, remedy="fix it") from None
    except (UnicodeDecodeError, RecursionError):
        raise InputError("not JSON in UTF-8", file=str(path), remedy="name a throughput file") from None


def _members(value: object, path: Path, field: str) -> Iterator[tuple[str, object]]:
    if not isinstance(value, dict):
        raise InputError("is not a mapping", file=str(path), field=field, remedy="use Gavel's throughput format")
    yield from value.items()


def _job_type(text: str, path: Path, field: str) -> tuple[str, int]:
    match = _JOB_TYPE.fullmatch(text)
    if match is None or int(match["gpus"]) < 1:
        remedy = "write ('job type', gpus)"
        raise InputError(f"has the job type {text!r}", file=str(path), field=field, remedy=remedy)
    return match["model"], int(match["gpus"])


def _json_speed(value: object, path: Path, field: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not (value >= 0 and isfinite(value)):
        raise InputError(f"is {brief(value)}", file=str(path), field=field, remedy="give a number of at least 0")
    return float(value)


def _json_pair(value: object, path: Path, field: str) -> tuple[float, float]:
    if not isinstance(value, list) or len(value) != 2:
        raise InputError(f"is {brief(value)}", file=str(path), field=field, remedy="give two speeds: [own, other]")
    return _json_speed(value[0], path, field), _json_speed(value[1], path, field)


def _rows(path: Path, columns: tuple[str, ...]) -> Iterator[_Row]:
    table = _read_csv(path)
    for column in columns:
        if column not in table.columns:
            raise InputError("is missing", file=str(path), line=1, field=column, remedy=_FETCH)
    for index, cells in enumerate(table.select(columns).fill_null("").iter_rows()):
        yield _Row(path, index + 2, dict(zip(columns, cells, strict=True)))  # below the header


def _read_csv(path: Path) -> pl.DataFrame:
    if not path.is_file():
        remedy = "name the folder that holds it with --data or HORAE_DATA"
        raise InputError("is not in the data folder", file=str(path), remedy=remedy)
    try:
        return pl.read_csv(path, infer_schema=False)
    except (OSError, pl.exceptions.PolarsError) as error:
        problem = str(error).strip().partition("\n")[0]
        raise InputError(f"not CSV: {problem}", file=str(path), remedy=_FETCH) from None


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if isfinite(value) else None


def _whole(text: str) -> int | None:
    return int(text) if re.fullmatch(r"\s*[0-9]{1,9}\s*", text) else None
