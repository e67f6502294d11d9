"""A cluster from a table of its nodes (CSV or Parquet), such as the nodes of Alibaba's open GPU trace of 2023.

| what | columns |
|---|---|
| Alibaba | `sn`, `gpu` (how many), `model` (GPU type), `cpu_milli`, `memory_mib` |
| any other | `name`, `gpus`, `gpu` (GPU type); if there, `cpus` and `memory` (bytes, or 1TB) |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf
from pathlib import Path
from typing import NamedTuple

from horae.model.cluster import Cluster, Node
from horae.model.errors import ClusterError, JobError
from horae.model.safe_text import quoted
from horae.model.setup import PoolSpec, Setup
from horae.traces.clusters.file import NODE_GPUS_MAX, RESTART_SECONDS
from horae.traces.readers.raw_table import LINE, RawTable, read_raw
from horae.traces.units import memory_bytes

SUFFIXES = (".csv", ".parquet")


class _Columns(NamedTuple):
    name: str
    gpus: str
    accelerator: str
    cpus: str
    memory: str
    cpus_of: Callable[[str], float]
    memory_of: Callable[[str], float]


_OWN = _Columns("name", "gpus", "gpu", "cpus", "memory", float, memory_bytes)
_ALIBABA = _Columns(
    "sn", "gpu", "model", "cpu_milli", "memory_mib", lambda text: float(text) / 1000, lambda text: float(text) * 2.0**20
)


def is_node_table(path: Path) -> bool:
    return path.suffix in SUFFIXES


def read_node_table(path: Path, seed: int = 0) -> Setup:
    """The nodes that have GPUs, in one pool."""
    try:
        raw = read_raw(path)
        columns = _ALIBABA if "sn" in raw.columns else _OWN
        raw.require(columns.name, columns.gpus, columns.accelerator)
        if raw.faults:
            raise raw.faults[0].error(str(path))
    except JobError as error:
        raise ClusterError(
            error.problem, file=str(path), line=error.line, field=error.field, remedy=error.remedy
        ) from None
    nodes = tuple(_nodes(raw, columns))
    if not nodes:
        raise ClusterError("has no node with GPUs", file=str(path), remedy="name a table with one row per node")
    try:
        cluster = Cluster(path.stem, nodes, RESTART_SECONDS)
    except ClusterError as error:
        raise error.located(file=str(path)) from None
    return Setup(cluster, (PoolSpec("all"),), seed)


def _nodes(raw: RawTable, columns: _Columns) -> Iterator[Node]:
    for row in raw.cells.iter_rows(named=True):
        gpus = _number(raw, row, columns.gpus, float)
        if not gpus:
            continue
        if gpus != int(gpus) or gpus > NODE_GPUS_MAX:
            raise _wrong(raw, row, columns.gpus, f"give a whole number up to {NODE_GPUS_MAX}")
        for column in (columns.name, columns.accelerator):
            if row[column] is None:
                raise _wrong(raw, row, column, "fill it in")
        yield Node(
            name=str(row[columns.name]),
            accelerator=str(row[columns.accelerator]),
            gpus=int(gpus),
            cpus=_limit(raw, row, columns.cpus, columns.cpus_of),
            memory_bytes=_limit(raw, row, columns.memory, columns.memory_of),
        )


def _limit(raw: RawTable, row: dict[str, object], column: str, read: Callable[[str], float]) -> float:
    """An amount that is unlimited where it is not given."""
    return inf if row.get(column) is None else _number(raw, row, column, read)


def _number(raw: RawTable, row: dict[str, object], column: str, read: Callable[[str], float]) -> float:
    try:
        value = read(str(row[column]))
    except ValueError:
        value = -1.0
    if not 0 <= value < inf:
        raise _wrong(raw, row, column, "give a number of 0 or more")
    return value


def _wrong(raw: RawTable, row: dict[str, object], column: str, remedy: str) -> ClusterError:
    given = row[column]
    problem = "is missing" if given is None else f"is {quoted(str(given))}"
    line = row[LINE]
    assert isinstance(line, int)
    return ClusterError(problem, file=str(raw.path), line=line, field=column, remedy=remedy)
