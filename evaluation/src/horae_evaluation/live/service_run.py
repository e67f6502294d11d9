"""Runs jobs under a real `horae up` in a folder of its own, and reads from its store what became of them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from sqlalchemy import Row, select

from horae.client import Client
from horae.model.errors import InputError
from horae.service.config import ServiceConfig, configure
from horae.service.models import ENDED, JobSpec
from horae.service.store.database import open_database, reading
from horae.service.store.schema import jobs as job_table
from horae.service.store.schema import leader
from horae.service.store.schema import leases as lease_table
from horae_evaluation.live.paced_job import startup_seconds
from horae_evaluation.live.workload import LiveJob

POLL_SECONDS = 1.0
Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class JobTimes:
    """One job in reality or in the simulator, in seconds of the service's log."""

    name: str
    submitted_at: float
    started_at: float
    ended_at: float
    leases: int
    preemptions: int

    @property
    def completion_seconds(self) -> float:
        return self.ended_at - self.submitted_at


@dataclass(frozen=True, slots=True)
class Overheads:
    """What the machine adds to what the jobs do, in seconds, as it was measured."""

    starting_seconds: tuple[float, ...]  # of starts, beyond the start-ups that the jobs have drawn
    leaving_seconds: tuple[float, ...]  # from the last step to the end, of leases that were stopped
    closing_seconds: tuple[float, ...]  # likewise of leases that finished

    @classmethod
    def all(cls, found: Iterable[Overheads]) -> Overheads:
        return cls(*(tuple(chain.from_iterable(lists)) for lists in zip(*map(astuple, found), strict=True)))

    @property
    def means(self) -> tuple[float, float, float]:
        return _mean(self.starting_seconds), _mean(self.leaving_seconds), _mean(self.closing_seconds)


@dataclass(frozen=True)
class ServiceRun:
    config: ServiceConfig
    seed: int  # of speeds and start-ups
    jobs: dict[str, LiveJob]  # by job id, in the order of submission
    times: dict[str, JobTimes]
    overheads: Overheads


def run_service(cluster_yaml: str, jobs: Sequence[LiveJob], seed: int, folder: Path, tell: Tell) -> ServiceRun:
    """Submits the jobs at their times to a service in `folder`, and waits until all have ended."""
    file, state = folder / "horae.yaml", folder / "state"
    file.write_text(cluster_yaml)
    config = configure(state, file, [], [], None, free_port())
    with real_service(config, file, folder / "service.log"), Client(state=state) as client:
        submitted = _submit(client, [(job.arrives_at, job.spec(seed, folder / "times")) for job in jobs], tell)
        _wait(client, len(jobs), tell)
    with reading(open_database(config.store)) as connection:
        records = _Records(
            connection.execute(select(job_table)).all(),
            connection.execute(select(lease_table).order_by(lease_table.c.epoch)).all(),
            connection.execute(select(leader)).one(),
        )
    records.check_finished()
    own = dict(zip(submitted, jobs, strict=True))
    times = {each: records.times(each) for each in own}
    return ServiceRun(config, seed, own, times, records.overheads(folder / "times", seed))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def real_service(config: ServiceConfig, file: Path, log: Path) -> Iterator[None]:
    words = ["up", "--config", file, "--state", config.state, "--port", config.port, "--stop-jobs"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "horae", *map(str, words)], stdout=output, stderr=output, env={**os.environ}
        )
    # A command that is ended must not leave its service behind.
    former = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        while "submit" not in log.read_text():
            if process.poll() is not None:
                raise InputError(f"the service did not start: {log.read_text().strip()}", remedy="run `horae up`")
            time.sleep(0.1)
        yield
    finally:
        process.terminate()
        process.wait()
        signal.signal(signal.SIGTERM, former)


def _submit(client: Client, jobs: Sequence[tuple[float, JobSpec]], tell: Tell) -> list[str]:
    began_at = time.monotonic()
    submitted: list[str] = []
    for at, spec in jobs:
        time.sleep(max(began_at + at - time.monotonic(), 0.0))
        submitted += client.submit(spec)
        tell(f"{len(submitted)} of {len(jobs)} jobs submitted")
    return submitted


def _wait(client: Client, count: int, tell: Tell) -> None:
    ended = 0
    while ended < count:
        time.sleep(POLL_SECONDS)
        now_ended = sum(job.state in ENDED for job in client.jobs())
        if now_ended > ended:
            tell(f"{now_ended} of {count} jobs ended")
        ended = now_ended


class _Records:
    """The rows of the service's store. Their times are seconds of its log."""

    def __init__(self, jobs: Sequence[Row[Any]], leases: Sequence[Row[Any]], clock: Row[Any]) -> None:
        self._jobs = {job.id: job for job in jobs}
        self._leases = leases
        self._log_began_at = clock.boot_seconds - clock.at  # in seconds since boot

    def check_finished(self) -> None:
        for job in self._jobs.values():
            if job.state != "finished":
                problem = f"{job.name} ended as {job.state}: {job.reason}"
                raise InputError(problem, remedy="check that horae-sdk is installed beside horae")

    def times(self, job_id: str) -> JobTimes:
        job = self._jobs[job_id]
        own = [lease for lease in self._leases if lease.job_id == job_id]
        stopped = sum(lease.ending == "stopped" for lease in own)
        return JobTimes(job.name, job.submitted_at, job.first_started_at, job.ended_at, len(own), stopped)

    def overheads(self, file: Path, seed: int) -> Overheads:
        """From the times that the jobs have noted; leases that ended before their first step do not count."""
        noted = _noted(file)
        starting: list[float] = []
        ends: dict[str, list[float]] = {"stopped": [], "finished": []}  # by the ending
        starts: Counter[str] = Counter()  # by job
        resumes: set[str] = set()
        for lease in self._leases:
            first_at, last_at = noted.get((lease.job_id, lease.epoch), (0.0, 0.0))
            if last_at > first_at:
                job = lease.job_id
                drawn = startup_seconds(seed, self._jobs[job].name, starts[job], resumes=job in resumes)
                starting.append(first_at - self._log_began_at - lease.granted_at - drawn)
                ends[lease.ending].append(lease.ended_at - (last_at - self._log_began_at))
                resumes.add(job)
            starts[lease.job_id] += 1
        return Overheads(tuple(starting), tuple(ends["stopped"]), tuple(ends["finished"]))


def _noted(file: Path) -> dict[tuple[str, int], tuple[float, float]]:
    """By job id and epoch: when the first step began and the last one ended."""
    lines = (line.split() for line in file.read_text().splitlines() if line.startswith("steps "))
    return {(job_id, int(epoch)): (float(first), float(last)) for _, job_id, epoch, first, last in lines}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / max(len(values), 1)
