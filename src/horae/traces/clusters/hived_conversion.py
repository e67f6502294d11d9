"""Converts HiveD's virtual clusters to pools:
cells by the names of Horae's chains, and pinned cells by their places."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import yaml

from horae.model.chain_layout import layout_of
from horae.model.chains import Chain, Pin
from horae.model.cluster import GPU, NODE, RACK, Cluster, Node
from horae.model.errors import ClusterError
from horae.model.setup import PoolSpec
from horae.traces.clusters.file import NodeGroup
from horae.traces.clusters.hived import HivedConfig, level_above

SPARE = "spare"


def hived_pools(config: HivedConfig) -> tuple[Cluster, tuple[PoolSpec, ...]]:
    """The cluster, one pool per virtual cluster that has cells, and one for all other jobs.

    Whether the cells fit together is not checked here. A virtual cluster that cannot be a tenant, or a pinned cell that
    two of them have, is a ClusterError.
    """
    chains, pins = config.territory.chains, {pin.name: pin for pin in config.territory.pins}
    ours = {node: chain.name for chain in layout_of(config.cluster, {}).territory.chains for node in chain.nodes}
    owner: dict[str, str] = {}
    pools = []
    for reservation in config.territory.reservations:
        cells: dict[str, int] = {}
        for kind, count in reservation.cells.items():
            if count:  # several chains of HiveD may map to one of Horae
                chain = chains[kind.chain]
                name = f"{ours[chain.nodes[0]]}.{level_name(chain, kind.level)}"
                cells[name] = cells.get(name, 0) + count
        for pin in reservation.pinned:
            if pin in owner:
                problem = f"pinned cell {pin!r} is given to {owner[pin]!r} and to {reservation.tenant!r}"
                raise ClusterError(problem, field="virtualClusters", remedy="give it to one, once")
            owner[pin] = reservation.tenant
        pinned = {name: _place(config, pins[name]) for name in reservation.pinned}
        if reservation.tenant == SPARE:
            problem = f"virtual cluster {SPARE!r} has the name of the pool for all other work"
            raise ClusterError(problem, field="virtualClusters", remedy="choose another name")
        if cells or pinned:
            tenants = (reservation.tenant,)
            pools.append(PoolSpec(reservation.tenant, tenants=tenants, cells=cells, pinned=pinned))
    return config.cluster, (*pools, PoolSpec(SPARE))


def level_name(chain: Chain, level: int) -> str:
    """Horae's name for a level of a HiveD chain."""
    if level > chain.node_level:
        return level_above(chain.types[level], level - chain.node_level - 1)
    return NODE if level == chain.node_level else GPU if level == 0 else chain.types[level]


def first_node(config: HivedConfig, pin: Pin) -> str:
    chain = config.territory.chains[pin.kind.chain]
    return chain.nodes[chain.cell_in(0, pin.cell * chain.gpus[pin.kind.level], chain.node_level)]


def _place(config: HivedConfig, pin: Pin) -> str:
    chain, level, node = config.territory.chains[pin.kind.chain], pin.kind.level, first_node(config, pin)
    if level == chain.node_level:
        return node
    name = level_name(chain, level)
    if level > chain.node_level:
        return f"{name}/{dict(config.cluster.nodes[config.cluster.node_index[node]].groups)[name]}"
    return f"{node}/{name}/{pin.cell % (chain.node_gpus // chain.gpus[level])}"


# HiveD's configuration as a Horae cluster file


def converted(config: HivedConfig, file: Path) -> str:
    """The cluster file: nodes with all their levels, and tenants with their cells and pinned cells."""
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
    """By pin: the places of cells above nodes, by their names in the file."""
    nodes = {node.name: node for entry in entries for node in NodeGroup.model_validate(entry).nodes()}
    found = {}
    for pin in config.territory.pins:
        chain = config.territory.chains[pin.kind.chain]
        if pin.kind.level > chain.node_level:
            level = level_name(chain, pin.kind.level)
            found[pin.name] = f"{level}/{dict(nodes[first_node(config, pin)].groups)[level]}"
    return found


def _entries(config: HivedConfig) -> list[dict[str, Any]]:
    """Groups adjacent nodes that are equal, in equal cells, into one entry."""
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
