"""The annotations by which HiveD tells a pod, and itself after a restart, where the pod and its gang are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from horae.engines.kubernetes import names
from horae.engines.kubernetes.members import Place
from horae.engines.kubernetes.objects import LeaseNote


@dataclass(frozen=True)
class HivedNode:
    """A node as HiveD's configuration names it and what it has."""

    chain: str = ""  # the type of the top-level cell that holds it
    gpus: tuple[str, ...] = ()  # addresses, by our numbers
    cell_types: Mapping[str, str] = field(default_factory=dict)  # by level, as the scheduler names it


UNKNOWN = HivedNode()  # of a cluster that was not configured by HiveD's file: our own names are used


def hived_notes(
    lease: LeaseNote, places: Sequence[Place], place: Place, nodes: Mapping[str, HivedNode]
) -> dict[str, str]:
    """The annotations of a pod that gets one of the places of its gang."""
    cells = dict(zip(lease.gpus, lease.cells, strict=True)) if lease.cells else {}
    by_size: dict[int, list[dict[str, Any]]] = {}
    for each in places:
        node = nodes.get(each[0].node, UNKNOWN)
        levels = [cells.get(gpu, "") for gpu in each]
        placement = {
            "physicalNode": each[0].node,
            "physicalLeafCellIndices": _addresses(each, node),
            "preassignedCellTypes": [node.cell_types.get(level, level) for level in levels],
        }
        by_size.setdefault(len(each), []).append(placement)
    own = nodes.get(place[0].node, UNKNOWN)
    isolation = _addresses(place, own)
    content = {
        "node": place[0].node,
        "leafCellIsolation": isolation,
        "cellChain": own.chain,
        "affinityGroupBindInfo": [{"podPlacements": placements} for placements in by_size.values()],
    }
    return {
        names.HIVED_PLACEMENT: yaml.dump(content, Dumper=_Dumper, sort_keys=False, default_flow_style=False),
        names.HIVED_GPUS: ",".join(map(str, isolation)),
    }


class _Dumper(yaml.SafeDumper):
    """Writes equal lists each in full, as HiveD does."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _addresses(place: Place, node: HivedNode) -> list[int]:
    named = [node.gpus[gpu.number] if gpu.number < len(node.gpus) else str(gpu.number) for gpu in place]
    return [int(address) for address in named]
