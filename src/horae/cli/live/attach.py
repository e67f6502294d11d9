"""This terminal as that of a job: `horae attach`, and for `horae run`."""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import threading
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import typer

from horae.cli.live.arguments import JobArgument
from horae.cli.live.follow import follow_output, report_end
from horae.cli.text import examples
from horae.client import Client
from horae.client.terminal import Terminal
from horae.model.errors import ServiceError
from horae.model.safe_text import printable
from horae.service.models import ENDED, JobView

app = typer.Typer(add_completion=False)
INPUT_BYTES = 1 << 15  # sent at a time
END_OF_INPUT = b"\x04"
NOT_RUNNING = 409  # the status of a job that waits, also one that waits again
RUNNING = ("starting", "running", "stopping", "cancelling")


@app.command(epilog=examples("horae attach 17", "horae attach bash"))
def attach(job: JobArgument) -> None:
    """Connect this terminal with that of an interactive job; its exit code is that of the job's command."""
    with Client() as client:
        raise typer.Exit(use_terminal(client, client.find(job).id))


def follow_interactive(client: Client, job: str) -> JobView:
    """Prints the output of a job until it ends; Ctrl-C stops the job, a second one leaves it."""
    try:
        return follow_output(client, job)
    except KeyboardInterrupt:
        print(printable(f"horae: stopping {job}; Ctrl-C again leaves it"), file=sys.stderr)
        client.stop(job)
    return follow_output(client, job, tail_bytes=0)


def use_terminal(client: Client, job: str) -> int:
    """Connects this terminal with a job until it ends; the exit code of its command.

    Ctrl-C goes to the job once it runs; before that, it cancels the job.
    """
    while True:
        try:
            found = _when_running(client, job)
        except KeyboardInterrupt:
            client.stop(job)
            raise
        terminal = client.terminal(job)
        try:
            with _raw(sys.stdin.fileno()), _typing(terminal):
                for data in terminal.output():
                    os.write(sys.stdout.fileno(), data)
        except ServiceError as error:
            if error.status != NOT_RUNNING or found.state in ENDED:
                raise
            continue  # its lease was lost: it waits again
        if terminal.status is not None:
            ended = client.wait(job)
            if ended.state != "finished" and not _is_exit(ended.reason):
                report_end(ended)
            return terminal.status


def _is_exit(reason: str) -> bool:
    """Whether the job ended by itself with an exit code, which the caller gets."""
    return reason.startswith("exit code ")


def _when_running(client: Client, job: str) -> JobView:
    found = client.job(job)
    if found.state not in RUNNING and found.state not in ENDED:
        _say_if_it_waits(client, job)
        found = client.wait(job, states=RUNNING)
    if found.first_started_at is None and found.state in ENDED:
        report_end(found)
        raise typer.Exit(1)
    return found


def _say_if_it_waits(client: Client, job: str) -> None:
    """Says why a job waits, unless it starts within a moment."""
    try:
        client.wait(job, 1.0, states=RUNNING)
    except TimeoutError:
        found = client.job(job)
        reason = f": {found.reason}" if found.reason else ""
        print(printable(f"horae: {job} waits for GPUs{reason}; Ctrl-C cancels it"), file=sys.stderr)


@contextmanager
def _raw(file: int) -> Iterator[None]:
    """Passes keys on as they are typed, if this is a terminal."""
    if not os.isatty(file):
        yield
        return
    before = termios.tcgetattr(file)
    tty.setraw(file)
    try:
        yield
    finally:
        termios.tcsetattr(file, termios.TCSADRAIN, before)


@contextmanager
def _typing(terminal: Terminal) -> Iterator[None]:
    """Sends input and the size of this window to a terminal, in a thread of its own."""
    waits, wake = os.pipe()
    os.set_blocking(wake, False)
    thread = threading.Thread(target=_send_input, args=(terminal, waits), daemon=True)

    def changed(*_: object) -> None:
        with suppress(OSError):
            os.write(wake, b"w")

    before = signal.signal(signal.SIGWINCH, changed)
    thread.start()
    try:
        changed()
        yield
    finally:
        signal.signal(signal.SIGWINCH, before)
        os.write(wake, b"e")
        thread.join(1.0)
        for file in (wake, waits) if not thread.is_alive() else ():
            os.close(file)


def _send_input(terminal: Terminal, wake: int) -> None:
    source, last = sys.stdin.fileno(), b"\n"
    is_terminal = os.isatty(source)
    watched = [wake, source]
    while True:
        ready, _, _ = select.select(watched, [], [])
        note = os.read(wake, 64) if wake in ready else b""
        if b"e" in note:
            return
        with suppress(ServiceError):  # the service is being started anew, or the job has just ended
            if b"w" in note:
                _send_size(terminal)
            if source in ready:
                data = _read(source)
                if not data and is_terminal:
                    # It was closed: the job must not take that for the end of its input. SIGHUP may be ignored here, as
                    # under nohup, and the main thread waits for output.
                    os._exit(128 + signal.SIGHUP)
                if not data:  # a line without its end needs a second one
                    watched.remove(source)
                    data = END_OF_INPUT if last.endswith(b"\n") else END_OF_INPUT * 2
                last = data
                terminal.send(data)


def _read(source: int) -> bytes:
    try:
        return os.read(source, INPUT_BYTES)
    except OSError:  # a terminal that is gone
        return b""


def _send_size(terminal: Terminal) -> None:
    with suppress(OSError):  # no terminal has a size
        columns, rows = os.get_terminal_size(sys.stdin.fileno())
        terminal.resize(rows, columns)
