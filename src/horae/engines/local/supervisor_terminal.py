"""The terminal of an interactive job, kept by its supervisor: programs attach to it over a Unix socket, and detach.

The socket is in the folder of the lease, and only the user of the service can open it; the API decides which callers
may attach. Messages are a byte for their kind, four bytes for their length, and their content
(`horae.service.terminal_messages` is the other end):

    A position    attach: output is sent from this byte on, as far as it is kept
    I bytes       input
    W rows cols   the size of the window, two bytes each
    P position    the answer to `A`: where the output that follows begins
    O bytes       output
    E status      the job has ended, with this exit code in four bytes

As in `supervisor.py`, only small modules are imported. Messages are not imported from there: this runs without Horae.
"""

# ruff: noqa: PTH108, SIM105

from __future__ import annotations

import os
import termios
import time
from _socket import AF_UNIX, SOCK_STREAM, socket
from select import POLLIN, POLLOUT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from select import poll

_NAME = b"terminal"
_ROWS, _COLUMNS = 24, 80  # until the first program attaches
_CHUNK_BYTES = 65536
_KEPT_BYTES = 1 << 16  # of the latest output, for programs that attach later
_PENDING_BYTES_MAX = 1 << 18  # output for a program that does not read it: the job waits
_INPUT_BYTES_MAX = 1 << 20  # input that the job does not read; more is dropped
_MESSAGE_BYTES_MAX = 1 << 20
_HEADER_BYTES = 5
_BACKLOG = 16
_STALLED_SECONDS = 30.0  # a program that reads nothing for so long is detached
_GOODBYE_SECONDS = 2.0  # for the last output, after the end of the job
_FOREVER = 1e9


class _Program:
    """A connection; `is_attached`: it gets the output."""

    def __init__(self, file: int) -> None:
        self.file = file
        self.received = b""
        self.pending = b""
        self.is_attached = False
        self.progress_at = 0.0  # when it last took output


class Terminal:
    def __init__(self, folder: bytes, owner: int | None, detached_seconds: float) -> None:
        self.file, self._job_end = os.openpty()
        os.set_blocking(self.file, False)
        termios.tcsetwinsize(self._job_end, (_ROWS, _COLUMNS))
        if owner is not None:
            os.fchown(self._job_end, owner, -1)
        self._path = folder + b"/" + _NAME
        self._listener = _listen(folder)
        self._poller: poll | None = None
        self._programs: dict[int, _Program] = {}
        self._kept = b""
        self._written = 0  # bytes of output in all
        self._input = b""
        self._is_read = True  # whether output of the job is taken: not while a program has too much pending
        self._has_output = True  # the job can still write
        self._detached_seconds = detached_seconds
        self._detached_at = time.monotonic()

    # The job's end

    def become_leader(self) -> None:
        """Makes the calling process the leader of a session on this terminal."""
        os.login_tty(self._job_end)

    def started(self, poller: poll) -> None:
        """Begins to serve, once the job has its own end."""
        os.close(self._job_end)
        self._poller = poller
        poller.register(self._listener.fileno(), POLLIN)

    def show(self, data: bytes) -> None:
        """Passes output of the job on; empty output means that it has ended."""
        self._has_output = self._has_output and bool(data)
        self._written += len(data)
        self._kept = (self._kept + data)[-_KEPT_BYTES:]
        for program in self._attached():
            self._send(program, b"O", data)
        self._watch_output()

    def _take_input(self, data: bytes) -> None:
        self._input = (self._input + data)[:_INPUT_BYTES_MAX]
        self._write_input()

    def _write_input(self) -> None:
        try:
            while self._input:
                self._input = self._input[os.write(self.file, self._input[:_CHUNK_BYTES]) :]
        except BlockingIOError:
            pass
        except OSError:  # the job has closed its end
            self._input = b""
        self._watch_output()

    def _watch_output(self) -> None:
        """Takes output only while all programs take it, so that a job that writes much waits for the terminal."""
        assert self._poller is not None
        self._is_read = all(len(program.pending) <= _PENDING_BYTES_MAX for program in self._programs.values())
        events = (POLLIN if self._is_read else 0) | (POLLOUT if self._input else 0)
        if events and self._has_output:
            self._poller.register(self.file, events)
        else:
            try:
                self._poller.unregister(self.file)
            except KeyError:
                pass

    # Programs

    def serve(self, file: int, events: int) -> bool:
        """Does what a descriptor asks for; returns whether the job's output is to be taken."""
        if file == self.file:
            if events & POLLOUT:
                self._write_input()
            return bool(events & ~POLLOUT) and self._is_read
        if file == self._listener.fileno():
            self._accept()
        elif file in self._programs:
            program = self._programs[file]
            if events & POLLOUT:
                self._flush(program)
            if events & ~POLLOUT and file in self._programs:
                self._receive(program)
        return False

    def _accept(self) -> None:
        try:
            # What `socket.accept` is made of.
            file, _ = self._listener._accept()  # type: ignore[attr-defined]
        except OSError:
            return
        os.set_blocking(file, False)
        self._programs[file] = _Program(file)
        assert self._poller is not None
        self._poller.register(file, POLLIN)

    def _receive(self, program: _Program) -> None:
        try:
            data = os.read(program.file, _CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        program.received += data
        while len(program.received) >= _HEADER_BYTES:
            size = int.from_bytes(program.received[1:_HEADER_BYTES], "big")
            if size > _MESSAGE_BYTES_MAX:
                data = b""
                break
            if len(program.received) < _HEADER_BYTES + size:
                break
            kind, content = program.received[:1], program.received[_HEADER_BYTES : _HEADER_BYTES + size]
            program.received = program.received[_HEADER_BYTES + size :]
            self._obey(program, kind, content)
        if not data:
            self._drop(program)

    def _obey(self, program: _Program, kind: bytes, content: bytes) -> None:
        if kind == b"I":
            self._take_input(content)
        elif kind == b"W" and len(content) == 4:
            rows, columns = int.from_bytes(content[:2], "big"), int.from_bytes(content[2:], "big")
            try:
                termios.tcsetwinsize(self.file, (rows, columns))
            except OSError:
                pass
        elif kind == b"A":
            program.is_attached, program.progress_at = True, time.monotonic()
            position = max(min(int.from_bytes(content, "big"), self._written), self._written - len(self._kept))
            self._send(program, b"P", position.to_bytes(8, "big"))
            self._send(program, b"O", self._kept[len(self._kept) - (self._written - position) :])

    def _send(self, program: _Program, kind: bytes, content: bytes) -> None:
        if content:
            program.pending += kind + len(content).to_bytes(4, "big") + content
            self._flush(program)

    def _flush(self, program: _Program) -> None:
        try:
            while program.pending:
                program.pending = program.pending[os.write(program.file, program.pending[:_CHUNK_BYTES]) :]
                program.progress_at = time.monotonic()
        except BlockingIOError:
            pass
        except OSError:
            self._drop(program)
            return
        assert self._poller is not None
        self._poller.register(program.file, POLLIN | (POLLOUT if program.pending else 0))
        if not self._is_read:
            self._watch_output()

    def _drop(self, program: _Program) -> None:
        if self._programs.pop(program.file, None) is None:
            return
        assert self._poller is not None
        self._poller.unregister(program.file)
        os.close(program.file)
        if program.is_attached and not self._attached():
            self._detached_at = time.monotonic()
        self._watch_output()

    def _attached(self) -> list[_Program]:
        return [program for program in self._programs.values() if program.is_attached]

    # Time

    @property
    def due_at(self) -> float:
        stalled = [each.progress_at + _STALLED_SECONDS for each in self._programs.values() if each.pending]
        return min([*stalled, _FOREVER if self._attached() else self._detached_at + self._detached_seconds])

    def is_left(self, now: float) -> bool:
        """Whether no program has been attached for longer than the job may go on alone."""
        for program in self._attached():
            if program.pending and now >= program.progress_at + _STALLED_SECONDS:
                self._drop(program)
        return not self._attached() and now >= self._detached_at + self._detached_seconds

    def close(self, status: int) -> None:
        """Sends the last output and how the job ended."""
        for program in self._attached():
            self._send(program, b"E", status.to_bytes(4, "big"))
        ends_at = time.monotonic() + _GOODBYE_SECONDS
        while any(program.pending for program in self._attached()) and time.monotonic() < ends_at:
            assert self._poller is not None
            for file, events in self._poller.poll(100):
                if file in self._programs:
                    self.serve(file, events)
        try:
            os.unlink(self._path)
        except OSError:
            pass


def _listen(folder: bytes) -> socket:
    """A socket in this folder. Its address is relative, because absolute ones are limited to 107 bytes."""
    made = socket(AF_UNIX, SOCK_STREAM)
    os.chdir(folder)
    try:
        new = _NAME + b".new"
        try:
            os.unlink(new)  # of a start that was cut short
        except OSError:
            pass
        before = os.umask(0o177)
        try:
            made.bind(new)
        finally:
            os.umask(before)
        made.listen(_BACKLOG)
        os.rename(new, _NAME)  # noqa: PTH104  only now: a program that finds it can connect
    finally:
        os.chdir("/")
    made.setblocking(False)
    os.set_inheritable(made.fileno(), False)
    return made
