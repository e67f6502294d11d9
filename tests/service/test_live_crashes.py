"""Seeded rounds of `kill -9`: of the loop, the API, the whole service, a supervisor, a job's own process; and reboots.

Every round strikes one of them while jobs run. Jobs with a daemon have started a process in a session of its own. In
the second half of the rounds the service has no right to make control groups, and the machine is once "rebooted": all
processes are killed, and the next service finds another boot id.

No accepted job is lost or runs twice at a time, no GPU is held twice, and no job loses progress beyond its last
checkpoint: the jobs themselves check it, see `crash_job.py`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from live_service import SOURCES, Service, service
from patience import wait_until

from horae.client import Client
from horae.engines.local.processes import all_pids, environment_of, stat_of
from horae.model.errors import HoraeError

SEED = int(os.environ.get("HORAE_SEED", "0"))
SCRIPT = Path(__file__).parent.parent / "crash_job.py"
FAULTS = Path(__file__).parent.parent / "injected_faults"
DAEMON = " with a daemon"
# Those that start processes of the service again cost most.
JOB_TARGETS = ("supervisor", f"supervisor{DAEMON}", f"supervisor{DAEMON}", "leader", f"leader{DAEMON}")
FIRST_HALF = (*JOB_TARGETS, "supervisor", "leader", "loop", "api")
SECOND_HALF = (*JOB_TARGETS, *JOB_TARGETS[1:4], "loop", "reboot")
RUNNING_MIN = 3  # jobs are submitted until so many run


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.nightly) for part in range(1, 10))])
def test_nothing_is_lost_or_runs_twice(part: int, tmp_path: Path) -> None:
    """Twenty rounds; `make nightly` runs ten such parts."""
    random = Random(f"{SEED} {part}")
    trial = Trial(tmp_path, random)
    injected = {"PYTHONPATH": f"{FAULTS}{os.pathsep}{SOURCES}", "HORAE_INJECTED": str(trial.injected)}
    with service(tmp_path, "--emulate", "1x4:A100", "--emulate", "1x2:V100", injected=injected) as running:
        for target in random.sample(FIRST_HALF, len(FIRST_HALF)):
            trial.strike(running, target)
        trial.has_cgroups = False
        trial.strike(running, "service")
        for target in random.sample(SECOND_HALF, len(SECOND_HALF)):
            trial.strike(running, target)
        trial.submit(running, is_daemon=False)
        wait_until(lambda: trial.all_ended(running), 0.5)
        states = Counter(job.state for job in trial.client(running).jobs())
    violations = trial.work / "violations"
    assert not violations.exists(), violations.read_text()
    assert sum(states.values()) == len(trial.accepted)
    finished = set((trial.work / "finished").read_text().split())
    assert finished == set(trial.accepted), states


class Trial:
    """The jobs of one part, and the faults that are injected."""

    def __init__(self, folder: Path, random: Random) -> None:
        self.work = folder / "work"
        self.work.mkdir()
        self.injected = folder / "injected.json"
        self.accepted: list[str] = []
        self._random = random
        self._client: Client | None = None
        self._boot = 0
        self.has_cgroups = True  # where the machine allows it

    @property
    def has_cgroups(self) -> bool:
        return self._has_cgroups

    @has_cgroups.setter
    def has_cgroups(self, value: bool) -> None:
        self._has_cgroups = value
        self._inject()

    def _inject(self) -> None:
        self.injected.write_text(json.dumps({"boot_id": f"boot-{self._boot}", "cgroups": self._has_cgroups}))

    def client(self, running: Service) -> Client:
        """One for all requests: making one costs more than a request."""
        self._client = self._client or running.client()
        return self._client

    def strike(self, running: Service, target: str) -> None:
        """Kills the target once there is one."""
        is_daemon = target.endswith(DAEMON)
        supervisors = running.supervisors()
        if len(supervisors) < RUNNING_MIN or (is_daemon and not any(map(_has_daemon, supervisors))):
            self.submit(running, is_daemon=is_daemon or self._random.random() < 0.3)
        match target.removesuffix(DAEMON):
            case "service":
                running.kill()
                running.start()
            case "reboot":
                self._reboot(running)
            case "loop" | "api" as name:
                wait_until(lambda: _kill(running.pids(f"horae.service.{name}")), 0.2)
            case part:
                wait_until(lambda: self._strike_job(running, part, is_daemon=is_daemon), 0.3)

    def _strike_job(self, running: Service, part: str, *, is_daemon: bool) -> bool:
        supervisors = [pid for pid in running.supervisors() if _children(pid) and (_has_daemon(pid) or not is_daemon)]
        if not supervisors:
            if self.all_ended(running):
                self.submit(running, is_daemon=is_daemon)
            return False
        victim = self._random.choice(supervisors)
        return _kill([victim] if part == "supervisor" else _children(victim))

    def _reboot(self, running: Service) -> None:
        """Ends all processes, those of jobs too, and starts the service as after another boot."""
        running.kill()
        mark = os.fsencode(f"={running.state}/")
        wait_until(lambda: not _kill([*running.supervisors(), *(_of_jobs(mark))]), 0.05)
        self._boot += 1
        self._inject()
        running.start()

    def submit(self, running: Service, *, is_daemon: bool) -> None:
        command = f"exec {sys.executable} {SCRIPT} {self.work} {self._random.randint(40, 80)}"
        spec = {
            "run": f"{command} --child" if is_daemon else command,
            "gpus": self._random.choice([1, 1, 2]),
            "checkpoint": {},
            "retries": 1000,
            "grace": 10,
        }
        key = f"{self._random.random()}"

        def submit() -> bool:
            try:
                self.accepted.extend(self.client(running).submit(spec, key=key))
            except HoraeError:
                return False  # the API is being started again; the key makes a second try harmless
            return True

        wait_until(submit, 0.2)

    def all_ended(self, running: Service) -> bool:
        try:
            states = {job.id: job.state for job in self.client(running).jobs()}
        except HoraeError:
            return False  # the API is being started again
        return all(states.get(job_id) in ("finished", "failed", "cancelled", "refused") for job_id in self.accepted)


def _kill(pids: list[int]) -> bool:
    """Kills these processes; returns whether there was one."""
    killed = False
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            killed = True
    return killed


def _children(pid: int) -> list[int]:
    with suppress(OSError):
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def _has_daemon(supervisor: int) -> bool:
    """Whether the job has a process in another session than its leader's."""
    leaders = _children(supervisor)
    found = (stat_of(child) for leader in leaders for child in _children(leader))
    return any(stat is not None and stat.session not in leaders for stat in found)


def _of_jobs(mark: bytes) -> Iterator[int]:
    for pid in all_pids():
        stat = stat_of(pid)
        if stat is not None and stat.state not in "ZX" and mark in environment_of(pid):
            yield pid
