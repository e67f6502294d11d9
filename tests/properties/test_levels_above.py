"""Clusters with up to four levels above the node: cells are nested ranges, and numbers are stable."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from horae.model.chain_layout import layout_of
from horae.model.cluster import Cluster, Node

LEVELS = ("rack", "row", "hall", "site")
Above = tuple[tuple[str, str], ...]


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """Nodes in any order, of two types, in cells of which some levels are missing; a cell has one parent."""
    homes: list[Above] = [()]
    width = draw(st.integers(1, 3))
    for level in reversed(LEVELS[: draw(st.integers(0, len(LEVELS)))]):  # coarse ones first: each finds its parent
        coarser = list(homes)
        homes += [((level, f"c{number}"), *draw(st.sampled_from(coarser))) for number in range(width)]
    return Cluster(
        "drawn",
        tuple(
            Node(
                f"n{number}",
                draw(st.sampled_from(["a", "b"])),
                draw(st.sampled_from([2, 4])),
                above=draw(st.sampled_from(homes)),
            )
            for number in range(draw(st.integers(1, 12)))
        ),
    )


@given(clusters())
def test_cells_of_every_level_are_ranges_inside_those_of_the_next(cluster: Cluster) -> None:
    for finer, coarser in pairwise(cluster.first_gpu):
        assert (np.diff(finer) > 0).all()
        assert set(coarser.tolist()) <= set(finer.tolist())


@given(clusters())
def test_a_named_cell_of_one_type_is_one_range(cluster: Cluster) -> None:
    first = cluster.first_gpu[cluster.node_level][:-1]
    for level in range(cluster.node_level + 1, len(cluster.levels) - 1):
        found: dict[tuple[str, str], set[int]] = {}
        for node, cell in zip(cluster.nodes, cluster.cell_of_gpu[level][first].tolist(), strict=True):
            name = dict(node.groups).get(cluster.levels[level])
            if name is not None:
                found.setdefault((node.accelerator, name), set()).add(cell)
        assert all(len(cells) == 1 for cells in found.values())
        assert len(set.union(set(), *found.values())) == len(found)


@given(clusters())
def test_a_cluster_that_is_rebuilt_from_its_nodes_has_the_same_numbers(cluster: Cluster) -> None:
    again = Cluster(cluster.name, cluster.nodes, cluster.restart_seconds)
    assert again == cluster
    for one, two in zip(again.first_gpu, cluster.first_gpu, strict=True):
        assert one.tolist() == two.tolist()


@given(clusters())
def test_chains_hold_every_gpu_once_and_their_cells_are_cells_of_the_cluster(cluster: Cluster) -> None:
    layout = layout_of(cluster, {})
    assert sorted(np.concatenate(layout.gpus).tolist()) == list(range(cluster.gpu_count))
    for chain, gpus in zip(layout.territory.chains, layout.gpus, strict=True):
        for level, name in enumerate(chain.types):
            number = cluster.levels.index(name)
            cells = cluster.cell_of_gpu[number][gpus].reshape(-1, chain.gpus[level])
            assert (cells == cells[:, :1]).all()
            assert (np.diff(cluster.first_gpu[number])[cells[:, 0]] == chain.gpus[level]).all()
