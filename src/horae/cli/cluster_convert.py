"""HiveD's configuration as a cluster file of ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import yaml

from horae.model.cells import RACK, Node
from horae.model.errors import ClusterError
from horae.model.layout import layout_of
from horae.traces.cluster_file import NodeGroup
from horae.traces.readers.hived_config import HivedConfig
from horae.traces.readers.hived_pools import first_node, hived_pools, level_name


def converted(config: HivedConfig, file: Path) -> str:
    """Nodes with all their levels, and tenants with their cells and pinned cells."""
    try:
        cluster, pools = hived_pools(config)
    except ClusterError as error:
        raise error.located(file=str(file)) from None
    by_name = {pool.name: pool for pool in pools}
    entries = _entries(config)
    places = _places(config, entries)
    tenants: dict[str, Any] = {}
    for reservation in config.territory.reservations:
        pool = by_name.get(reservation.tenant)
        pinned = {name: places.get(name, place) for name, place in pool.pinned.items()} if pool else {}
        given = {"cells": dict(pool.cells) if pool else {}, "pinned": pinned}
        tenants[reservation.tenant] = {field: value for field, value in given.items() if value}
    content = {"name": cluster.name, "nodes": entries, "tenants": tenants}
    return yaml.safe_dump(content, sort_keys=False, default_flow_style=None, width=120)


def _places(config: HivedConfig, entries: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """By pin: the places of cells above nodes, as the file calls them."""
    nodes = {node.name: node for entry in entries for node in NodeGroup.model_validate(entry).nodes()}
    found = {}
    for pin in config.territory.pins:
        chain = config.territory.chains[pin.kind.chain]
        if pin.kind.level > chain.node_level:
            level = level_name(chain, pin.kind.level)
            found[pin.name] = f"{level}/{dict(nodes[first_node(config, pin)].groups)[level]}"
    return found


def _entries(config: HivedConfig) -> list[dict[str, Any]]:
    """Neighbours that are alike, in cells alike, in one entry."""
    cluster = config.cluster
    shapes: dict[str, tuple[tuple[str, int], ...]] = {}  # by node: levels above it, with the nodes of a cell
    for chain in layout_of(cluster, {}).territory.chains:
        outer = range(chain.node_level + 1, len(chain.types))
        shape = tuple((chain.types[level], chain.gpus[level] // chain.node_gpus) for level in outer)
        shapes |= dict.fromkeys(chain.nodes, shape)

    def likeness(node: Node) -> tuple[object, ...]:
        return node.accelerator, node.gpus, node.levels, shapes[node.name]

    found: list[dict[str, Any]] = []
    for _, alike in groupby(cluster.nodes, key=likeness):
        nodes = list(alike)
        names, shape = [node.name for node in nodes], shapes[nodes[0].name]
        entry: dict[str, Any] = {"name": names[0] if len(names) == 1 else names}
        entry |= {"gpu": nodes[0].accelerator, "gpus": nodes[0].gpus}
        if nodes[0].levels:
            entry["levels"] = dict(nodes[0].levels)
        if shape:
            entry |= {RACK: shape[0][1]} if [level for level, _ in shape] == [RACK] else {"above": dict(shape)}
        found.append(entry)
    return found
