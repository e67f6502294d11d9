"""Seeded rounds of `kill -9`: of the loop, the API, the whole service, a supervisor, a job's own process.

No accepted job is lost or runs twice at a time, no GPU is held twice, and no job loses progress beyond its last
checkpoint: the jobs themselves check it, see `crash_job.py`.
"""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from live_service import Service, service
from patience import wait_until

from horae.model.errors import HoraeError

ROUNDS = int(os.environ.get("HORAE_CRASH_ROUNDS", "10"))
SEED = int(os.environ.get("HORAE_SEED", "0"))
SCRIPT = Path(__file__).parent.parent / "crash_job.py"
TARGETS = ("loop", "api", "service", "supervisor", "leader")


@pytest.mark.parametrize("rounds", [ROUNDS, pytest.param(200, marks=pytest.mark.nightly)])
def test_nothing_is_lost_or_runs_twice(rounds: int, tmp_path: Path) -> None:
    random = Random(SEED)
    work = tmp_path / "work"
    work.mkdir()
    with service(tmp_path, "--emulate", "1x4:A100", "--emulate", "1x2:V100") as running:
        accepted: list[str] = []
        for _ in range(rounds):
            accepted += _submit(running, random, work, random.randint(1, 2))
            _kill(running, random)
        _submit_last(running, accepted, random, work)
        wait_until(lambda: _all_ended(running, accepted), 0.5)
        states = Counter(job.state for job in running.client().jobs())
    violations = work / "violations"
    assert not violations.exists(), violations.read_text()
    assert sum(states.values()) == len(accepted)
    finished = set((work / "finished").read_text().split())
    assert finished == set(accepted), states


def _submit(running: Service, random: Random, work: Path, count: int) -> list[str]:
    child = " --child" if random.random() < 0.3 else ""
    command = f"exec {sys.executable} {SCRIPT} {work} {random.randint(5, 40)}{child}"
    spec = {"run": command, "gpus": random.choice([1, 1, 2]), "checkpoint": {}, "retries": 1000, "grace": 10}
    key, accepted = f"{random.random()}", list[str]()

    def submit() -> bool:
        try:
            accepted.extend(running.client().submit([spec] * count, key=key))
        except HoraeError:
            return False  # the API is being started again; the key makes a second try harmless
        return True

    wait_until(submit, 0.2)
    return accepted


def _submit_last(running: Service, accepted: list[str], random: Random, work: Path) -> None:
    accepted += _submit(running, random, work, 1)


def _kill(running: Service, random: Random) -> None:
    target = random.choice(TARGETS)
    if target == "service":
        running.kill()
        running.start()
        return
    if target in ("loop", "api"):
        victims = running.pids(f"horae.service.{target}")
    else:
        supervisors = running.supervisors()
        victims = [random.choice(supervisors)] if supervisors else []
        if target == "leader":
            victims = [pid for each in victims for pid in _children(each)]
    for pid in victims:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _children(pid: int) -> list[int]:
    with suppress(OSError):
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def _all_ended(running: Service, accepted: list[str]) -> bool:
    try:
        states = {job.id: job.state for job in running.client().jobs()}
    except HoraeError:
        return False  # the API is being started again
    return all(states.get(job_id) in ("finished", "failed", "cancelled", "refused") for job_id in accepted)
