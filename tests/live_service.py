"""A real service for tests: `horae up` in a process of its own, on a state folder and a port of its own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from patience import wait_until

from horae.client import Client

REPOSITORY = Path(__file__).parent.parent
TRAINER = REPOSITORY / "examples/training/numpy_mlp.py"
SOURCES = os.pathsep.join(str(REPOSITORY / each) for each in ("src", "sdk/src"))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def environment() -> dict[str, str]:
    # One thread per job: many jobs share few cores in tests.
    return {**os.environ, "PYTHONPATH": SOURCES, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


class Service:
    """A running service; its jobs are killed at the end of the test. `injected` are more variables of its environment,
    which its jobs do not see."""

    def __init__(
        self, state: Path, *arguments: str, path: Path | None = None, injected: Mapping[str, str] | None = None
    ) -> None:
        """`path`: a folder with packages that the service can import, too; `injected`: more of its environment."""
        self.state = state
        self._path = [] if path is None else [str(path)]
        self._injected = dict(injected or {})
        self._arguments = arguments
        self.port = free_port()
        self._said_before = 0
        self.process: subprocess.Popen[bytes] | None = None
        self.log = state.parent / f"{state.name}-{self.port}.log"

    def start(self, *more: str, ready: bool = True) -> None:
        """Starts it, and waits until it answers; a standby does not before it leads."""
        command = [sys.executable, "-m", "horae", "up", "--state", str(self.state), "--port", str(self.port)]
        with self.log.open("ab") as log:
            self._said_before = log.tell()  # by a former process
            self.process = subprocess.Popen(
                [*command, *self._arguments, *more],
                stdout=log,
                stderr=log,
                env=self._environment(),
                cwd=self.state.parent,
            )
        if ready:
            wait_until(lambda: self.is_ready() or self._ended(), 0.05)
        assert not self._ended(), self.log.read_text()

    def _environment(self) -> dict[str, str]:
        found = environment() | self._injected
        return {**found, "PYTHONPATH": os.pathsep.join([found["PYTHONPATH"], *self._path])}

    def is_ready(self) -> bool:
        return b"submit" in self.log.read_bytes()[self._said_before :]

    def _ended(self) -> bool:
        return self.process is not None and self.process.poll() is not None

    def client(self) -> Client:
        return Client(state=self.state)

    def stop(self) -> None:
        assert self.process is not None
        self.process.terminate()
        self.process.wait()

    def kill(self) -> None:
        """Kills all processes of the service at once, as the machine's out-of-memory killer would."""
        assert self.process is not None
        children = [*self.pids("horae.service.loop"), *self.pids("horae.service.api")]
        for pid in (self.process.pid, *children):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()

    def pids(self, module: str) -> list[int]:
        """The processes of this service that run this module, e.g. `horae.service.loop`."""
        assert self.process is not None
        return [pid for pid, words in _commands() if module in words and _parent(pid) == self.process.pid]

    def supervisors(self) -> list[int]:
        return [pid for pid, words in _commands() if any("supervisor" in word for word in words) and self._is_mine(pid)]

    def _is_mine(self, pid: int) -> bool:
        with suppress(OSError):
            return any(str(self.state) in str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir())
        return False

    def end(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.kill()
        for pid in self.supervisors():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _parent(pid: int) -> int:
    with suppress(OSError, ValueError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return -1


def _commands() -> Iterator[tuple[int, list[str]]]:
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (folder / "cmdline").read_bytes().split(b"\0")
            yield int(folder.name), [word.decode(errors="replace") for word in words]


@contextmanager
def service(folder: Path, *arguments: str, injected: Mapping[str, str] | None = None) -> Iterator[Service]:
    running = Service(folder / "state", *arguments, injected=injected)
    running.start()
    try:
        yield running
    finally:
        running.end()


def train(steps: int, pace: float, every: float = 1.0) -> str:
    return f"{sys.executable} {TRAINER} --steps {steps} --pace {pace} --every {every}"


def wait_for(
    client: Client, states: Sequence[str], is_enough: Callable[[list[bool]], bool] = all, poll_seconds: float = 0.3
) -> None:
    """Waits until all jobs are in one of these states."""
    wait_until(lambda: is_enough([job.state in states for job in client.jobs()]), poll_seconds)
