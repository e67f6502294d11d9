"""`horae demo`: what it shows, that its login works, and that nothing is left of it, however it ends."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from live_service import environment
from patience import HANG_SECONDS, wait_until

ENDLESS = str(int(HANG_SECONDS))
TENANTS = {"nlp": "max-min", "speech": "tiresias", "vision": "themis"}


class RunningDemo:
    """The demo in a process of its own, whose folder, and with it that of its service, is in `folder`."""

    def __init__(self, folder: Path, seconds: str, terminal: bool = False) -> None:
        self.folder = folder
        self._output = folder.with_name("said.txt")
        settings = {"TMPDIR": str(folder), "DEMO_SECONDS": seconds, "COLUMNS": "80", "LINES": "40", "TERM": "xterm"}
        folder.mkdir()
        output = self._output.open("wb")
        ours, theirs = pty.openpty() if terminal else (None, output.fileno())
        self.process = subprocess.Popen(
            [sys.executable, "-m", "horae", "demo"],
            env={**environment(), **settings},
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=subprocess.STDOUT,
        )
        if ours is not None:
            os.close(theirs)
            with suppress(OSError), output:  # a terminal without writers is an error of reading
                while select.select([ours], [], [], HANG_SECONDS)[0] and (data := os.read(ours, 65536)):
                    output.write(data)
            os.close(ours)
        output.close()

    @property
    def said(self) -> str:
        return self._output.read_text(errors="replace")

    def wait_for(self, is_there: Callable[[str], object]) -> str:
        wait_until(lambda: bool(is_there(self.said)) or self.process.poll() is not None, 0.1)
        assert is_there(self.said), self.said
        return self.said

    def end(self, number: signal.Signals | None = None) -> int:
        """The exit code, after this signal if there is one."""
        if number is not None:
            self.process.send_signal(number)
        return self.process.wait(HANG_SECONDS)

    def left(self) -> list[str]:
        """Files and processes of the demo, known by the folder for temporary files in their environment or that they
        have open."""
        return [str(path) for path in self.folder.iterdir()] + [
            f"process {process.name}" for process in Path("/proc").glob("[0-9]*") if self._is_mine(process)
        ]

    def _is_mine(self, process: Path) -> bool:
        with suppress(OSError):
            if f"\0TMPDIR={self.folder}\0".encode() in b"\0" + (process / "environ").read_bytes():
                return (process / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
            return any(str(self.folder) in str(link.readlink()) for link in (process / "fd").iterdir())
        return False

    def service(self) -> int:
        """The process of `horae up`."""
        commands = {int(path.parent.name): path for path in Path("/proc").glob("[0-9]*/cmdline")}
        for number, path in commands.items():
            with suppress(OSError):
                words = path.read_bytes().split(b"\0")
                if b"up" in words and any(str(self.folder).encode() in word for word in words):
                    return number
        raise AssertionError("the demo has no service")


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Callable[..., RunningDemo]]:
    started: list[RunningDemo] = []

    def start(seconds: str, **options: bool) -> RunningDemo:
        started.append(RunningDemo(tmp_path / "temporary", seconds, **options))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.end(signal.SIGTERM)


def field(said: str, name: str) -> str:
    found = re.search(rf"^  {name} +(\S+)", said, re.MULTILINE)
    assert found, said
    return found[1]


def test_its_login_opens_the_dashboard_and_ctrl_c_ends_it_with_the_closing_table(
    demo: Callable[..., RunningDemo],
) -> None:
    running = demo(ENDLESS)
    said = running.wait_for(lambda said: re.search(r"[1-9]\d* jobs? run", said))
    pages = {"Accept": "text/html"}
    with httpx.Client(
        base_url=field(said, "dashboard"), headers=pages, timeout=HANG_SECONDS, trust_env=False
    ) as browser:
        assert browser.post("/login", data={"token": "another"}).status_code == 401
        assert browser.get("/cluster").status_code == 303
        assert browser.post("/login", data={"token": field(said, "token")}).status_code == 303
        assert "Cluster" in browser.get("/cluster").text
        names = {job["tenant"] for job in browser.get("/v1/jobs").json()["items"]}
    assert names == set(TENANTS)
    running.wait_for(lambda said: re.search(r"[1-9]\d* finished", said))
    assert running.end(signal.SIGINT) == 0, running.said
    closing = running.said.partition("After ")[2]
    rows = {line.split()[0]: line.split() for line in closing.splitlines() if line.split()}
    assert {name: rows[name][1] for name in TENANTS} == TENANTS
    assert sum(int(rows[name][3]) for name in TENANTS) >= 1  # done
    assert {"jobs", "rho", "utilisation", "preemptions", "guarantee", "why", "eta"} <= set(rows)
    assert "failed" not in rows, closing
    assert running.left() == []


def test_on_a_terminal_it_draws_the_cluster_and_ends_in_its_time(demo: Callable[..., RunningDemo]) -> None:
    running = demo("3", terminal=True)
    assert running.end() == 0, running.said
    assert "of 0:03, Ctrl-C ends it sooner" in running.said
    assert "A letter per GPU in use" in running.said
    assert "…" not in running.said  # eighty columns cut nothing
    assert re.search(r"After \d+:\d\d", running.said)
    assert running.left() == []


def test_told_to_end_before_its_service_has_started_it_leaves_nothing(demo: Callable[..., RunningDemo]) -> None:
    running = demo(ENDLESS)
    running.wait_for(lambda said: "Starting" in said)
    assert running.end(signal.SIGTERM) == 0, running.said
    assert running.left() == []


def test_if_its_service_is_killed_it_says_so_and_ends_the_jobs(demo: Callable[..., RunningDemo]) -> None:
    running = demo(ENDLESS)
    running.wait_for(lambda said: re.search(r"[1-9]\d* jobs? run", said))
    os.kill(running.service(), signal.SIGKILL)
    assert running.end() == 2
    complaint = running.said.splitlines()[-1]
    assert complaint.startswith("horae: the demo's service ended with -9"), running.said
    assert "; " in complaint
    assert running.left() == []
