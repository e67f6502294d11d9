"""Draws a cluster as a tree. Equal neighbours are drawn once, with their number."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from horae.model.cluster import GPU, NODE, Cell, Cluster
from horae.model.safe_text import counted


def draw(cluster: Cluster) -> str:
    size = f"{counted(cluster.gpu_count, 'GPU')}, {counted(len(cluster.nodes), 'node')}"
    lines = [f"{cluster.name}: {size}, levels {' < '.join(cluster.levels)}"]
    chains = list(cluster.trees())
    for index, chain in enumerate(chains):
        last = index == len(chains) - 1
        lines.append(f"{'└── ' if last else '├── '}{chain.accelerator}: {counted(chain.gpus, 'GPU')}")
        lines.extend(_children(chain, "    " if last else "│   ", cluster.levels[cluster.node_level + 1 : -1]))
    return "\n".join(lines)


def _children(cell: Cell, indent: str, outer: Sequence[str]) -> Iterator[str]:
    while len(cell.children) == 1 and cell.children[0].level not in (NODE, GPU):
        cell = cell.children[0]  # a level that divides nothing here
    groups = [list(group) for _, group in groupby((_own(child, outer) for child in cell.children), key=_form)]
    for index, group in enumerate(groups):
        last = index == len(groups) - 1
        yield f"{indent}{'└── ' if last else '├── '}{_label(group)}"
        if group[0].children:
            yield from _children(group[0], indent + ("    " if last else "│   "), outer)


def _own(cell: Cell, outer: Sequence[str]) -> Cell:
    """The cell itself, or the first named or inner cell where it only stands in for a level that does not exist
    here."""
    while cell.level in outer and not cell.name:
        cell = cell.children[0]
    return cell


def _form(cell: Cell) -> tuple[object, ...]:
    """The form of a cell: cells of one form look alike from here down."""
    return (cell.level, cell.gpus, tuple(_form(child) for child in cell.children))


def _label(group: list[Cell]) -> str:
    first, count = group[0], len(group)
    times = f"{count} x " if count > 1 else ""
    if first.level == "gpu":
        return f"{times}gpu"
    names = ""
    if first.name:
        names = f" ({first.name}" + (f" … {group[-1].name})" if count > 1 else ")")
    return f"{times}{first.level} of {counted(first.gpus, 'GPU')}{names}"
