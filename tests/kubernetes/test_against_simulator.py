"""What a real control plane does with gangs is what the simulator says."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubernetes.against_simulator import compare, draw
from kubernetes.cluster import simulated_cluster
from kubernetes.control_plane import ControlPlane

pytestmark = pytest.mark.kubernetes


def test_a_few_gangs_take_about_as_long_as_simulated(control_plane: ControlPlane, tmp_path: Path) -> None:
    """One-sided: a machine that is slow makes real gangs take longer, never simulated ones."""
    with simulated_cluster(control_plane, tmp_path / "kubelets", scale=0.02) as cluster:
        found = compare(cluster, tmp_path / "service", draw(12, 0, 3.0, (8.0, 8.0, 20.0)))
        print(found)
        assert len(found.real) == 12
        assert found.difference < 0.5


@pytest.mark.nightly
def test_sixty_gangs(control_plane: ControlPlane, tmp_path: Path) -> None:
    with simulated_cluster(control_plane, tmp_path / "kubelets", scale=0.02) as cluster:
        found = compare(cluster, tmp_path / "service", draw(60, 1, 4.0, (20.0, 25.0, 75.0)))
        print(found)
        assert abs(found.difference) < 0.25
