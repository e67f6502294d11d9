"""`horae up`: starts the processes of the service, watches them, and ends them; jobs run on.

The loop and the API are processes of their own, so that neither delays the other. One that ends is started again. If
this process is killed, both end, and the next `horae up` adopts the jobs.
"""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import IO

import structlog

from horae.model.errors import HoraeError, InputError
from horae.service.child import STARTED_BY
from horae.service.config import ServiceConfig
from horae.service.log_output import configure_log
from horae.service.reloading import Reloading
from horae.service.store.database import refuse_network

USAGE_ERROR = 2
TERM_ENDED = 4  # the loop's exit code when another process has taken over
BACKOFF_SECONDS = (0.1, 0.5, 1.0, 2.0, 5.0)
STEADY_SECONDS = 30.0  # a process that ran for this long is restarted without a delay
STOP_SECONDS_MAX = 30.0
POLL_SECONDS = 0.05

log = structlog.get_logger("up")


class ChildFailed(HoraeError):
    """A process of the service could not start; it has said why."""


@dataclass
class Child:
    """A process of the service that is started again when it ends."""

    name: str
    command: Sequence[str]
    is_ready: Callable[[Child], bool]
    process: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    failures: int = 0
    restart_at: float = field(default=0.0)

    def start(self) -> None:
        self.started_at = time.monotonic()
        self.process = subprocess.Popen(
            [sys.executable, "-m", *self.command],
            env={**os.environ, STARTED_BY: str(os.getpid())},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self.process.stdout is not None
        os.set_blocking(self.process.stdout.fileno(), False)

    def let_go(self) -> None:
        """Lets a process that waits for its turn begin."""
        assert self.process is not None and self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.write(b"\n")
            self.process.stdin.flush()

    def has_said(self, word: str) -> bool:
        """Whether the process has printed this line."""
        assert self.process is not None and self.process.stdout is not None
        with suppress(BlockingIOError):
            return word in os.read(self.process.stdout.fileno(), 4096).decode()
        return False

    def wait_until_ready(self, stopped: Callable[[], bool]) -> None:
        assert self.process is not None
        while not stopped():
            code = self.process.poll()
            if code is not None:
                raise ChildFailed(f"{self.name} ended with {code}")
            if self.is_ready(self):
                return
            time.sleep(POLL_SECONDS)

    def watch(self) -> None:
        """Starts the process again if it has ended; after repeated failures with a pause."""
        now = time.monotonic()
        if self.process is None:
            if now >= self.restart_at:
                self.start()
                self.let_go()
            return
        self.has_said("")  # what a library prints must not fill the pipe: the process would wait for ever
        code = self.process.poll()
        if code is None:
            return
        self.failures = 0 if now - self.started_at > STEADY_SECONDS else self.failures + 1
        pause = BACKOFF_SECONDS[min(self.failures, len(BACKOFF_SECONDS) - 1)] if self.failures else 0.0
        level = log.warning if code == TERM_ENDED else log.error
        level("a process ended and is started again", process=self.name, code=code, pause_seconds=pause)
        self.process, self.restart_at = None, now + pause

    def hang_up(self) -> None:
        """Has the process read its configuration again; one that starts meanwhile does anyway."""
        if self.process is not None:
            self.process.send_signal(signal.SIGHUP)

    def stop(self) -> None:
        if self.process is None:
            return
        self.process.terminate()
        try:
            self.process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def run(
    config: ServiceConfig,
    *,
    standby: bool = False,
    stop_jobs: bool = False,
    tell: Callable[[str], None],
    file: Path | None = None,
    read: Callable[[], ServiceConfig] | None = None,
) -> None:
    """Runs the service until SIGTERM or SIGINT. Changes of `file` are applied, as `read` gives them."""
    configure_log()
    prepare_state(config.state)
    config, port_kept = _with_port(config)
    lock = None if standby else _lock(config.state)
    # A standby has a configuration of its own beside that of the leader.
    path = config.state / (f"config-{os.getpid()}.json" if standby else "config.json")
    config.save(path)
    asked: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        asked.append(number)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    loop = Child("loop", ["horae.service.loop", str(path)], lambda child: child.has_said("ready"))
    api = Child("api", ["horae.service.api", str(path)], lambda child: child.has_said("ready"))
    children = (loop, api)
    reloading = Reloading(file, read or (lambda: config), config, path, api.hang_up, is_standby=standby)
    signal.signal(signal.SIGHUP, lambda *_: reloading.ask())
    try:
        for child in children:
            child.start()
        for child in children:
            child.let_go()
            child.wait_until_ready(lambda: bool(asked))
        if not asked:
            for line in _greeting(config):
                tell(line)
        while not asked:
            for child in children:
                child.watch()
            reloading.look()
            time.sleep(POLL_SECONDS)
    except ChildFailed:
        raise SystemExit(USAGE_ERROR) from None  # it has said why
    finally:
        if stop_jobs and loop.process is not None:
            loop.process.send_signal(signal.SIGUSR1)
        for child in reversed(children):
            child.stop()
        port_kept.close()
        if lock is not None:
            lock.close()
        if standby:
            path.unlink(missing_ok=True)


def prepare_state(state: Path) -> None:
    """Makes the folder of the service; others may reach the API's socket in it, and nothing else."""
    try:
        state.mkdir(parents=True, exist_ok=True)
        state.chmod(0o711)
        refuse_network(state)
        (state / ".writable").write_text("")
        (state / ".writable").unlink()
    except OSError as error:
        problem = f"{state} cannot be used: {error.strerror}"
        raise InputError(problem, field="--state", remedy="name a folder that you may write to") from None


def _with_port(config: ServiceConfig) -> tuple[ServiceConfig, socket.socket]:
    """With port 0, a free one: jobs and the API, also when it is started again, must know the same. The socket is bound
    to it and does not listen, which keeps it from programs that ask for any free port."""
    kept = socket.socket()
    if config.port != 0:
        return config, kept
    kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # so that the API can bind it, too
    try:
        kept.bind((config.host, 0))
    except OSError as error:
        kept.close()
        problem = f"{config.host} cannot be used: {error.strerror}"
        raise InputError(problem, field="api.host", remedy="name an address of this machine") from None
    return replace(config, port=kept.getsockname()[1]), kept


def _lock(state: Path) -> IO[str]:
    """Keeps a second service away from this folder, as long as this process lives."""
    path = state / "lock"
    file = path.open("a+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.seek(0)
        holder = file.read().strip() or "another process"
        remedy = "use it, stop it, or name another folder; --standby waits for it, with PostgreSQL"
        raise InputError(f"a service runs in {state} already ({holder})", field="--state", remedy=remedy) from None
    file.truncate(0)
    file.write(f"process {os.getpid()}")
    file.flush()
    return file


def _greeting(config: ServiceConfig) -> list[str]:
    cluster = config.setup.cluster
    counts = {name: last - first for name, (first, last) in cluster.chain_gpus.items()}
    what = "emulated GPUs" if config.emulated else "GPUs"
    lines = [
        f"Horae shares {', '.join(f'{count} {name}' for name, count in counts.items())} ({what}).",
        f"  state   {config.state}",
        f"  api     http://{config.host}:{config.port}, token in {config.state / 'token'}",
        "  submit  kubectl apply -f job.yaml, with schedulerName: horae"
        if config.engine == "kubernetes"
        else "  submit  horae submit --gpus 1 -- python train.py",
    ]
    if os.geteuid() != 0 and config.engine == "local":
        whose = "jobs of all listed users" if config.users else "all jobs"
        lines.append(f"  trust   {whose} run as this user and can read each other's files: one trust domain")
    return lines
