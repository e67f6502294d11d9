"""The change that a request asks for: texts of users become policies, nodes and cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from horae.cells.binding import CellBinding
from horae.forks.change import ALL, Change, Policy
from horae.model.errors import InputError
from horae.model.setup import Cadence, Setup
from horae.policies.registry import make_policy
from horae.traces.clusters.file import read_cluster
from horae.traces.clusters.node_table import is_node_table, read_node_table
from horae.traces.clusters.shorthand import parse_cluster

EVERY = "*"


def change_of(plain: Mapping[str, Any]) -> Change:
    """The change in a request as plain data; see `WhatIfRequest`."""
    if plain.get("cluster") is not None and plain.get("nodes"):
        raise InputError("there are a cluster file and nodes", field="nodes", remedy="give one of the two")
    cluster = plain.get("cluster")
    setup = None if cluster is None else _file(cluster)
    if plain.get("nodes"):
        setup = _quick(plain["nodes"], "nodes")
    more = _quick(plain["more_nodes"], "more_nodes").cluster.nodes if plain.get("more_nodes") else ()
    return Change(
        {_pool(pool): _policy(each) for pool, each in plain.get("policies", {}).items()},
        setup,
        more,
        {tenant: dict(cells) for tenant, cells in plain.get("cells", {}).items()},
        dict(plain.get("weights", {})),
        None if plain.get("cadence") is None else Cadence(plain["cadence"]),
        plain.get("round_seconds"),
    )


def cluster_file(path: Path) -> Setup:
    """A cluster file, or a table of nodes."""
    return read_node_table(path) if is_node_table(path) else read_cluster(path, make_policy, CellBinding)


def _file(text: str) -> Setup:
    with TemporaryDirectory() as folder:
        path = Path(folder, "cluster.yaml")
        path.write_text(text, encoding="utf-8")
        try:
            return cluster_file(path)
        except InputError as error:  # without the name of a file that the user does not know
            where = f"line {error.line}: " if error.line else ""
            what = f"{error.field}: " if error.field else ""
            raise InputError(f"{where}{what}{error.problem}", field="cluster", remedy=error.remedy) from None


def _quick(texts: Sequence[str], field: str) -> Setup:
    try:
        return parse_cluster(texts)
    except InputError as error:
        raise InputError(error.problem, field=field, remedy=error.remedy) from None


def _pool(name: str) -> str:
    return ALL if name == EVERY else name


def _policy(plain: Mapping[str, Any]) -> Policy:
    make_policy(plain["policy"], plain.get("options", {}))
    return Policy(plain["policy"], dict(plain.get("options", {})))
