"""The service as the first process of a container: its processes must not take it for the one that adopts orphans."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from live_service import environment
from patience import HANG_SECONDS, wait_until

from horae.client import Client

NAMESPACE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")


def can_be_process_one() -> bool:
    if shutil.which("unshare") is None:
        return False
    return subprocess.run([*NAMESPACE, "true"], check=False, capture_output=True).returncode == 0


@pytest.mark.skipif(not can_be_process_one(), reason="needs unshare and the right to make a PID namespace")
def test_the_service_runs_as_process_one(tmp_path: Path) -> None:
    state, log = tmp_path / "state", tmp_path / "log"
    command = [sys.executable, "-m", "horae", "up", "--state", str(state), "--port", "0", "--emulate", "1x2:A100"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*NAMESPACE, *command], env=environment(), stdout=output, stderr=output, start_new_session=True
        )
    try:
        wait_until(lambda: b"submit" in log.read_bytes() or process.poll() is not None, 0.05)
        assert process.poll() is None, log.read_text()
        assert [node.gpus for node in Client(state=state).nodes()] == [2], log.read_text()
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(HANG_SECONDS)
