"""Applies changes of `horae.yaml` while the service runs.

The file is read when it has changed and rests, or on SIGHUP. It is checked as a whole, tried by the loop on a copy of
the scheduler, and only then applied: a file that is broken, or that changes what needs a restart, changes nothing. Why
is in the log, and in a file that the API shows.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import structlog

from horae.model.errors import InputError
from horae.model.setup_changes import fixed_field
from horae.service.config import ServiceConfig

PROBLEM = "config-problem"  # in the state folder, while the configuration file cannot be applied
LOOK_SECONDS = 1.0
NO_ANSWER = "the scheduler does not answer; write the file again, or send SIGHUP"
ANSWER_SECONDS_MAX = 60.0
_BYTES_MAX = 1 << 20

log = structlog.get_logger("up")


class Reloading:
    """`read` gives the configuration in `file`. What is applied is saved to `path`, where the processes of the service
    read it, and `applied` is called. A standby that does not lead has no loop to ask."""

    def __init__(
        self,
        file: Path | None,
        read: Callable[[], ServiceConfig],
        config: ServiceConfig,
        path: Path,
        applied: Callable[[], None],
        *,
        is_standby: bool = False,
    ) -> None:
        self._file = file
        self._is_standby = is_standby
        self._read = read
        self._config = config
        self._path = path
        self._applied = applied
        self._done = self._seen = _stamp(file)
        self._look_at = 0.0
        self._is_asked = False
        self._report("")

    def ask(self) -> None:
        """Has the file read now; for signal handlers."""
        self._is_asked = True

    def look(self) -> None:
        """Reads the file again if it has changed since and was not written to of late."""
        now = time.monotonic()
        if self._file is None or (now < self._look_at and not self._is_asked):
            return
        self._look_at = now + LOOK_SECONDS
        before, self._seen = self._seen, _stamp(self._file)
        if self._is_asked or (self._seen == before and self._seen != self._done):
            self._is_asked, self._done = False, self._seen
            self._report(self._apply())

    def _apply(self) -> str:
        """Applies the file; returns why it cannot be applied."""
        try:
            wanted = self._read()
        except InputError as error:
            return str(error)
        if wanted.port == 0:  # any: the one that was found stays
            wanted = replace(wanted, port=self._config.port)
        field = needs_restart(self._config, wanted)
        if field:
            return f"{self._file}: {field} cannot be changed while the service runs; restart it, or change it back"
        trial = self._path.with_name(self._path.name + ".next")
        wanted.save(trial)
        problem = self._tried(trial)
        if problem:
            trial.unlink(missing_ok=True)
            return f"{self._file}: {problem}"
        trial.replace(self._path)
        self._config = wanted
        self._applied()
        log.info("the configuration was applied", file=str(self._file))
        return ""

    def _tried(self, trial: Path) -> str:
        """Has the loop apply a configuration; returns why it does not."""
        try:
            return ask_loop(self._config.state / "loop.sock", {"reload": str(trial)})
        except (FileNotFoundError, ConnectionRefusedError):
            return "" if self._is_standby else NO_ANSWER
        except (OSError, ValueError):
            return NO_ANSWER

    def _report(self, problem: str) -> None:
        path = self._config.state / PROBLEM
        if problem:
            log.error("the configuration was not applied; the former one stays in force", problem=problem)
        with suppress(OSError):
            path.write_text(problem) if problem else path.unlink(missing_ok=True)


def needs_restart(present: ServiceConfig, wanted: ServiceConfig) -> str:
    """The first setting that differs and cannot be changed while the service runs; empty: none."""
    for name, before, after in (
        ("store", present.store, wanted.store),
        ("api.host", present.host, wanted.host),
        ("api.port", present.port, wanted.port),
        ("engine", present.engine, wanted.engine),
        ("kubernetes", present.kubernetes, wanted.kubernetes),
        ("physicalCluster", present.hived, wanted.hived),
        ("nodes", present.emulated, wanted.emulated),
    ):
        if before != after:
            return name
    if wanted.engine == "local" and not wanted.emulated and present.setup.cluster.nodes != wanted.setup.cluster.nodes:
        return "nodes"
    return fixed_field(present.setup, wanted.setup)


def ask_loop(path: Path, question: dict[str, str]) -> str:
    """What the loop finds wrong with a request; empty if it is done."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(ANSWER_SECONDS_MAX)
        connection.connect(str(path))
        connection.sendall(json.dumps(question).encode() + b"\n")
        answer = b""
        while not answer.endswith(b"\n"):
            received = connection.recv(_BYTES_MAX)
            if not received:
                raise ValueError("the answer is incomplete")
            answer += received
    return str(json.loads(answer)["problem"])


def _stamp(file: Path | None) -> tuple[int, int]:
    try:
        found = Path().stat() if file is None else file.stat()
    except OSError:
        return (0, 0)
    return found.st_mtime_ns, found.st_size
