"""The supervisor of one lease: parent and subreaper of its job, in a session of its own, so that it outlives the
service. The engine runs it as `python -I -S supervisor.py CONFIGURATION GO`, where both are descriptors.

It starts the job when it reads a byte from GO; if the service dies before, it leaves without starting anything. It
writes the job's output to files of limited size, and on SIGTERM tells the job to stop: SIGTERM, the grace period, then
SIGKILL. When nothing of the job is left it records how the job ended, and exits. The job is killed if it dies.

An interactive job has a terminal, see `supervisor_terminal.py`. While no program is attached to it, the job goes on for
a limited time, and is then told to stop as by a terminal that is closed.

Only small modules of the standard library are imported: a start takes less time, and every running job costs this
memory. Neither `pathlib` nor `contextlib` is among them.
"""

# ruff: noqa: PTH100, PTH104, PTH108, PTH116, PTH120, PTH123, PTH208, SIM105

from __future__ import annotations

import ctypes
import marshal
import os
import sys
import time
from _json import encode_basestring_ascii as quoted
from select import POLLIN, poll

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from typing import Any, NoReturn

    from horae.engines.local.supervisor_terminal import Terminal
else:
    import _signal as signal  # `signal` imports `enum`, which takes as long as the rest together

_SET_PARENT_DEATH_SIGNAL, _SET_CHILD_SUBREAPER = 1, 36  # of prctl
_CHUNK_BYTES = 65536
_DRAIN_BYTES_MAX = 1 << 22  # a descriptor that was passed to another program may be written to for ever
_TAIL_BYTES = 400
_RECORD_BYTES = 4096  # reserved for a record when the lease starts, so that a full disk does not matter
_KILL_SECONDS_MIN, _KILL_SECONDS_MAX = 0.01, 1.0  # between two attempts to kill what is left
_HANDLED = (signal.SIGTERM, signal.SIGCHLD)
_IGNORED = (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
_FOREVER = 1e9
_POLL_MILLISECONDS_MAX = 1 << 30  # poll counts them in 32 bits; after that it looks again
_libc = ctypes.CDLL(None)


class Output:
    """The output of a job, in two files of limited size. What cannot be written is dropped and counted.

    The older file is named by the position of its first byte in all that was written.
    """

    def __init__(self, path: bytes, bytes_max: int, owner: tuple[int, int] | None) -> None:
        self._path = path
        self._bytes_max = max(bytes_max // 2, 1)
        self._owner = owner
        self._file = -1
        self._size = 0
        self._start = 0  # the position of the first byte of the present file
        self._tail = b""
        self.dropped_bytes = 0

    def write(self, data: bytes) -> None:
        self._tail = (self._tail + data)[-_TAIL_BYTES:]
        for start in range(0, len(data), self._bytes_max):
            left = data[start : start + self._bytes_max]
            try:
                if self._file < 0:
                    self._open()
                if self._size + len(left) > self._bytes_max:
                    self._rotate()
                while left:
                    written = os.write(self._file, left)
                    self._size += written
                    left = left[written:]
            except OSError:
                self.dropped_bytes += len(left)

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
        self._file = os.open(self._path, flags, 0o600)
        if self._owner is not None:
            os.fchown(self._file, *self._owner)
        self._size = os.fstat(self._file).st_size
        older = self._older()
        if older:
            self._start = older[-1] + os.stat(self._named(older[-1])).st_size

    def _rotate(self) -> None:
        older = self._older()
        os.rename(self._path, self._named(self._start))
        for start in older:
            os.unlink(self._named(start))
        os.close(self._file)
        self._file = -1
        self._open()

    def _older(self) -> list[int]:
        """The positions at which files before the present one begin: one, or two if a rotation was cut short."""
        folder, _, name = self._path.rpartition(b"/")
        ends = [each[len(name) + 1 :] for each in os.listdir(folder) if each.startswith(name + b".")]
        return sorted(int(end) for end in ends if end.isdigit())

    def _named(self, start: int) -> bytes:
        return b"%s.%d" % (self._path, start)

    def last_line(self) -> str:
        """The last line of the job's output that is not empty."""
        lines = [line.strip() for line in self._tail.decode(errors="replace").splitlines() if line.strip()]
        return lines[-1] if lines else ""


class Supervisor:
    def __init__(self, settings: dict[str, Any], wakeup: int) -> None:
        self._settings = settings
        self._wakeup = wakeup
        owner = settings["user"]
        self._output = Output(settings["output"], settings["output_bytes_max"], owner[:2] if owner else None)
        self._terminal = _open_terminal(settings)
        if self._terminal is None:
            self._output_pipe, self._output_end = os.pipe2(os.O_CLOEXEC)
        else:
            self._output_pipe, self._output_end = self._terminal.file, os.open(os.devnull, os.O_WRONLY)
        self._errors, self._errors_end = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._output_pipe, False)
        os.set_blocking(self._errors, False)
        self._leaders: set[int] = set()
        self._has_children = True
        self._status = 0  # as `waitpid` gives it: the first failure of a leader
        self._told = False  # told to stop while the job ran
        self._is_stopping = False
        self._is_left = False  # told to stop because no program was attached to its terminal
        self._kill_at = _FOREVER
        self._kill_again_at = 0.0
        self._kill_seconds = _KILL_SECONDS_MIN

    def run(self) -> None:
        """Starts the job, and returns when nothing of it is left."""
        self._start()
        poller = poll()
        poller.register(self._wakeup, POLLIN)
        poller.register(self._output_pipe, POLLIN)
        if self._terminal is not None:
            self._terminal.started(poller)
        while self._advance(time.monotonic()):
            for file, events in poller.poll(self._timeout_milliseconds(time.monotonic())):
                if file == self._wakeup:
                    self._take_signals()
                elif self._terminal is not None:
                    if self._terminal.serve(file, events):
                        self._take_output()
                elif self._take_output() == b"":
                    poller.unregister(self._output_pipe)
        for _ in range(_DRAIN_BYTES_MAX // _CHUNK_BYTES):
            if not self._take_output():
                break
        self._record_end()

    # Starting

    def _start(self) -> None:
        """Starts the leaders. They begin when their sessions are on record: a supervisor that dies before leaves
        nothing behind that could not be found."""
        begun, begin = os.pipe2(os.O_CLOEXEC)
        parent = os.getpid()
        # A signal to a child that still has our handlers would be reported to us.
        signal.pthread_sigmask(signal.SIG_BLOCK, _HANDLED)
        for rank in range(self._settings["processes"]):
            pid = os.fork()
            if pid == 0:
                os.close(begin)
                self._become_leader(parent, begun, self._environment(rank))
            self._leaders.add(pid)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDLED)
        sessions = ", ".join(f"[{pid}, {_start_ticks(pid)}]" for pid in sorted(self._leaders))
        try:
            _write_record(self._settings["folder"] + b"/sessions.json", f"[{sessions}]")
        except OSError:
            pass  # a full disk; the processes are found by other means
        os.write(begin, bytes(len(self._leaders)))
        for file in (begun, begin, self._output_end, self._errors_end):
            os.close(file)

    def _environment(self, rank: int) -> dict[bytes, bytes]:
        processes = self._settings["processes"]
        found = {**self._settings["environment"], b"RANK": b"%d" % rank, b"WORLD_SIZE": b"%d" % processes}
        return found if processes == 1 else {**found, b"LOCAL_RANK": b"%d" % rank}

    def _become_leader(self, parent: int, begun: int, environment: dict[bytes, bytes]) -> NoReturn:
        try:
            _libc.prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
            if self._terminal is None:
                os.setsid()
                for standard in (1, 2):  # the input is /dev/null already
                    os.dup2(self._output_end, standard)
            else:
                self._terminal.become_leader()
            signal.set_wakeup_fd(-1)
            for number in (*_HANDLED, *_IGNORED, signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores the last two
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            if not os.read(begun, 1):
                os._exit(1)
            self._enter_cgroup()
            self._become_user()
            # A change of the user cleared it, and the parent may have died before it was set.
            _libc.prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != parent:
                os._exit(1)
            os.chdir(self._settings["workdir"])
            os.execve(b"/bin/sh", [b"sh", b"-c", self._settings["command"]], environment)
        except BaseException as error:
            os.write(self._errors_end, str(error).encode(errors="replace")[:_TAIL_BYTES])
        os._exit(127)

    def _enter_cgroup(self) -> None:
        if self._settings["cgroup"]:
            try:
                _write_text(self._settings["cgroup"] + b"/cgroup.procs", b"0")
            except OSError:
                pass  # not allowed here: the job is found by other means

    def _become_user(self) -> None:
        if self._settings["user"]:
            uid, gid, groups = self._settings["user"]
            os.setgroups(groups)
            os.setresgid(gid, gid, gid)
            os.setresuid(uid, uid, uid)

    # Events

    def _take_output(self) -> bytes | None:
        """Copies output that has arrived and returns it; empty if there will be no more, None if there is none yet."""
        try:
            data = os.read(self._output_pipe, _CHUNK_BYTES)
        except BlockingIOError:
            return None
        except OSError:  # nothing of the job has its terminal open
            data = b""
        self._output.write(data)
        if self._terminal is not None:
            self._terminal.show(data)
        return data

    def _take_signals(self) -> None:
        if signal.SIGTERM in os.read(self._wakeup, _CHUNK_BYTES):
            self._reap()
            self._told = self._told or bool(self._leaders)
            self._stop(self._stop_grace_seconds())

    def _stop_grace_seconds(self) -> float:
        """The grace period that the engine has recorded; a signal from elsewhere comes without one."""
        try:
            with open(self._settings["folder"] + b"/stop.json") as file:
                return float(file.read().partition(":")[2].strip(' \n}"'))
        except (OSError, ValueError):
            return float(self._settings["grace_seconds"])

    def _stop(self, grace_seconds: float) -> None:
        """Tells all processes to stop. A second time can shorten the grace period, never prolong it."""
        self._kill_at = min(self._kill_at, time.monotonic() + grace_seconds)
        if not self._is_stopping:
            self._is_stopping = True
            # Interactive shells ignore SIGTERM, and leave when their terminal is closed.
            closed = () if self._terminal is None else (signal.SIGHUP,)
            _signal_descendants(signal.SIGTERM, *closed, signal.SIGCONT)

    def _reap(self) -> None:
        while self._has_children:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self._has_children = False  # as the subreaper it would have inherited any other descendant
                return
            if pid == 0:
                return
            if pid in self._leaders:
                self._leaders.remove(pid)
                self._status = self._status or status

    def _advance(self, now: float) -> bool:
        """Does what is due; returns whether anything of the job is left."""
        self._reap()
        if self._leaders and self._status and not self._is_stopping:
            self._stop(self._settings["grace_seconds"])  # a gang cannot go on without one of its processes
        if self._terminal is not None and self._terminal.is_left(now) and not self._is_stopping:
            self._is_left = True
            self._stop(self._settings["grace_seconds"])
        if not self._leaders and not self._is_stopping:
            self._kill_at = now  # what a job leaves behind ends with it
        if self._has_children and now >= max(self._kill_at, self._kill_again_at):
            self._kill()
            self._reap()
        return self._has_children

    def _kill(self) -> None:
        self._kill_again_at = time.monotonic() + self._kill_seconds
        self._kill_seconds = min(2 * self._kill_seconds, _KILL_SECONDS_MAX)
        if self._settings["cgroup"]:
            try:
                _write_text(self._settings["cgroup"] + b"/cgroup.kill", b"1")
            except OSError:
                pass  # an old kernel
        _signal_descendants(signal.SIGKILL)

    def _timeout_milliseconds(self, now: float) -> int | None:
        due_at = max(self._kill_at, self._kill_again_at)
        if self._terminal is not None:
            due_at = min(due_at, _FOREVER if self._is_stopping else self._terminal.due_at)
        return None if due_at >= _FOREVER else min(int(max(due_at - now, 0.0) * 1000) + 1, _POLL_MILLISECONDS_MAX)

    def _record_end(self) -> None:
        try:
            error = os.read(self._errors, _TAIL_BYTES).decode(errors="replace")
        except OSError:
            error = ""
        is_killed = os.WIFSIGNALED(self._status)
        if self._terminal is not None:
            self._terminal.close(128 + os.WTERMSIG(self._status) if is_killed else os.WEXITSTATUS(self._status))
        record_end(
            self._settings["folder"],
            status=None if is_killed else os.WEXITSTATUS(self._status),
            signal=os.WTERMSIG(self._status) if is_killed else None,
            told=self._told,
            error=error,
            last_line=self._output.last_line(),
            dropped_bytes=self._output.dropped_bytes,
            is_left=self._is_left,
        )


def _open_terminal(settings: dict[str, Any]) -> Terminal | None:
    if settings["detached_seconds"] is None:
        return None
    # The module is beside this file, which has no package here; most jobs do not need it.
    sys.path.append(os.path.dirname(os.path.abspath(__file__)))
    if not TYPE_CHECKING:
        from supervisor_terminal import Terminal  # noqa: PLC0415
    owner = settings["user"][0] if settings["user"] else None
    return Terminal(settings["folder"], owner, settings["detached_seconds"])


def record_end(folder: bytes, **fields: str | float | bool | None) -> None:
    fields["ended_at"] = int(time.time())
    fields["ended_boot_seconds"] = time.clock_gettime(time.CLOCK_BOOTTIME)
    items = ", ".join(f'"{name}": {_json(value)}' for name, value in fields.items())
    _write_record(folder + b"/exit.json", f"{{{items}}}")


def _json(value: str | float | bool | None) -> str:
    """A value as JSON; importing `json` would take as long as everything else."""
    if isinstance(value, str):
        return quoted(value)
    return "null" if value is None else str(value).lower()


def _write_record(path: bytes, text: str) -> None:
    """Replaces a file by one with this text; the space that is reserved for the new one is used."""
    file = os.open(path + b".new", os.O_WRONLY | os.O_CREAT, 0o600)
    os.write(file, text.encode().ljust(os.fstat(file).st_size))
    os.fsync(file)
    os.close(file)
    os.rename(path + b".new", path)


def _write_text(path: bytes, text: bytes) -> None:
    file = os.open(path, os.O_WRONLY)
    try:
        os.write(file, text)
    finally:
        os.close(file)


def _stat(pid: int | str) -> list[bytes]:
    """The fields of a process after its name: state, parent, group, session, …, the start time at 19."""
    try:
        file = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
        try:
            return os.read(file, 4096).rpartition(b")")[2].split()
        finally:
            os.close(file)
    except OSError:
        return []  # it has just ended


def _start_ticks(pid: int) -> int:
    stat = _stat(pid)
    return int(stat[19]) if stat else 0


def _descendants() -> list[tuple[int, bytes]]:
    """All processes below this one, with their start times."""
    children: dict[int, list[tuple[int, bytes]]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (stat := _stat(name)):
            children.setdefault(int(stat[1]), []).append((int(name), stat[19]))
    found = children.get(os.getpid(), [])
    for pid, _ in found:
        found.extend(children.get(pid, ()))
    return found


def _signal_descendants(*numbers: int) -> None:
    for pid, started in _descendants():
        try:
            process = os.pidfd_open(pid)
        except OSError:
            continue  # it has just ended
        try:
            if _stat(pid)[19:20] == [started]:  # process ids are reused
                for number in numbers:
                    signal.pidfd_send_signal(process, number)
        except OSError:
            pass  # it has just ended, or is not ours to kill
        finally:
            os.close(process)


def _catch_signals() -> int:
    """Makes signals readable from a descriptor. The engine has started this process with SIGTERM blocked."""
    woken, wakeup = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
    for number in _HANDLED:
        signal.signal(number, lambda *_: None)
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    return woken


def _close_others(kept: set[int]) -> None:
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in kept:
            try:
                os.close(int(name))
            except OSError:
                pass  # the descriptor of the folder itself


def main() -> None:
    configuration, go = map(int, sys.argv[1:])
    with open(configuration, "rb") as file:
        settings = marshal.load(file)
    _close_others({0, 1, 2, go, *settings["locks"]})
    os.chdir("/")
    _libc.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    wakeup = _catch_signals()
    is_told_to_go = bool(os.read(go, 1))
    os.close(go)
    if is_told_to_go:
        Supervisor(settings, wakeup).run()
    else:
        record_end(settings["folder"], status=None, signal=None, told=False, error="", never_started=True)


if __name__ == "__main__":
    main()
