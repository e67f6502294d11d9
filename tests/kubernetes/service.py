"""`horae up --engine kubernetes` as a process of a test, on a cluster whose kubelets are simulated."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from patience import HANG_SECONDS

from horae.client import Client as HoraeClient

SPARE = "spare: {policy: max-min, cadence: rounds, round_seconds: 5}\n"


class Service:
    """One process of `horae up`; several may use one store."""

    def __init__(
        self, folder: Path, kubeconfig: Path, configuration: str = SPARE, store: str = "", *options: str
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.state = folder / "state"
        self.file = folder / "horae.yaml"
        self.file.write_text(f"engine: kubernetes\n{configuration}")
        self._log = folder / "up.log"
        arguments = ["up", "--state", str(self.state), "--config", str(self.file), "--port", "0"]
        arguments += ["--kubeconfig", str(kubeconfig), *(["--store", store] if store else []), *options]
        self._command = [sys.executable, "-m", "horae", *arguments]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def start(self, *, ready: bool = True) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, start_new_session=True)
        begun = self._log.stat().st_size
        give_up_at = time.monotonic() + HANG_SECONDS
        while ready and "submit  horae submit" not in self.log[begun:]:
            assert self._process.poll() is None, f"the service has ended: {self.log}"
            assert time.monotonic() < give_up_at, f"the service does not begin: {self.log}"
            time.sleep(0.1)

    @property
    def client(self) -> HoraeClient:
        return HoraeClient(state=self.state)

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.wait(HANG_SECONDS)
        self._process = None

    def kill(self) -> None:
        """All of its processes at once."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._process = None

    def loop_process(self) -> int:
        """The process that alone writes the log."""
        assert self._process is not None
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            words = path.read_bytes().split(b"\0") if path.exists() else []
            parent = _parent(path.parent)
            if b"horae.service.loop" in words and parent == self._process.pid:
                return int(path.parent.name)
        raise AssertionError("there is no loop")


def _parent(folder: Path) -> int:
    try:
        return int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, IndexError):
        return -1


@contextmanager
def paused(process: int) -> Iterator[None]:
    os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process, signal.SIGCONT)
