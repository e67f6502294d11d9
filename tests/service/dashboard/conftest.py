"""A store with two tenants and the dashboard over it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from service.api.harness import Clients, World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, answer_seconds=2.0, loop_seconds=1.0)


@pytest.fixture
def send(world: World) -> Iterator[Clients]:
    with world.app() as clients:
        yield clients
