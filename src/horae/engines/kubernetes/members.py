"""Which GPUs of a lease each member of a gang gets, where members have sizes of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from horae.model.cluster import Gpu

Place: TypeAlias = tuple[Gpu, ...]
CellSizes: TypeAlias = Callable[[str], Sequence[int]]  # by node: GPUs of its inner cells, ascending


def places_of_members(gpus: Sequence[Gpu], members: Sequence[int], cell_sizes: CellSizes) -> list[Place] | None:
    """The GPUs of each member, in the order of the members; None if they do not use all GPUs or would span nodes.

    On its node, a member is in as small a cell as possible, as HiveD places it.
    """
    by_node: dict[str, list[Gpu]] = {}
    for gpu in sorted(gpus, key=lambda gpu: (gpu.node, gpu.number)):
        by_node.setdefault(gpu.node, []).append(gpu)
    order = sorted(range(len(members)), key=lambda index: -members[index])
    nodes = _nodes([members[index] for index in order], {node: len(found) for node, found in by_node.items()})
    if nodes is None:
        return None
    places: list[Place] = [()] * len(members)
    for index, node in zip(order, nodes, strict=True):
        places[index] = _closest(by_node[node], members[index], cell_sizes(node))
        by_node[node] = [gpu for gpu in by_node[node] if gpu not in places[index]]
    return places


def _nodes(members: Sequence[int], left: Mapping[str, int]) -> list[str] | None:
    """The node of each member, the largest first, so that all GPUs are used."""
    if len(set(members)) <= 1:
        return _nodes_of_equals(members, left)
    tried: set[int] = set()
    for node, gpus in sorted(left.items(), key=lambda item: (item[1], item[0])):
        if gpus < members[0] or gpus in tried:
            continue
        tried.add(gpus)
        rest = _nodes(members[1:], {**left, node: gpus - members[0]})
        if rest is not None:
            return [node, *rest]
    return None


def _nodes_of_equals(members: Sequence[int], left: Mapping[str, int]) -> list[str] | None:
    size = members[0] if members else 1
    found = [node for node, gpus in left.items() for _ in range(gpus // size)]
    return found if len(found) * size == sum(left.values()) and len(found) == len(members) else None


def _closest(gpus: Sequence[Gpu], count: int, sizes: Sequence[int]) -> Place:
    """So many of these GPUs of one node: in the smallest cell that has them, and of such cells in the fullest."""
    for size in sizes:
        cells: dict[int, list[Gpu]] = {}
        for gpu in gpus:
            cells.setdefault(gpu.number // size, []).append(gpu)
        fitting = [cell for cell in cells.values() if len(cell) >= count]
        if fitting:
            return tuple(min(fitting, key=len)[:count])
    return tuple(gpus[:count])
