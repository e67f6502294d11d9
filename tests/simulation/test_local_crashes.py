"""Services, supervisors and jobs are killed at random moments: no job runs twice at a time, no GPU has two users."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from math import inf
from pathlib import Path
from random import Random

import local_host
import pytest
from local_host import CLUSTER, GPUS, JOBS, PROGRAM
from local_jobs import contents, kill, pids
from patience import wait_until

from horae.engines.local.engine import LocalEngine
from horae.engines.local.job_files import LeaseFolder
from horae.engines.local.locks import Locks, is_free
from horae.engines.local.processes import is_running
from horae.engines.local.records import StartRecord, read_record, read_sessions

FIRST_SEED = 1_000_000 * int(os.environ.get("HORAE_SEED", "0"))


@contextmanager
def hosts(folder: Path) -> Iterator[Callable[[int, int], int]]:
    """A function that starts a host with a term and a seed, and returns its process id."""
    command = [sys.executable, local_host.__file__, str(folder)]
    with (
        (folder / "errors").open("ab") as errors,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True) as launcher,
    ):

        def start(term: int, seed: int) -> int:
            assert launcher.stdin is not None and launcher.stdout is not None
            launcher.stdin.write(f"{term} {seed}\n")
            launcher.stdin.flush()
            return int(launcher.stdout.readline())

        yield start
        assert launcher.stdin is not None
        launcher.stdin.close()


def running(folder: Path) -> list[tuple[StartRecord, LeaseFolder]]:
    """The leases whose supervisors run."""
    found = []
    for path in (folder / "engine").glob("jobs/*/leases/*/start.json"):
        record = read_record(StartRecord, path)
        if record is not None and is_running(record.supervisor):
            found.append((record, LeaseFolder(path.parent)))
    return sorted(found, key=lambda each: each[0].epoch)


def kill_at_random(random: Random, folder: Path) -> None:
    """Kills a few supervisors and leaders of jobs."""
    for record, files in running(folder):
        match random.choice(["nothing", "nothing", "supervisor", "leader"]):
            case "supervisor":
                kill_if_there(record.supervisor.pid)
            case "leader":
                for leader in read_sessions(files):
                    if is_running(leader):
                        kill_if_there(leader.pid)


def kill_if_there(pid: int) -> None:
    with suppress(ProcessLookupError):  # it has just ended
        kill(pid)


def survives(folder: Path, seed: int, rounds: int) -> None:
    random = Random(seed)
    folder.mkdir()
    (folder / "journal").touch()
    (folder / "job.py").write_text(PROGRAM)
    with hosts(folder) as start:
        for term in range(1, rounds + 1):
            host = start(term, random.randrange(1 << 30))
            await_starts(folder, random.randint(0, 5))
            time.sleep(random.choice([0.0, 0.0, 0.01, 0.05]))  # decides only which moments are tried
            if random.random() < 0.5:
                kill_at_random(random, folder)
                kill(host)
            else:
                kill(host)
                kill_at_random(random, folder)
            assert not failed(folder), failed(folder)
    finish(folder, rounds + 1)


def await_starts(folder: Path, starts: int) -> None:
    """Waits until the host has started so many jobs, or has failed."""
    enough = started(folder) + starts
    wait_until(lambda: started(folder) >= enough or bool(failed(folder)))


def started(folder: Path) -> int:
    return (folder / "journal").read_text().count("JobStarted")


def failed(folder: Path) -> str:
    """What hosts and jobs complain about."""
    return "".join(path.read_text() for path in (folder / "errors", folder / "violations") if path.exists())


def finish(folder: Path, term: int) -> None:
    """Ends everything and checks that nothing is left."""
    with LocalEngine(CLUSTER, folder / "engine", time.monotonic, term=term, use_cgroups=False) as engine:
        engine.stop_all(0.0)
        while engine.wait(inf) is not None:
            pass
    assert not failed(folder), failed(folder)
    locks = Locks(folder / "engine" / "locks")
    assert all(is_free(locks.of_gpu(gpu)) for gpu in GPUS)
    assert all(is_free(locks.of_job(job_id)) for job_id in JOBS)
    assert all(is_free(path) for path in folder.glob("*.lock"))
    assert not running(folder)
    assert not left_over(folder)


def left_over(folder: Path) -> list[int]:
    return [pid for pid in pids() if os.fsencode(folder) in contents(pid, "environ") + contents(pid, "cmdline")]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "host"
    for pid in left_over(tmp_path):  # of a test that has failed
        kill_if_there(pid)


def test_twenty_crashes(folder: Path) -> None:
    survives(folder, FIRST_SEED, rounds=20)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(1, 11))
def test_two_hundred_crashes(folder: Path, seed: int) -> None:
    survives(folder, FIRST_SEED + seed, rounds=20)
