"""`horae up` in a temporary folder: nothing of it is left at the end, whatever happens in between."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from horae.engines.local import processes
from horae.engines.local.environment import MARKER
from horae.engines.local.processes import ProcessId
from horae.model.errors import ServiceError
from horae.service.child import end_with

POLL_SECONDS = 0.1
STOP_SECONDS_MAX = 60.0  # for the service, which has limits of its own
GRACE_SECONDS = 5.0  # for what a service that was killed has left


class DemoService:
    """The service of the demo, in a process of its own that the keys of this terminal do not reach."""

    def __init__(self, folder: Path, cluster: str) -> None:
        self.folder, self.state = folder, folder / "state"
        self._log = folder / "service.log"
        configuration = folder / "horae.yaml"
        configuration.write_text(cluster)
        words = ["up", "--config", configuration, "--state", self.state, "--port", 0, "--stop-jobs"]
        parent = os.getpid()
        with self._log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "horae", *map(str, words)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=folder,
                start_new_session=True,
                preexec_fn=lambda: end_with(parent),  # noqa: PLW1509  (there is no other thread yet)
            )

    def wait_until_ready(self, is_ended: Callable[[], bool]) -> bool:
        """Whether it answers now; not if the demo is ended meanwhile."""
        while "submit" not in self._log.read_text(errors="replace"):
            self.check()
            if is_ended():
                return False
            time.sleep(POLL_SECONDS)
        return True

    def check(self) -> None:
        """Raises if the service has ended."""
        code = self._process.poll()
        if code is not None:
            said = self._log.read_text(errors="replace").strip().splitlines()
            problem = f"the demo's service ended with {code}: {said[-1] if said else 'it said nothing'}"
            raise ServiceError(problem, remedy="run the demo again, or `horae up --emulate 1x8:A100` to see more")

    @property
    def url(self) -> str:
        return (self.state / "url").read_text().strip()

    @property
    def token(self) -> str:
        return (self.state / "token").read_text().strip()

    def end(self) -> None:
        """Ends the service with its jobs, and then whatever is left of them."""
        if self._process.poll() is None:
            self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        # If it was killed, its processes end by themselves, but jobs would go on.
        began_at = time.monotonic()
        while (left := list(self._left())) and (waited := time.monotonic() - began_at) < STOP_SECONDS_MAX:
            for process in left:
                processes.send(process, signal.SIGKILL if waited > GRACE_SECONDS else signal.SIGTERM)
            time.sleep(POLL_SECONDS)

    def _left(self) -> Iterator[ProcessId]:
        """Processes that have this folder open, or were told of it in their environment as jobs are."""
        mine = f"\0{MARKER}={self.folder}/".encode()
        for pid in processes.all_pids():
            process = processes.identify(pid)
            is_mine = mine in processes.environment_of(pid) or any(map(self._is_here, _open_files(pid)))
            if is_mine and process is not None and processes.is_running(process):
                yield process

    def _is_here(self, path: Path) -> bool:
        return path.is_relative_to(self.folder)


def _open_files(pid: int) -> Iterator[Path]:
    """The working directory of a process and the files that it has open, as far as one may see them."""
    with suppress(OSError):
        yield Path(f"/proc/{pid}/cwd").readlink()
        for each in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                yield each.readlink()


@contextmanager
def demo_service(cluster: str) -> Iterator[DemoService]:
    """The service, which is starting; at the end it is ended, and its folder is removed."""
    folder = Path(tempfile.mkdtemp(prefix="horae-demo-")).resolve()
    try:
        service = DemoService(folder, cluster)
        try:
            yield service
        finally:
            service.end()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
