"""Worlds for the tests of the API."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from service.api.harness import Clients, FakeLoop, World


@pytest.fixture
def world(tmp_path: Path, store_url: str) -> World:
    return World(tmp_path, store_url, answer_seconds=2.0, loop_seconds=1.0)


@pytest.fixture
def send(world: World) -> Iterator[Clients]:
    with world.app() as clients:
        yield clients


@pytest.fixture
def loop(world: World) -> Iterator[FakeLoop]:
    with FakeLoop(world) as fake:
        yield fake
