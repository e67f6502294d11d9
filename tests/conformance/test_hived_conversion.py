"""HiveD's configurations as cluster files: all of them that are valid, with pinned cells and all levels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from command_line import horae
from conformance_folder import FOLDER

from horae.cells.binding import CellBinding
from horae.model.errors import ClusterError
from horae.policies.registry import make_policy
from horae.traces.clusters.file import read_cluster
from horae.traces.clusters.hived import read_hived
from horae.traces.clusters.hived_conversion import hived_pools

CONFIGS = sorted((FOLDER / "hived" / "configs").glob("*.yaml"))
INVALID = "design-invalid"


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_a_configuration_becomes_a_cluster_with_the_same_cells_and_pinned_gpus(path: Path, tmp_path: Path) -> None:
    config = read_hived(path)
    cluster, pools = hived_pools(config)
    if path.stem == INVALID:
        with pytest.raises(ClusterError):
            CellBinding(cluster, pools)
        assert "exceed chain CT1-NODE" in horae("cluster", "convert", path).complaint
        return
    target = tmp_path / "lab.yaml"
    assert horae("cluster", "convert", path, "--write", target).code == 0
    written = read_cluster(target, make_policy, CellBinding)
    assert [node.name for node in written.cluster.nodes] == [node.name for node in cluster.nodes]
    assert written.cluster.levels == cluster.levels
    for one, two in zip(written.cluster.first_gpu, cluster.first_gpu, strict=True):
        assert one.tolist() == two.tolist()
    ours, files = CellBinding(cluster, pools), CellBinding(written.cluster, written.pools)
    assert ours.real.tolist() == files.real.tolist()
    assert {pool.name: pool.cells for pool in pools} == {pool.name: pool.cells for pool in written.pools}
    for virtual in config.territory.reservations:
        gpus = {kind: config.territory.chains[kind.chain].gpus[kind.level] for kind in virtual.cells}
        reserved = sum(count * gpus[kind] for kind, count in virtual.cells.items())
        pool = next((each for each in pools if each.name == virtual.tenant), None)
        own = ours.owned(pool) & ~ours.is_pinned if pool is not None else np.zeros(0, dtype=bool)
        assert int(own.sum()) == reserved
        for name in virtual.pinned:
            real = ours.real[ours.pins[virtual.tenant, name]]
            nodes = {gpu.node for gpu in cluster.names(real)}
            assert nodes == set(config.pinned[name].nodes)
