"""Random histories of faults on a real control plane; the kubelets check that no GPU is used twice."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from postgres import server

from kubernetes.cluster import simulated_cluster
from kubernetes.control_plane import ControlPlane
from kubernetes.fault_history import FaultHistory

pytestmark = pytest.mark.kubernetes
SEED = int(os.environ.get("HORAE_SEED", "0"))


def _run(control_plane: ControlPlane, folder: Path, seed: int, store: str = "") -> None:
    with simulated_cluster(control_plane, folder / "kubelets", refused=0.01, seed=seed) as cluster:
        history = FaultHistory(cluster, folder, seed, store)
        try:
            history.run()
        finally:
            print("faults:", *history.told)
        assert cluster.kubelets.violations() == []


@pytest.mark.parametrize("seed", range(4))
def test_every_gang_finishes_and_no_gpu_is_used_twice(control_plane: ControlPlane, tmp_path: Path, seed: int) -> None:
    _run(control_plane, tmp_path, 1000 * SEED + seed)


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    with server() as running:
        yield running.new_database()


def test_two_services_one_paused(control_plane: ControlPlane, tmp_path: Path, store: str) -> None:
    _run(control_plane, tmp_path, 1000 * SEED + 4, store)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(5, 25))
def test_more_histories(control_plane: ControlPlane, tmp_path: Path, seed: int) -> None:
    _run(control_plane, tmp_path, 1000 * SEED + seed)
