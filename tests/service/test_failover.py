"""Two services on one PostgreSQL: the leader is killed, or stopped and woken.

The standby decides, and no job runs twice.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest
from live_service import Service
from patience import wait_until
from postgres import Server

from horae.client import Client
from horae.model.errors import HoraeError

SCRIPT = Path(__file__).parent.parent / "crash_job.py"


@pytest.mark.parametrize("fault", ["killed", "stopped"])
def test_the_standby_takes_over_and_the_old_leader_changes_nothing(
    fault: str, postgres: Server, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    arguments = ("--emulate", "1x2:A100", "--store", postgres.new_database())
    leader, standby = Service(tmp_path / "state", *arguments), Service(tmp_path / "state", *arguments)
    try:
        leader.start()
        standby.start("--standby", ready=False)
        spec = {"run": f"exec {sys.executable} {SCRIPT} {work} 60", "gpus": 1, "checkpoint": {}, "retries": 9}
        jobs = leader.client().submit([spec] * 4)
        wait_until(lambda: _states(leader.client()).count("running") == 2, 0.1)
        began = time.monotonic()
        loops = leader.pids("horae.service.loop")
        if fault == "killed":
            leader.kill()
        else:
            os.kill(loops[0], signal.SIGSTOP)
        wait_until(standby.is_ready, 0.05)
        print(f"the standby answers after {time.monotonic() - began:.1f} s")
        if fault == "stopped":
            wait_until(lambda: _states(standby.client()).count("finished") >= 1, 0.2)
            os.kill(loops[0], signal.SIGCONT)
            wait_until(lambda: leader.pids("horae.service.loop") != loops, 0.1)  # it has lost the lead, and ends
        wait_until(lambda: _states(standby.client()).count("finished") == 4, 0.2)
        assert sorted((work / "finished").read_text().split()) == sorted(jobs)
        assert not (work / "violations").exists(), (work / "violations").read_text()
        assert all(len(standby.client().leases(job)) == 1 for job in jobs), "no job was stopped or started twice"
    finally:
        leader.end()
        standby.end()


def _states(client: Client) -> list[str]:
    try:
        return [job.state for job in client.jobs()]
    except HoraeError:
        return []
