"""Stores for the tests of the service: a file of SQLite, and a database of PostgreSQL where it is installed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from patience import HANG_SECONDS
from postgres import Server, server
from sqlalchemy import Engine

from horae.cli.live import completion
from horae.service.store import postgresql
from horae.service.store.database import open_database, sqlite_url
from horae.service.store.migrate import migrate


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may give a test no processor for seconds: limits within this process only turn a hang into a
    failure. Services in processes of their own keep the limits of the product."""
    monkeypatch.setattr(postgresql, "IDLE_SECONDS", HANG_SECONDS)
    monkeypatch.setattr(completion, "LIMIT_SECONDS", HANG_SECONDS)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    with server() as running:
        yield running


@pytest.fixture(params=["sqlite", "postgresql"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return sqlite_url(tmp_path / "store.db")
    found: Server = request.getfixturevalue("postgres")
    return found.new_database()


@pytest.fixture
def database(store_url: str) -> Engine:
    """A store with the tables of this version."""
    engine = open_database(store_url)
    migrate(engine)
    return engine
