"""Starts the supervisor of a lease, so that at every moment either nothing runs or everything is on record.

The supervisor is started first and waits. Its process goes on record, and only then it is told to start the job. If
the service dies in between, the supervisor sees the end of a pipe and leaves.
"""

from __future__ import annotations

import marshal
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from horae.engines.local import processes
from horae.engines.local.processes import ProcessId

_ALL_SIGNALS = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
_PROGRAM = Path(__file__).with_name("supervisor.py")


class Spawned:
    """A supervisor that waits for the word to start its job, and leaves without it when this is closed."""

    def __init__(self, settings: Mapping[str, object], locks: Sequence[int], log: Path) -> None:
        waits, self._go = os.pipe2(os.O_CLOEXEC)
        configuration = os.memfd_create("horae-configuration", os.MFD_CLOEXEC)
        try:
            with open(configuration, "wb", closefd=False) as file:
                file.write(marshal.dumps({**settings, "locks": list(locks)}))
            os.lseek(configuration, 0, os.SEEK_SET)
            self._pid = _spawn((configuration, waits), locks, log)
        except BaseException:
            os.close(self._go)
            raise
        finally:
            os.close(configuration)
            os.close(waits)

    @property
    def process(self) -> ProcessId:
        found = processes.identify(self._pid)
        if found is None:
            raise OSError("the supervisor has ended at once")
        return found

    def go(self) -> None:
        """Lets the job start."""
        with suppress(BrokenPipeError):  # the supervisor was killed, which is noticed soon
            os.write(self._go, b"\0")
        os.close(self._go)

    def cancel(self) -> None:
        """Ends the supervisor, which has not started anything."""
        os.close(self._go)
        with suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)  # it is our child and not reaped, so the id is its own
        with suppress(ChildProcessError):
            os.waitpid(self._pid, 0)


def _spawn(files: Sequence[int], locks: Sequence[int], log: Path) -> int:
    passed = [(os.POSIX_SPAWN_DUP2, file, file) for file in (*files, *locks)]
    streams = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
        (os.POSIX_SPAWN_OPEN, 2, str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
    ]
    return os.posix_spawn(
        sys.executable,
        [sys.executable, "-I", "-S", "-X", "utf8", str(_PROGRAM), *map(str, files)],
        {},
        file_actions=[*streams, *passed],
        setsid=True,
        setsigdef=_ALL_SIGNALS,
        setsigmask=[signal.SIGTERM],  # until it can handle the signal, which then is delivered
    )
