"""Hosts of local engines that tests kill: `python local_host.py FOLDER` forks one for each line "TERM SEED" it reads.

A host is the smallest service: it starts jobs on GPUs that it believes to be free, stops some, and notes every event.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from random import Random

from horae.engines.local.engine import LocalEngine
from horae.engines.local.launch import Launch
from horae.model.cluster import Cluster, Gpu, Node
from horae.model.commands import Start, Stop, Survey
from horae.model.events import Event, GpuChanged, GpuState, JobEnded, JobStarted, Surveyed
from horae.model.shapes import Shape

CLUSTER = Cluster("four", (Node("a", "fast", 4),))
GPUS = tuple(Gpu("a", number) for number in range(4))
JOBS = tuple(f"job-{number}" for number in range(5))

# It takes a lock for itself and one for each of its GPUs, which no other run may have at the same time. Children keep
# them, whatever else they give up.
PROGRAM = """
import fcntl, os, random, signal, sys, time
folder, job, epoch = sys.argv[1], os.environ["HORAE_JOB"], os.environ["HORAE_EPOCH"]
held = []
for name in (job, *("gpu-" + gpu for gpu in os.environ["HORAE_GPUS"].split(","))):
    held.append(os.open(f"{folder}/{name}.lock", os.O_RDWR | os.O_CREAT))
    try:
        fcntl.flock(held[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        with open(f"{folder}/violations", "a") as file:
            file.write(f"{job} of epoch {epoch} is not alone on {name}\\n")
manner = random.Random(job + epoch).choice(["plain", "short", "stubborn", "daemon", "no lock", "no environment"])
if manner == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if manner in ("daemon", "no lock", "no environment") and os.fork() == 0:
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for each in os.listdir("/proc/self/fd") if manner == "no lock" else ():
        if int(each) >= 100:
            os.close(int(each))
    for each in held if manner == "no environment" else ():
        os.set_inheritable(each, True)
    if manner == "no environment":
        os.execve("/bin/sleep", ["sleep", "10000"], {})
time.sleep(0.02 if manner == "short" else 10000)
sys.exit(1)
"""


class Host:
    def __init__(self, folder: Path, term: int, seed: int) -> None:
        self._random = Random(seed)
        self._journal = os.open(folder / "journal", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._epoch = term << 20
        self._busy: dict[str, tuple[int, tuple[Gpu, ...]]] = {}  # by job: its epoch and its GPUs
        self._stopping: set[str] = set()
        self._foreign: set[Gpu] = set()
        self._engine = LocalEngine(CLUSTER, folder / "engine", time.monotonic, term=term, use_cgroups=False)
        command = f"exec {sys.executable} -I -S {folder}/job.py {folder}"
        for job_id in JOBS:
            self._engine.expect(Launch(job_id, command, specification=job_id))

    def run(self) -> None:
        self._take(self._engine.execute([Survey()]))
        while True:
            self._start()
            self._stop()
            moment = self._engine.wait(time.monotonic() + self._random.choice([0.0, 0.01, 0.05]))
            assert moment is not None
            self._take(moment.events)

    def _take(self, events: Iterable[Event]) -> None:
        for event in events:
            match event:
                case Surveyed():
                    self._busy = {run.job_id: (run.epoch, run.gpus) for run in event.running}
                    assert all(self._engine.specification(job_id) == job_id for job_id in self._busy)
                case JobEnded() if self._busy.get(event.job_id, (0, ()))[0] == event.epoch:
                    del self._busy[event.job_id]
                    self._stopping.discard(event.job_id)
                case GpuChanged():
                    (self._foreign.discard if event.state is GpuState.USABLE else self._foreign.add)(event.gpu)
            os.write(self._journal, f"{os.getpid()} {event}\n".encode())

    def _start(self) -> None:
        used = {gpu for _, gpus in self._busy.values() for gpu in gpus} | self._foreign
        free = [gpu for gpu in GPUS if gpu not in used]
        self._random.shuffle(free)
        for job_id in self._random.sample(JOBS, len(JOBS)):
            if job_id in self._busy or not free:
                continue
            gpus = tuple(free[: self._random.choice([1, 1, 2])])
            free = free[len(gpus) :]
            self._epoch += 1
            shape = Shape("fast", len(gpus), "node")
            replies = self._engine.execute([Start(self._epoch, (job_id,), gpus, shape, (0.0,), (False,))])
            if any(isinstance(reply, JobStarted) for reply in replies):
                self._busy[job_id] = (self._epoch, gpus)
            self._take(replies)

    def _stop(self) -> None:
        for job_id, (epoch, _) in list(self._busy.items()):
            if job_id not in self._stopping and self._random.random() < 0.1:
                self._stopping.add(job_id)
                self._take(self._engine.execute([Stop(epoch, job_id, self._random.choice([0.0, 0.05]))]))


def main() -> None:
    folder = Path(sys.argv[1])
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # hosts that were killed need not be reaped
    for line in sys.stdin:
        term, seed = map(int, line.split())
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            Host(folder, term, seed).run()
        print(pid, flush=True)


if __name__ == "__main__":
    main()
