"""Fixtures for runs within this process and jobs in processes of their own."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from sdk_jobs import CLEAN, STARTED, Job, Service


@pytest.fixture(autouse=True)
def outside_of_horae(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No variable of a surrounding job, an empty folder, and the handler of SIGTERM as it was; no process is left."""
    for name in set(os.environ) - set(CLEAN):
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)
    while STARTED:
        with STARTED.pop() as process:
            process.kill()


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


@pytest.fixture
def in_job(job: Job, monkeypatch: pytest.MonkeyPatch) -> Job:
    """A job whose variables this process has."""
    for name, value in job.environment.items():
        monkeypatch.setenv(name, value)
    return job


@pytest.fixture
def service() -> Iterator[Service]:
    service = Service()
    yield service
    service.close()
