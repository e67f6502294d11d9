"""Engines with real processes for tests, and shell scripts for jobs.

Nothing here depends on how fast the machine is, only how patient.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from pathlib import Path
from typing import Any

from builders import gpus as named
from patience import HANG_SECONDS, wait_until

from horae.engines.local.engine import LocalEngine
from horae.engines.local.job_files import JobFolder
from horae.engines.local.launch import Launch
from horae.model.cluster import Cluster, Gpu, Node
from horae.model.commands import Start, Survey
from horae.model.events import Event, JobEnded, JobResumable, JobStarted, Running, Surveyed
from horae.model.shapes import Shape

CLUSTER = Cluster("two", (Node("a", "fast", 2), Node("b", "slow", 2)))
SHAPE = Shape("fast", 1, "node")
GPUS = (*named("a", 0, 1), *named("b", 0, 1))
FIRST = GPUS[:1]

FOREVER = "touch ready; while :; do sleep 0.05; done"
STUBBORN = f"trap '' TERM; {FOREVER}"
SAVE = """save() {
    echo $1 > "$HORAE_CHECKPOINT_DIR/state"
    printf '{"steps": %s, "path": "state"}' $1 > "$HORAE_CHECKPOINT_DIR/new"
    mv "$HORAE_CHECKPOINT_DIR/new" "$HORAE_CHECKPOINT_DIR/saved.json"
}; """


def saving(steps: float, exit_code: int = 75, first: str = ":") -> str:
    """A program that saves when it is told to stop."""
    return f"{SAVE} trap '{first}; save {steps}; exit {exit_code}' TERM; {FOREVER}"


def a_start(*names: str, epoch: int = 0, gpus: tuple[Gpu, ...] = FIRST, steps_done: float = 0.0) -> Start:
    jobs = names or ("job",)
    return Start(epoch, jobs, gpus, SHAPE, (steps_done,) * len(jobs), (epoch > 0,) * len(jobs))


class Bench:
    """Makes engines, drives them, and ends their jobs when the test is over."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.engines: list[LocalEngine] = []
        self._made_at = time.monotonic()
        self._zombies = set(zombies())  # of earlier tests

    @property
    def now(self) -> float:
        return time.monotonic() - self._made_at

    def engine(self, *launches: Launch, **options: Any) -> LocalEngine:
        engine = LocalEngine(CLUSTER, self.directory, lambda: self.now, **options)
        self.engines.append(engine)
        for launch in launches:
            engine.expect(launch)
        return engine

    def started(self, *launches: Launch, **options: Any) -> LocalEngine:
        """An engine on which each of these jobs runs, and has come so far as to say that it is ready."""
        engine = self.engine(*launches, **options)
        for gpu, launch in zip(GPUS, launches, strict=False):
            assert [type(reply) for reply in engine.execute([a_start(launch.job_id, gpus=(gpu,))])] == [JobStarted]
        for launch in launches:
            self.ready(launch.job_id)
        return engine

    def ready(self, name: str = "job") -> None:
        wait_until((self.folder(name).work / "ready").exists)

    def folder(self, name: str = "job") -> JobFolder:
        return JobFolder.of(self.directory, name)

    def output(self, name: str = "job") -> str:
        return self.folder(name).output.read_text()

    def next_events(self, engine: LocalEngine) -> list[Event]:
        moment = engine.wait(self.now + HANG_SECONDS)
        assert moment is not None and moment.events, "waited in vain"
        assert all(event.at <= moment.at for event in moment.events)
        return list(moment.events)

    def the_end(self, engine: LocalEngine) -> JobEnded:
        (event,) = self.ends(engine, 1)
        return event

    def ends(self, engine: LocalEngine, count: int) -> list[JobEnded]:
        """The ends of so many leases, in any order."""
        found: list[JobEnded] = []
        while len(found) < count:
            events = self.next_events(engine)
            assert all(isinstance(event, JobEnded | JobResumable) for event in events)
            found.extend(event for event in events if isinstance(event, JobEnded))
        return found

    def run(self, command: str, **fields: Any) -> JobEnded:
        """Runs a job to its end."""
        engine = self.engine(Launch("job", command, **fields))
        (reply,) = engine.execute([a_start()])
        return reply if isinstance(reply, JobEnded) else self.the_end(engine)

    def processes(self) -> list[int]:
        """All processes on this machine that a job has left, in its group or not: they know its folder."""
        return [pid for pid in pids() if os.fsencode(self.directory) in contents(pid, "environ")]

    def supervisors(self) -> list[int]:
        """The supervisors of this engine: they hold its locks, and have no environment."""
        return [pid for pid in children(os.getpid()) if b"supervisor.py" in contents(pid, "cmdline")]

    def zombies(self) -> list[int]:
        """Children that have ended since the test began and were not reaped."""
        return [pid for pid in zombies() if pid not in self._zombies]

    def close(self) -> None:
        last = self.engine()  # takes over from all others
        last.stop_all(0.0)
        while last.wait(inf) is not None:
            pass
        for engine in self.engines:
            engine.close()
        assert not self.processes()
        assert not self.zombies()


@contextmanager
def a_bench(directory: Path) -> Iterator[Bench]:
    bench = Bench(directory)
    yield bench
    bench.close()


def survey(engine: LocalEngine) -> tuple[Running, ...]:
    (surveyed,) = engine.execute([Survey()])
    assert isinstance(surveyed, Surveyed)
    return surveyed.running


def pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def contents(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def stat(pid: int) -> list[bytes]:
    """State, parent, …"""
    return contents(pid, "stat").rpartition(b")")[2].split()


def children(parent: int) -> list[int]:
    """Running children of a process."""
    found = {pid: stat(pid) for pid in pids()}
    return [pid for pid, each in found.items() if each and each[0] != b"Z" and int(each[1]) == parent]


def zombies() -> list[int]:
    """Children of this process that have ended and were not reaped."""
    return [pid for pid in pids() if stat(pid)[:2] == [b"Z", str(os.getpid()).encode()]]


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
