"""HiveD's configuration as a cluster file of ours."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

import yaml

from horae.model.cells import GPU, NODE, Node
from horae.model.chains import Chain
from horae.model.errors import ClusterError
from horae.model.layout import RACK, layout_of
from horae.traces.readers.hived_config import HivedConfig


def converted(config: HivedConfig, file: Path) -> str:
    """Nodes with their levels and racks, and tenants with their cells; what a cluster file cannot say is refused."""
    chains = config.territory.chains
    pinned = [name for reservation in config.territory.reservations for name in reservation.pinned]
    if pinned:
        names = ", ".join(pinned)
        raise _beyond(file, f"pinned cells ({names}) have no place in a cluster file", "remove them")
    for chain in chains:
        if chain.top > chain.node_level + 1:
            inner = ", ".join(chain.types[chain.node_level + 1 : -1])
            problem = f"chain {chain.name} has levels between node and top ({inner}); a cluster file has racks only"
            raise _beyond(file, problem, "leave them out")
    ours = {node: chain.name for chain in layout_of(config.cluster, {}).territory.chains for node in chain.nodes}
    tenants: dict[str, Any] = {}
    for reservation in config.territory.reservations:
        cells: dict[str, int] = {}
        for kind, count in reservation.cells.items():
            if count:  # two chains of HiveD's may be one of ours
                chain = chains[kind.chain]
                name = f"{ours[chain.nodes[0]]}.{_level(chain, kind.level)}"
                cells[name] = cells.get(name, 0) + count
        tenants[reservation.tenant] = {"cells": cells} if cells else {}
    content = {"name": config.cluster.name, "nodes": _groups(config.cluster.nodes), "tenants": tenants}
    return yaml.safe_dump(content, sort_keys=False, default_flow_style=None, width=120)


def _beyond(file: Path, problem: str, remedy: str) -> ClusterError:
    return ClusterError(problem, file=str(file), remedy=remedy)


def _level(chain: Chain, level: int) -> str:
    if level in (0, chain.node_level):
        return NODE if level == chain.node_level else GPU
    return RACK if level > chain.node_level else chain.types[level]


def _groups(nodes: tuple[Node, ...]) -> list[Mapping[str, Any]]:
    """Neighbours that are alike, and in racks alike, in one entry."""
    by_rack = groupby(nodes, key=lambda node: (node.accelerator, node.rack or node.name))
    racks = [list(members) for _, members in by_rack]

    def likeness(rack: list[Node]) -> tuple[str, int, tuple[tuple[str, int], ...], int]:
        node = rack[0]
        return node.accelerator, node.gpus, node.levels, len(rack) if node.rack else 0

    found: list[Mapping[str, Any]] = []
    for (accelerator, gpus, levels, size), alike in groupby(racks, key=likeness):
        names = [node.name for rack in alike for node in rack]
        entry: dict[str, Any] = {"name": names[0] if len(names) == 1 else names, "gpu": accelerator, "gpus": gpus}
        if levels:
            entry["levels"] = dict(levels)
        if size:
            entry["rack"] = size
        found.append(entry)
    return found
