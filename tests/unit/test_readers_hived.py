"""HiveD's configuration as a cluster, and what is said about wrong ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from horae.model.cluster import Node
from horae.model.errors import InputError
from horae.traces.clusters.hived import PinnedCell, VirtualCluster, read_hived

CONFIG = """\
kubeApiServerAddress: http://10.0.0.1:8080
physicalCluster:
  cellTypes:
    P100-SWITCH: {childCellType: P100, childCellNumber: 2}
    P100-NODE: {childCellType: P100-SWITCH, childCellNumber: 2, isNodeLevel: true}
    P100-RACK: {childCellType: P100-NODE, childCellNumber: 2}
    T4-NODE: {childCellType: T4, childCellNumber: 2, isNodeLevel: true}
  physicalCells:
  - cellType: P100-RACK
    cellChildren:
    - cellAddress: 10.0.0.2
    - cellAddress: 10.0.0.3
      pinnedCellId: whole
      cellChildren:
      - cellAddress: 0
      - cellAddress: 1
        pinnedCellId: half
  - cellType: T4-NODE
    cellAddress: 10.0.0.4
    cellChildren: null
  - {cellType: T4-NODE, cellAddress: 10.0.0.2}
virtualClusters:
  a:
    virtualCells:
    - {cellType: P100-RACK.P100-NODE.P100-SWITCH, cellNumber: 1}
    - {cellType: T4-NODE, cellNumber: 2}
  b:
    pinnedCells:
    - pinnedCellId: half
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "hived.yaml"
    path.write_text(text)
    return path


def test_nodes_levels_racks_and_virtual_clusters_are_found(tmp_path: Path) -> None:
    config = read_hived(write(tmp_path, CONFIG))
    inner = (("P100-SWITCH", 2),)
    assert config.cluster.nodes == (
        # A machine with GPUs of two types is a node for each of them.
        Node("10.0.0.2:P100", "P100", 4, levels=inner, rack="0"),
        Node("10.0.0.3", "P100", 4, levels=inner, rack="0"),
        Node("10.0.0.4", "T4", 2),
        Node("10.0.0.2:T4", "T4", 2),
    )
    assert config.cluster.levels == ("gpu", "P100-SWITCH", "node", "rack", "cluster")
    assert config.chains == {"P100-RACK": ("10.0.0.2:P100", "10.0.0.3"), "T4-NODE": ("10.0.0.4", "10.0.0.2:T4")}
    assert config.virtual_clusters == {
        "a": VirtualCluster((("P100-RACK.P100-NODE.P100-SWITCH", 1), ("T4-NODE", 2)), ()),
        "b": VirtualCluster((), ("half",)),
    }
    assert config.pinned == {
        "whole": PinnedCell("P100-NODE", "0/10.0.0.3", ("10.0.0.3",)),
        "half": PinnedCell("P100-SWITCH", "0/10.0.0.3/1", ("10.0.0.3",)),
    }


WRONG = {
    "a type is inside itself": (
        ("{childCellType: P100, ", "{childCellType: P100-NODE, "),
        ":4: physicalCluster.cellTypes.P100-SWITCH: type 'P100-SWITCH' never comes down to a GPU",
    ),
    "a type has no children": (
        ("{childCellType: T4, childCellNumber: 2,", "{childCellNumber: 2,"),
        ":7: physicalCluster.cellTypes.T4-NODE: type 'T4-NODE' never comes down to a GPU",
    ),
    "no type is a node": ((", isNodeLevel: true", ""), "is in no node; set isNodeLevel: true"),
    "a node holds nodes": (
        ("{childCellType: P100, childCellNumber: 2}", "{childCellType: P100, childCellNumber: 2, isNodeLevel: true}"),
        ":11: physicalCluster.physicalCells.0.cellChildren.0: type 'P100-NODE' is a node that holds nodes",
    ),
    "a node is listed twice": (("10.0.0.4", "10.0.0.2"), "node '10.0.0.2:T4' is listed twice"),
    "a child is missing": (
        ("    - cellAddress: 10.0.0.2\n", ""),
        ":10: physicalCluster.physicalCells.0.cellChildren: has 1 children, where a P100-RACK has 2",
    ),
    "a child is of another type": (
        ("- cellAddress: 10.0.0.2\n", "- {cellAddress: 10.0.0.2, cellType: T4-NODE}\n"),
        "cellType: is a T4-NODE, where a P100-NODE should be",
    ),
    "a pinned name is taken": (("pinnedCellId: whole", "pinnedCellId: half"), "'half' is taken by 0/10.0.0.3"),
    "a pinned cell is unknown": (
        ("    - pinnedCellId: half", "    - pinnedCellId: none"),
        ":29: virtualClusters.b.pinnedCells.0.pinnedCellId: there is no pinned cell 'none'",
    ),
    "a virtual cell is of an unknown type": (
        ("{cellType: T4-NODE, cellNumber: 2}", "{cellType: V100, cellNumber: 2}"),
        "there is no physical cell of type 'V100'; begin with one of P100-RACK, T4-NODE",
    ),
    "a virtual cell goes up": (
        ("P100-RACK.P100-NODE.P100-SWITCH", "P100-RACK.P100-SWITCH.P100-NODE"),
        "does not lead from a cell to one inside it; go down from P100-RACK to P100-NODE",
    ),
    "a type is of more GPUs than there are": (
        ("{childCellType: P100, childCellNumber: 2}", "{childCellType: P100, childCellNumber: 999999999}"),
        ":4: physicalCluster.cellTypes.P100-SWITCH: type 'P100-SWITCH' has more than 1,000,000 GPUs",
    ),
    "a number of cells is negative": (("cellNumber: 1}", "cellNumber: -1}"), "cellNumber: is -1"),
    "there are no physical cells": ((CONFIG[CONFIG.index("  - cellType: P100-RACK") :], ""), "is empty"),
}


@pytest.mark.parametrize(("change", "want"), WRONG.values(), ids=WRONG)
def test_a_wrong_configuration_is_one_line_with_its_place(tmp_path: Path, change: tuple[str, str], want: str) -> None:
    assert change[0] in CONFIG
    path = write(tmp_path, CONFIG.replace(*change))
    with pytest.raises(InputError) as caught:
        read_hived(path)
    assert str(caught.value).startswith(f"{path}:")
    assert want in str(caught.value)
    assert "\n" not in str(caught.value)
