"""A lease that runs, or of which something may be left.

If a supervisor is killed, the leaders of its job die with it; their descendants are found by the lock that they
inherited, by their sessions and by their environment, and are killed. Where the engine may make control groups, no
process of a job can escape. Elsewhere a process can that makes a session of its own, closes the inherited descriptors
and clears its environment, if it does so before its supervisor is killed: it cannot be told from any other process.
While the supervisor lives nothing escapes, because it adopts all descendants of the job.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from math import inf
from pathlib import Path

from horae.engines.local import cgroups, locks, processes
from horae.engines.local.endings import saved_steps
from horae.engines.local.environment import MARKER
from horae.engines.local.job_files import JobFolder, LeaseFolder
from horae.engines.local.processes import ProcessId, ProcessStat
from horae.engines.local.records import StartRecord, StopRecord, read_sessions, write_record
from horae.model.events import Phase, Running

_CHECK_SECONDS_MIN, _CHECK_SECONDS_MAX = 0.005, 1.0  # between two looks at what is left of a job


class RunningLease:
    def __init__(self, start: StartRecord, folder: JobFolder) -> None:
        self.start = start
        self.folder = folder
        self.cgroup = Path(start.cgroup) if start.cgroup else None
        self.is_of_this_boot = start.boot_id == processes.boot_id()
        self.descriptor = processes.open_process(start.supervisor) if self.is_of_this_boot else None
        self.check_at = inf if self.descriptor is not None else 0.0  # when to look whether it has ended
        self.is_resumable = False  # it has shown that it resumes from checkpoints
        self.ended_at = inf  # when it was found that nothing of it is left, on the monotonic clock
        self.stuck_since = inf  # since when its supervisor is gone, but not all that it held
        self._check_seconds = _CHECK_SECONDS_MIN
        self._kill_at = inf
        self.is_stopping = self.files.stop.exists()
        if self.is_stopping:  # its service may have died before it sent the signal
            self._tell()

    @property
    def files(self) -> LeaseFolder:
        return self.folder.lease(self.start.epoch)

    def close(self) -> None:
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None

    def as_found(self) -> Running:
        """The lease, as a survey reports it."""
        phase = Phase.SAVING if self.is_stopping else Phase.RUNNING
        steps = saved_steps(self.start, self.folder)
        return Running(self.start.job_id, self.start.epoch, self.start.gpus, steps, phase, self.start.cells)

    def stop(self, grace_seconds: float, now: float) -> None:
        """Tells the supervisor to stop the job. A second time can shorten the grace period, never prolong it."""
        if self.is_stopping and now + grace_seconds >= self._kill_at:
            return
        if self.supervisor_has_ended():
            return  # a job that has just ended by itself was not stopped
        self.is_stopping = True
        self._kill_at = now + grace_seconds
        with suppress(OSError):  # a job that cannot be told its grace period is still stopped
            write_record(self.files.stop, StopRecord(grace_seconds))
        self._tell()

    def _tell(self) -> None:
        if self.is_of_this_boot:
            processes.send(self.start.supervisor, signal.SIGTERM, signal.SIGCONT)

    # The end

    def supervisor_has_ended(self) -> bool:
        return not self.is_of_this_boot or not processes.is_running(self.start.supervisor)

    def reap(self) -> None:
        """Reaps the supervisor if it is a child of this process."""
        found = processes.stat_of(self.start.supervisor.pid)
        if found is not None and found.process == self.start.supervisor:
            with suppress(ChildProcessError):
                os.waitpid(found.process.pid, os.WNOHANG)

    def check_later(self, now: float) -> None:
        """Plans the next look at a lease that has not ended, or of which something is left."""
        self.check_at = now + self._check_seconds
        self._check_seconds = min(2 * self._check_seconds, _CHECK_SECONDS_MAX)

    def survivors(self, lock: Path) -> list[ProcessId]:
        """Processes of this job that outlived their supervisor. They are sought by what they cannot easily lose."""
        sessions = {leader.pid: leader for leader in read_sessions(self.files)}
        marker = os.fsencode(f"\0{MARKER}={self.files.checkpoint}\0")
        holders = set(locks.holders(lock))
        found = []
        for pid in processes.all_pids():
            stat = processes.stat_of(pid)
            if stat is None or stat.state in "ZX" or pid == os.getpid():
                continue
            if pid in holders or _is_in(sessions, stat) or marker in processes.environment_of(pid):
                found.append(stat.process)
        return found

    def kill_survivors(self, lock: Path) -> None:
        cgroups.kill_group(self.cgroup)
        for process in self.survivors(lock):
            processes.send(process, signal.SIGKILL)


def _is_in(sessions: dict[int, ProcessId], stat: ProcessStat) -> bool:
    """Whether a process belongs to a session on record. Its number is not reused while it has processes; if there is
    a younger process of that number, it was reused after they had ended."""
    leader = sessions.get(stat.session)
    if leader is None or stat.process.start_ticks < leader.start_ticks:
        return False
    return processes.identify(leader.pid) in (None, leader)
