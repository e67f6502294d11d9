"""A service for the commands, started once; every test has a world of its own."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from fake_service import FakeService, World, serving


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeService]:
    with serving(tmp_path_factory.mktemp("state")) as made:
        yield made


@pytest.fixture
def world(service: FakeService, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """What the service knows; commands find it by HORAE_STATE."""
    for name in ("HORAE_URL", "HORAE_TOKEN", "COLUMNS", "LINES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HORAE_STATE", str(service.socket.parent))
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    service.world = World()
    yield service.world
    monkeypatch.undo()
    time.tzset()
