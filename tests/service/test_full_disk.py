"""A real service on a disk that is full, in a state folder whose path is longer than the address of a Unix socket.

Accepted jobs stay, new ones are refused, jobs run on, report and end, and all goes on when there is room again.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from live_service import Service
from patience import wait_until

from horae.client import Client
from horae.model.errors import ServiceError
from horae.service.api.room import BYTES_MIN

SCRIPT = Path(__file__).parent.parent / "crash_job.py"
DISK_BYTES = BYTES_MIN + (24 << 20)
JOB = {"run": "sleep 1000", "gpus": 1}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small disk of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("a disk can be mounted by root only")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(disk: Path, left_bytes: int) -> Path:
    """Fills the disk up to so many bytes."""
    ballast = disk / "ballast"
    found = os.statvfs(disk)
    with ballast.open("ab") as file:
        size = found.f_bavail * found.f_frsize - left_bytes
        os.posix_fallocate(file.fileno(), file.tell(), size)
    return ballast


def test_a_full_disk_refuses_new_jobs_and_loses_nothing(disk: Path, tmp_path: Path) -> None:
    state = disk / ("a" * 60) / ("b" * 60) / "state"
    state.parent.mkdir(parents=True)
    work = tmp_path / "work"
    work.mkdir()
    running = Service(state, "--emulate", "1x2:A100")
    try:
        running.start()
        client = running.client()
        trained = {"run": f"exec {sys.executable} {SCRIPT} {work} 60", "gpus": 1, "checkpoint": {}}
        first, second, third = client.submit([trained, JOB, JOB])
        wait_until((work / f"saved-{first}").exists, 0.1)
        ballast = fill(disk, BYTES_MIN // 2)
        _refused(client)
        wait_until(lambda: client.job(first).state == "finished", 0.2)  # reports and ends go on
        assert client.job(first).steps > 0
        fill(disk, 0)
        _refused(client)
        assert {job.id: job.state for job in client.jobs()}.keys() == {first, second, third}
        ballast.unlink()
        (fourth,) = client.submit([JOB])
        wait_until(lambda: client.job(third).state == "running", 0.2)
        client.stop(second)
        wait_until(lambda: client.job(second).state == "cancelled", 0.2)
        wait_until(lambda: client.job(fourth).state == "running", 0.2)
        assert [len(client.leases(job)) for job in (first, second, third, fourth)] == [1, 1, 1, 1]
        assert not (work / "violations").exists()
    finally:
        running.end()


def _refused(client: Client) -> None:
    with pytest.raises(ServiceError, match="disk of the service is full") as error:
        client.submit([JOB])
    assert error.value.status == 507
