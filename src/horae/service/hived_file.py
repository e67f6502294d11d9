"""HiveD's configuration as that of the service: its cells as nodes, its virtual clusters as tenants."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import yaml

from horae.engines.kubernetes.hived_notes import HivedNode
from horae.model.errors import ClusterError
from horae.traces.clusters.file import NodeGroup
from horae.traces.clusters.hived import HivedConfig, read_hived
from horae.traces.clusters.hived_conversion import converted, level_name


class HivedCluster(NamedTuple):
    nodes: list[NodeGroup]
    tenants: dict[str, dict[str, Any]]  # by virtual cluster: its cells and pinned cells
    named: dict[str, HivedNode]  # by node: as the file names it


def read_hived_cluster(path: Path) -> HivedCluster:
    config = read_hived(path)
    content = yaml.safe_load(converted(config, path))
    nodes = [NodeGroup.model_validate(each) for each in content["nodes"]]
    return HivedCluster(nodes, content["tenants"], _named(config, path))


def _named(config: HivedConfig, path: Path) -> dict[str, HivedNode]:
    found: dict[str, HivedNode] = {}
    for chain, machines, addresses in zip(config.territory.chains, config.machines, config.gpu_addresses, strict=True):
        levels = {level_name(chain, level): kind for level, kind in enumerate(chain.types)}
        for node, machine, gpus in zip(chain.nodes, machines, addresses, strict=True):
            if node != machine:
                problem = f"machine {machine} has GPUs of several types"
                remedy = "leave all types but one out: Kubernetes cannot count them apart"
                raise ClusterError(problem, file=str(path), field="physicalCluster.physicalCells", remedy=remedy)
            if not all(address.isdecimal() for address in gpus):
                problem = f"GPU {next(each for each in gpus if not each.isdecimal())!r} of {machine} is no number"
                remedy = "give its index, as NVIDIA_VISIBLE_DEVICES has it"
                raise ClusterError(problem, file=str(path), field="physicalCluster.physicalCells", remedy=remedy)
            found[node] = HivedNode(chain.name, gpus, levels)
    return found
