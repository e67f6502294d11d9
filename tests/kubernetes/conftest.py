"""A control plane for the whole run, and nodes and namespaces for each test.

Tests that need a control plane are marked `kubernetes`. They take minutes, so they run only when HORAE_CONTROL_PLANE
names the program, as `make test-kubernetes` does; otherwise they are reported as skipped.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubernetes.cluster import Cluster, simulated_cluster
from kubernetes.control_plane import ControlPlane


@pytest.fixture(scope="session")
def control_plane_binary() -> Path:
    named = os.environ.get("HORAE_CONTROL_PLANE")
    if not named:
        pytest.skip("needs a Kubernetes control plane: `make test-kubernetes` builds it and runs this test")
    binary = Path(named)
    assert binary.is_file(), f"HORAE_CONTROL_PLANE: {binary} is no file: `make -C tools/controlplane build` builds it"
    return binary


@pytest.fixture(scope="session")
def shared_control_plane(
    control_plane_binary: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
    with ControlPlane(control_plane_binary, tmp_path_factory.mktemp("control-plane")) as running:
        yield running


@pytest.fixture
def control_plane(shared_control_plane: ControlPlane) -> ControlPlane:
    """All its parts run, whatever the test before has done to them."""
    shared_control_plane.start()
    return shared_control_plane


@pytest.fixture
def cluster(control_plane: ControlPlane, tmp_path: Path) -> Iterator[Cluster]:
    """Kubelets that start and stop pods a hundred times faster than in life and refuse none without a reason."""
    with simulated_cluster(control_plane, tmp_path) as running:
        yield running
        assert running.kubelets.violations() == []
