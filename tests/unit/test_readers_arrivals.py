"""Traces as jobs of a cluster: speeds from tables, whole nodes, and rows that this cluster cannot hold."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from horae.model.cluster import Cluster, Node
from horae.model.errors import InputError
from horae.model.jobs import Arrival
from horae.model.shapes import Shape
from horae.traces.formats import read_trace, write_trace
from horae.traces.jobs import arrivals
from horae.traces.trace import SCHEMA, Fault, Trace

LAB = Cluster(
    "lab",
    (
        *(Node(f"a{index}", "A100", 8, rack="left") for index in range(4)),
        *(Node(f"v{index}", "V100", 4, rack="right") for index in range(4)),
    ),
)


class Table:
    """Speeds by (GPU type, GPUs, level); what is not listed is not known."""

    def __init__(self, speeds: Mapping[tuple[str, int, str], float]) -> None:
        self.speeds = speeds

    def steps_per_second(self, model: str, shape: Shape) -> float | None:
        return self.speeds.get((shape.accelerator, shape.gpus, shape.level)) if model == "bert" else None


def trace(**columns: Any) -> Trace:
    rows = {"id": "a", "submit": 0.0, "gpus": 4, "duration": 10.0, "line": 2, **columns}
    schema = {name: SCHEMA[name] for name in rows}
    return Trace("test", pl.DataFrame({name: [value] for name, value in rows.items()}, schema=schema))


def options(arrival: Arrival) -> list[tuple[str, str, float]]:
    return [(shape.accelerator, shape.level, speed) for shape, speed in arrival.job.options]


SPEEDS: dict[str, tuple[dict[tuple[str, int, str], float], dict[str, Any], list[tuple[str, str, float]]]] = {
    "the fastest type comes first": (
        {("A100", 4, "node"): 2.0, ("V100", 4, "node"): 3.0},
        {},
        [("V100", "node", 3.0), ("A100", "node", 2.0)],
    ),
    "a row that names types has its own order": (
        {("A100", 4, "node"): 2.0, ("V100", 4, "node"): 3.0},
        {"gpu_type": "A100|V100"},
        [("A100", "node", 2.0), ("V100", "node", 3.0)],
    ),
    "a type of which nothing is known is left out": ({("A100", 4, "node"): 2.0}, {}, [("A100", "node", 2.0)]),
    "a type where it does not fit is left out": (
        {("A100", 4, "node"): 2.0, ("V100", 4, "node"): 0.0},
        {},
        [("A100", "node", 2.0)],
    ),
    "spread, where that is allowed, it has a speed of its own": (
        {("A100", 4, "node"): 2.0, ("A100", 4, "cluster"): 1.5},
        {"level": "cluster", "gpu_type": "A100"},
        [("A100", "node", 2.0), ("A100", "cluster", 1.5)],
    ),
    "a larger cell is never faster": (
        {("A100", 4, "node"): 2.0, ("A100", 4, "cluster"): 2.5},
        {"level": "cluster", "gpu_type": "A100"},
        [("A100", "cluster", 2.0)],
    ),
    "a gang larger than a node is spread": (
        {("A100", 16, "cluster"): 5.0},
        {"gpus": 16, "gpu_type": "A100"},
        [("A100", "cluster", 5.0)],
    ),
    "a slowdown of its own counts from the speed in a node": (
        {("A100", 4, "node"): 3.0, ("A100", 4, "cluster"): 1.0},
        {"level": "cluster", "gpu_type": "A100", "slowdown": "cluster=2"},
        [("A100", "rack", 3.0), ("A100", "cluster", 1.5)],
    ),
    "a speed of its own wins": (
        {("A100", 4, "node"): 3.0},
        {"speed": "7", "gpu_type": "A100"},
        [("A100", "node", 7.0)],
    ),
    "of a model that no table knows the speed is 1": (
        {("A100", 4, "node"): 3.0},
        {"model": "other"},
        [("A100", "node", 1.0), ("V100", "node", 1.0)],
    ),
}


@pytest.mark.parametrize(("speeds", "columns", "want"), SPEEDS.values(), ids=SPEEDS)
def test_speeds_of_models(
    speeds: dict[tuple[str, int, str], float], columns: dict[str, Any], want: list[tuple[str, str, float]]
) -> None:
    (made,), faults = arrivals(trace(**{"model": "bert", **columns}), LAB, Table(speeds))
    assert (options(made), faults) == (want, ())
    assert made.job.steps_total == 10.0 * want[0][2]


def test_a_model_that_fits_nowhere_is_a_fault() -> None:
    speeds = Table({("A100", 4, "node"): 0.0, ("V100", 4, "node"): 0.0})
    made, faults = arrivals(trace(model="bert"), LAB, speeds)
    assert (made, faults) == ([], (Fault(2, "model", "'bert' does not fit on 4 x A100, V100", "ask for more GPUs"),))


def test_users_models_and_tenants_go_into_the_job() -> None:
    (made,), _ = arrivals(trace(user="ann", model="bert", tenant="nlp"), LAB)
    assert (made.job.user, made.job.model, made.job.tenant) == ("ann", "bert", "nlp")


@pytest.mark.parametrize(
    ("gpus", "columns", "want"), [(16, {}, 8), (8, {}, 1), (16, {"member_gpus": 2}, 2), (4, {}, 1)]
)
def test_gangs_larger_than_a_node_take_whole_nodes_if_told_so(gpus: int, columns: dict[str, Any], want: int) -> None:
    (made,), _ = arrivals(trace(gpus=gpus, gpu_type="A100", **columns), LAB, whole_nodes=True)
    assert made.job.member_gpus == want


def test_rows_that_the_cluster_cannot_hold_are_faults_with_their_lines() -> None:
    types = {"a": "A100", "b": "H100", "c": "A100", "d": "H100"}
    rows = [trace(id=name, line=line, gpu_type=kind).table for line, (name, kind) in enumerate(types.items())]
    made, faults = arrivals(Trace("test", pl.concat(rows)), LAB)
    assert [arrival.job.id for arrival in made] == ["a", "c"]
    assert [(fault.line, fault.field) for fault in faults] == [(1, "gpu_type"), (3, "gpu_type")]


def test_a_row_without_work_is_a_fault() -> None:
    _, faults = arrivals(trace(duration=None), LAB)
    assert [fault.field for fault in faults] == ["duration"]


@pytest.mark.parametrize("name", ["x.csv", "x.csv.gz", "x.parquet"])
def test_what_is_written_is_read_back_and_has_the_same_bytes_each_time(tmp_path: Path, name: str) -> None:
    given = trace(user='say "hi", x', duration=0.1, gpu_type="A100|V100", command="a\nb")
    path = tmp_path / name
    write_trace(given, path)
    first = path.read_bytes()
    write_trace(given, path)
    assert path.read_bytes() == first
    assert read_trace(path).table.drop("line").equals(given.table.drop("line"))


def test_a_file_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"x.xls: ends in none .*; name a file that ends in .csv, .csv.gz, .parquet"):
        write_trace(trace(), tmp_path / "x.xls")
    for name in ("none/x.csv", "none/x.parquet"):
        with pytest.raises(InputError, match="name a file that can be written"):
            write_trace(trace(), tmp_path / name)


def test_steps_of_a_model_that_no_table_knows_are_no_amount_of_time() -> None:
    """Taken for seconds they would run for weeks."""
    jobs, faults = arrivals(trace(duration=None, steps=1e6, model="gpt"), LAB, Table({}))
    assert jobs == []
    assert [(fault.field, fault.problem) for fault in faults] == [
        ("model", "how fast 'gpt' runs on the cluster's GPUs is not known, and its work is given in steps")
    ]
    assert "--speeds" in faults[0].remedy


@pytest.mark.parametrize("known", [{"speed": "2"}, {"model": None}, {"steps": None, "duration": 10.0}])
def test_steps_are_fine_with_a_speed_or_without_a_model_and_so_is_a_run_time(known: dict[str, Any]) -> None:
    jobs, faults = arrivals(trace(**{"duration": None, "steps": 100.0, "model": "gpt", **known}), LAB, Table({}))
    assert (len(jobs), faults) == (1, ())
