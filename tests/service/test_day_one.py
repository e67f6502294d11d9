"""A real service: `horae run --pty` on a real terminal, and a configuration file that changes while jobs run."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest
from live_service import Service, environment, service
from patience import wait_until

from horae.model.errors import ServiceError
from horae.service.models import ENDED, JobSpec

NODES = "nodes: [{name: n0, gpu: A100, gpus: 4}]\n"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("lab")
    (folder / "horae.yaml").write_text(NODES)
    with service(folder) as made:
        yield made


class Screen:
    """A terminal in which a command of Horae runs."""

    def __init__(self, running: Service, *words: str, rows: int = 30, columns: int = 100) -> None:
        self.file, other = pty.openpty()
        fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        settings = {**environment(), "HORAE_STATE": str(running.state), "PS1": "> ", "SHELL": "/bin/sh", "TERM": "dumb"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "horae", *words],
            stdin=other, stdout=other, stderr=other, env=settings, start_new_session=True, cwd=running.state.parent,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509  no other thread has locks
        )  # fmt: skip
        os.close(other)
        self.text = ""

    def type(self, text: str) -> None:
        os.write(self.file, text.encode())

    def until(self, text: str) -> None:
        while text not in self.text:
            self.text += os.read(self.file, 65536).decode(errors="replace")
        self.text = self.text.partition(text)[2]

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.file, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def exit_code(self) -> int:
        try:
            while os.read(self.file, 65536):
                pass
        except OSError:  # the other end is closed
            pass
        return self.process.wait()


def test_a_shell_on_a_gpu(running: Service) -> None:
    screen = Screen(running, "run", "--pty", "--env", "PS1", "--env", "SHELL")
    screen.until("> ")
    screen.type("echo $CUDA_VISIBLE_DEVICES $((40 + 2)); stty size\n")
    screen.until("42\r\n30 100")
    screen.resize(50, 132)
    screen.type("while [ \"$(stty size)\" != '50 132' ]; do sleep 0.05; done; echo resiz''ed\n")
    screen.until("resized")
    screen.type("while :; do echo r''un; sleep 0.1; done\n")
    screen.until("run")
    screen.type("\x03")
    screen.until("> ")
    screen.type("(exit 5)\n")
    screen.until("> ")
    screen.type("\x04")
    assert screen.exit_code() == 5
    (job,) = running.client().jobs(name="shell")
    assert (job.state, job.reason.partition(":")[0]) == ("failed", "exit code 5")


def test_a_job_whose_terminal_was_closed_is_taken_back(running: Service) -> None:
    screen = Screen(running, "run", "--pty", "--name", "left", "--", "sh", "-c", "echo on; read word; echo got $word")
    screen.until("on")
    os.close(screen.file)
    assert screen.process.wait() != 0
    client = running.client()
    (job,) = client.jobs(name="left")
    assert job.state == "running"
    back = Screen(running, "attach", "left")
    back.until("on")  # what was on the screen
    back.type("word\n")
    back.until("got word")
    assert back.exit_code() == 0
    assert client.wait(job).state == "finished"


def test_a_command_that_ends_at_once_has_shown_its_output(running: Service) -> None:
    screen = Screen(running, "run", "--pty", "--", "sh", "-c", "echo quick; exit 3")
    screen.until("quick")
    assert screen.exit_code() == 3


@pytest.mark.nightly
def test_a_terminal_survives_a_new_process_of_the_api(running: Service) -> None:
    screen = Screen(running, "run", "--pty", "--", "sh", "-c", "echo on; read word; echo got $word")
    screen.until("on")
    (api,) = running.pids("horae.service.api")
    os.kill(api, signal.SIGKILL)
    wait_until(lambda: running.pids("horae.service.api") not in ([], [api]), 0.05)
    wait_until(lambda: _answers(running), 0.05)
    screen.type("word\n")
    screen.until("got word")
    assert screen.exit_code() == 0


def _answers(running: Service) -> bool:
    try:
        return bool(running.client().me())
    except ServiceError:
        return False


def test_jobs_that_are_not_interactive_have_no_terminal(running: Service) -> None:
    client = running.client()
    with pytest.raises(ServiceError, match="only interactive jobs have a terminal"):
        client.submit(JobSpec(run="true", pty=True))
    (job,) = client.submit(JobSpec(run="true"))
    with pytest.raises(ServiceError, match="has no terminal; start one with"):
        list(client.terminal(job).output())
    assert client.wait(job).state in ENDED


@pytest.mark.nightly
def test_input_that_is_no_terminal_ends_with_its_file(running: Service, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "horae", "run", "--pty", "--", "cat"]
    settings = {**environment(), "HORAE_STATE": str(running.state)}
    done = subprocess.run(command, input=b"one\ntwo", capture_output=True, env=settings, cwd=tmp_path, check=False)
    assert done.stdout.split()[:1] == [b"one"]
    assert done.stdout.count(b"two") == 2  # as it is typed, and as it is written
    assert done.returncode == 0, done.stderr


def test_a_changed_configuration_is_applied_and_a_broken_one_changes_nothing(running: Service) -> None:
    client, file = running.client(), running.state.parent / "horae.yaml"
    (job,) = client.submit(JobSpec(run="sleep 1000", grace=0))
    client.wait(job, states=["running"])
    file.write_text(
        "nodes: [{name: 'n[0-1]', gpu: A100, gpus: 4}]\n"
        "tenants: {nlp: {cells: {A100.node: 1}, weight: 2, policy: fifo}}\n"
        "limits: {interactive_duration: 1h}\n"
    )
    wait_until(lambda: len(client.nodes()) == 2, 0.2)
    assert {tenant.name: (tenant.weight, tenant.cells) for tenant in client.tenants()}["nlp"] == (2.0, {"A100.node": 1})
    assert client.job(job).state == "running"
    assert client.health().configuration == ""
    for text, problem in (
        ("nodes: [{name: n0, gpus: 4}]\n", "horae.yaml:1: nodes.0.gpu: is missing; "),
        (NODES + "store: sqlite:////tmp/other.db\n", "horae.yaml: store cannot be changed while the service runs; "),
        (NODES + "api: {port: 1}\n", ""),  # the command line names another one
    ):
        file.write_text(text)
        os.kill(running.process.pid if running.process else 0, signal.SIGHUP)
        _wait_for_problem(running, problem)
    assert client.health().ready
    wait_until(lambda: len(client.nodes()) == 1, 0.2)
    client.stop(job)


def _wait_for_problem(running: Service, problem: str) -> None:
    """Waits until the service reports this problem of its configuration; none, if that is empty."""
    client = running.client()
    wait_until(lambda: bool(found := client.health().configuration) == bool(problem) and problem in found, 0.2)
