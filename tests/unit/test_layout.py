"""Levels above nodes, chains of any depth, cells divided among chains, pinned cells."""

from __future__ import annotations

import numpy as np
import pytest

from horae.cells.binding import CellBinding
from horae.model.chain_layout import layout_of, private_cluster
from horae.model.cluster import Cluster, Node
from horae.model.errors import ClusterError
from horae.model.reserved_cells import proportional
from horae.model.serialization import from_plain, to_plain
from horae.model.setup import PoolSpec

# Two rows of two racks of two nodes.
DEEP = Cluster(
    "deep",
    tuple(
        Node(f"n{n}", "H100", 8, levels=(("socket", 4),), above=(("rack", f"r{n // 2}"), ("row", f"w{n // 4}")))
        for n in range(8)
    ),
)


def racks(*sizes: int) -> Cluster:
    """Racks of so many nodes; 0 is a node without a rack."""
    nodes = [
        Node(f"n{rack}-{number}", "H100", 8, rack=f"r{rack}" if size else "")
        for rack, size in enumerate(sizes)
        for number in range(size or 1)
    ]
    return Cluster("racks", tuple(nodes))


def division(cluster: Cluster, **reserved: dict[str, int]) -> dict[str, dict[str, dict[str, int]]]:
    layout = layout_of(cluster, reserved)
    return {
        tenant: {
            name: {layout.territory.chains[kind.chain].name: count for kind, count in split.items()}
            for name, split in named.items()
        }
        for tenant, named in layout.named.items()
    }


def test_rack_is_short_for_the_finest_level_above() -> None:
    written_out = Node("n", "H100", 8, above=(("rack", "r"), ("row", "w")))
    assert written_out == Node("n", "H100", 8, rack="r", above=(("row", "w"),))
    assert DEEP.levels == ("gpu", "socket", "node", "rack", "row", "cluster")


def test_a_cluster_comes_back_from_its_plain_form() -> None:
    assert from_plain(Cluster, to_plain(DEEP)) == DEEP


def test_a_chain_has_all_levels() -> None:
    (chain,) = layout_of(DEEP, {}).territory.chains
    assert (chain.types, chain.fanout) == (("gpu", "socket", "node", "rack", "row"), (1, 4, 2, 2, 2))
    assert chain.nodes == tuple(f"n{n}" for n in range(8))


def test_a_cell_whose_children_are_not_alike_falls_apart_into_them() -> None:
    nodes = (
        *(Node(f"a{n}", "H100", 8, above=(("rack", f"a{n // 2}"), ("row", "a"))) for n in range(4)),
        *(Node(f"b{n}", "H100", 8, above=(("rack", f"b{n // 2}"), ("row", "b"))) for n in range(3)),
        Node("c0", "H100", 4, above=(("rack", "c"), ("row", "c"))),
        Node("c1", "H100", 8, above=(("rack", "c"), ("row", "c"))),
    )
    chains = layout_of(Cluster("odd", nodes), {}).territory.chains
    assert {chain.name: (chain.types, chain.nodes) for chain in chains} == {
        "H100x8r4": (("gpu", "node", "rack", "row"), ("a0", "a1", "a2", "a3")),
        "H100x8r2": (("gpu", "node", "rack"), ("b0", "b1")),
        "H100x8r1": (("gpu", "node", "rack"), ("b2",)),
        "H100x4r0": (("gpu", "node"), ("c0",)),
        "H100x8r0": (("gpu", "node"), ("c1",)),
    }


def test_a_reserved_row_has_its_racks() -> None:
    own = private_cluster(layout_of(DEEP, {"t": {"h100.row": 1}}), 0)
    assert (own.levels, own.gpu_count) == (DEEP.levels, 32)
    assert [np.diff(first).tolist() for first in own.first_gpu[2:]] == [[8] * 4, [16, 16], [32], [32]]


@pytest.mark.parametrize(
    ("count", "weights", "want"),
    [(6, (4, 2), (4, 2)), (5, (4, 2), (3, 2)), (1, (2, 2), (1, 0)), (3, (0, 9), (0, 3)), (4, (1, 1, 2), (1, 1, 2))],
)
def test_largest_remainders(count: int, weights: tuple[int, ...], want: tuple[int, ...]) -> None:
    assert proportional(count, weights) == want


def test_cells_that_several_chains_have_are_divided_in_proportion_to_what_is_left() -> None:
    cluster = racks(4, 4, 2, 2, 0, 0)  # 8, 4 and 2 nodes
    assert division(cluster, a={"h100.node": 7}) == {"a": {"h100.node": {"H100x8r4": 4, "H100x8r2": 2, "H100x8r0": 1}}}
    found = division(cluster, a={"h100.node": 3}, b={"H100x8r4.rack": 2})
    assert found == {"a": {"h100.node": {"H100x8r2": 2, "H100x8r0": 1}}, "b": {"H100x8r4.rack": {"H100x8r4": 2}}}


def test_a_division_gives_way_where_others_would_not_fit() -> None:
    """In proportion, the first tenant has a rack of four nodes and one of two, which leaves six of eight nodes."""
    cluster = racks(4, 4, 2, 2)
    assert division(cluster, a={"h100.rack": 2}) == {"a": {"h100.rack": {"H100x8r4": 1, "H100x8r2": 1}}}
    found = division(cluster, a={"h100.rack": 2}, b={"h100.node": 8})
    assert found == {"a": {"h100.rack": {"H100x8r2": 2}}, "b": {"h100.node": {"H100x8r4": 8}}}
    with pytest.raises(ClusterError) as caught:
        division(cluster, a={"h100.rack": 2}, b={"h100.node": 9})
    assert str(caught.value).endswith("are left; promise fewer cells, or add hardware")


POOLS = (
    PoolSpec("nlp", tenants=("nlp",), cells={"h100.node": 2}, pinned={"gold": "n1", "wide": "row/w1"}),
    PoolSpec("vision", tenants=("vision",), pinned={"gold": "n0/socket/1"}),
    PoolSpec("spare"),
)


def test_a_pinned_cell_has_the_same_gpus_for_good_and_is_no_part_of_the_other_cells() -> None:
    tenancy = CellBinding(DEEP, POOLS)
    gpus = {key: np.flatnonzero(mask) for key, mask in tenancy.pins.items()}
    assert {key: (str(DEEP.names(tenancy.real[where])[0]), len(where)) for key, where in gpus.items()} == {
        ("nlp", "gold"): ("n1/0", 8),
        ("nlp", "wide"): ("n4/0", 32),
        ("vision", "gold"): ("n0/4", 4),
    }
    assert (tenancy.is_pinned == np.logical_or.reduce(list(tenancy.pins.values()))).all()
    assert not (tenancy.is_pinned & ~tenancy.is_virtual).any()
    own = tenancy.owned(POOLS[0])
    assert (int(own.sum()), int((own & ~tenancy.is_pinned).sum())) == (56, 16)

    cells = np.flatnonzero(own & ~tenancy.is_pinned)
    tenancy.bind(cells)
    tenancy.claim(cells, claimed=True)
    # n0 is pinned in part, n1 and the second row as a whole.
    assert {gpu.node for gpu in DEEP.names(tenancy.real[cells])} == {"n2", "n3"}


def test_work_without_a_guarantee_may_use_a_pinned_cell_while_it_is_idle() -> None:
    tenancy = CellBinding(DEEP, POOLS)
    gold = np.flatnonzero(tenancy.pins["nlp", "gold"])
    behind = tenancy.guests(gold)
    for claimed in (False, True, False):
        tenancy.claim(gold, claimed=claimed)
        assert (tenancy.closed[behind] == claimed).all()
        assert tenancy.real[gold].tolist() == list(range(8, 16))


def test_pinned_cells_are_there_after_a_restart_and_cover_jobs_that_ask_for_them() -> None:
    tenancy, again = CellBinding(DEEP, POOLS), CellBinding(DEEP, POOLS)
    tenancy.bind(np.flatnonzero(tenancy.owned(POOLS[0]) & ~tenancy.is_pinned)[:8])
    assert len(tenancy.dump()["bound"]) == 1 + 3  # the pinned ones are always bound
    again.restore(tenancy.dump())
    assert (again.real == tenancy.real).all()
    found = again.adopt("nlp", np.arange(8, 12), pin="gold")
    assert found is not None
    assert again.real[found].tolist() == [8, 9, 10, 11]
    assert again.adopt("nlp", np.arange(8, 12)) is None
    assert again.adopt("nlp", np.arange(6, 12), pin="gold") is None


def test_a_pinned_cell_on_bad_hardware_is_closed_and_comes_back() -> None:
    tenancy = CellBinding(DEEP, POOLS)
    gold = tenancy.pins["nlp", "gold"]
    for bad in (True, False):
        tenancy.set_bad(np.arange(8, 16), bad=bad)
        assert (tenancy.closed[gold] == bad).all()


def test_static_binding_leaves_pinned_cells_where_they_are() -> None:
    tenancy = CellBinding(DEEP, POOLS, is_static=True)
    assert tenancy.real[tenancy.pins["vision", "gold"]].tolist() == [4, 5, 6, 7]
    assert len(set(tenancy.real[tenancy.is_virtual].tolist())) == 60
