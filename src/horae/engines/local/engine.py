"""The local engine: real processes on this machine under the wall clock, on GPUs that are only numbers.

A job is a shell command in a process group of its own. Its parameters are in its environment:

    HORAE_JOB, HORAE_EPOCH   its id, and the epoch of its lease
    HORAE_GPUS               its GPUs, e.g. "3,4"; CUDA_VISIBLE_DEVICES says the same
    HORAE_GPU_TYPE           their type
    HORAE_LEVEL              the smallest cell that holds them all
    HORAE_STEPS_DONE         the step at which to resume
    HORAE_STEPS_TOTAL        how many steps there are, if the job was submitted with a number; one that searches submit
                             is a part of a trial, and knows only from here how far it shall go
    HORAE_CHECKPOINT         a file for the number of steps that are safe; write another and rename it over this one
    HORAE_REPORTS            a file to append lines `steps loss` to, with losses above 0, by which searches judge it; a
                             line counts when it has its newline, and what is no report is passed over
    HORAE_CONTINUES          the checkpoint of the job with whose work it goes on, if there is one; what else that job
                             has saved is best found beside it

A job that is told to stop gets SIGTERM, and SIGKILL when its grace is over. No process of its group outlives the job;
one that makes a session of its own has left the group, and is not tracked.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from pathlib import Path
from types import TracebackType
from typing import Self

from horae.engines.engine import Moment
from horae.engines.local.job_files import (
    checkpoint_file,
    folder_name,
    last_line,
    output_file,
    read_steps,
    reports_file,
    spoil_half_a_line,
)
from horae.model.cluster import Cluster, Gpu
from horae.model.commands import Command, Start, Stop, Survey
from horae.model.events import (
    Ending,
    Event,
    Health,
    JobEnded,
    JobStarted,
    JobSubmitted,
    NodeChanged,
    Running,
    Surveyed,
)
from horae.model.jobs import Arrival, Job

_POLL_SECONDS = 0.02  # between two checks of conditions that cannot be waited for
_SLEEP_SECONDS_MAX = 3600.0  # epoll counts milliseconds in 32 bits
_DEATH_SECONDS_MAX = 5.0  # a process that SIGKILL has not ended by then is stuck in the kernel
_NOT_INHERITED = {"HORAE_STEPS_TOTAL", "HORAE_CONTINUES"}  # not every job has them, and this may itself be a job


@dataclass(slots=True)
class _Run:
    """A job's process group. Its leader is reaped last: until then the kernel does not reuse the group's number."""

    job: Job
    epoch: int
    gpus: tuple[Gpu, ...]
    steps_at_start: float
    folder: Path
    output_at_start_bytes: int
    process: subprocess.Popen[bytes]
    pidfd: int | None = None  # None: its end must be polled for
    stopping: bool = False
    killed: bool = False
    kill_at: float = inf
    cells: tuple[str, ...] = ()  # as in its `Start`

    def signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)

    def stop(self, kill_at: float) -> None:
        self.stopping = True
        self.kill_at = kill_at
        self.signal(signal.SIGTERM)

    def kill(self) -> None:
        self.killed = True
        self.kill_at = inf
        self.signal(signal.SIGKILL)

    def leader_has_ended(self) -> bool:
        try:
            return os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return True

    def lingers(self) -> bool:
        """Whether processes that outlived the group's leader may still save their work.

        SIGTERM also ends the shell in which a job runs, usually long before the program for which it waits.
        """
        return self.stopping and not self.killed and _group_lives(self.process.pid)

    def bury(self) -> None:
        """Kills all remaining processes of the group, and waits until they are gone."""
        self.kill()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=_DEATH_SECONDS_MAX)
        give_up_at = time.monotonic() + _DEATH_SECONDS_MAX
        while _group_lives(self.process.pid) and time.monotonic() < give_up_at:
            time.sleep(_POLL_SECONDS / 10)

    def steps(self) -> float:
        """The saved steps.

        A missing or corrupt checkpoint counts as no progress, and saved progress never decreases.
        """
        return max(read_steps(checkpoint_file(self.folder)), self.steps_at_start)

    def ending(self) -> Ending:
        """The kind of ending that the leader's exit implies."""
        succeeded = self.process.returncode == 0
        if self.stopping:
            # Programs that save when they are told to stop may well exit with 0.
            total = self.job.steps_total
            return Ending.FINISHED if succeeded and total is not None and self.steps() >= total else Ending.STOPPED
        return Ending.FINISHED if succeeded else Ending.FAILED

    def complaint(self) -> str:
        """Why it failed: how the leader ended, and the last line of its output."""
        code = self.process.returncode
        end = f"exit code {code}" if code >= 0 else f"killed by {_signal_name(-code)}"
        line = last_line(output_file(self.folder), self.output_at_start_bytes)
        return f"{end}: {line}" if line else end


class LocalEngine:
    """An engine whose time is seconds since its creation. `arrivals` are jobs in the order in which they will be
    submitted; `outside` are events from operators and hardware; jobs on a failed node are really killed.

    `directory` gets one folder per job, with its output, its checkpoint and its reports. Jobs resume from the
    checkpoints that they find there, so a new experiment needs a new directory.
    """

    def __init__(
        self, cluster: Cluster, arrivals: Iterable[Job], directory: Path, outside: Iterable[Event] = ()
    ) -> None:
        self._made_at = time.monotonic()
        self._cluster = cluster
        self._directory = directory.resolve()
        self._arrivals: Iterator[Job] = iter(arrivals)
        self._next_arrival = next(self._arrivals, None)
        self._outside = sorted(outside, key=lambda event: event.at)[::-1]
        self._selector = selectors.DefaultSelector()
        self._woken, self._alarm = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._jobs: dict[str, Job] = {}
        self._runs: dict[str, _Run] = {}
        self._ended: dict[str, JobEnded] = {}  # by job: how its latest run ended
        self._tombstones: dict[str, JobEnded] = {}  # by job: the latest lease that was stopped before it started

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Kills everything that is left."""
        for run in self._runs.values():
            run.kill()
        for run in self._runs.values():
            self._unwatch(run)
            run.bury()
        self._runs.clear()
        self._selector.close()
        for descriptor in (self._woken, self._alarm) if self._alarm >= 0 else ():
            os.close(descriptor)
        self._woken = self._alarm = -1

    def wake(self) -> None:
        """Interrupts a wait, from any thread or from a signal handler."""
        with suppress(BlockingIOError):  # full: it is awake anyway
            os.write(self._alarm, b"\0")

    @property
    def now(self) -> float:
        return time.monotonic() - self._made_at

    def expect(self, arrival: Arrival) -> None:
        """Registers a job that is submitted elsewhere."""
        self._jobs.setdefault(arrival.job.id, arrival.job)

    def wait(self, until: float) -> Moment | None:
        while True:
            now = self.now
            events = self._take_ends(now)
            self._take_outside(now, events)
            self._take_arrivals(now, events)
            if events or now >= until or self._is_woken():
                return Moment(self.now, events)
            due_at = min(until, self._due_at())
            if due_at == inf and not self._runs:
                return None
            self._sleep(due_at)

    def execute(self, commands: Sequence[Command]) -> Sequence[Event]:
        replies: list[Event] = []
        for command in commands:
            match command:
                case Start():
                    for job_id, steps_done in zip(command.job_ids, command.steps_done, strict=True):
                        replies.extend(self._start(command, job_id, steps_done))
                case Stop():
                    replies.extend(self._stop(command))
                case Survey():
                    running = [
                        Running(each, run.epoch, run.gpus, run.steps(), cells=run.cells)
                        for each, run in self._runs.items()
                    ]
                    replies.append(Surveyed(self.now, tuple(running)))
        return replies

    # Events

    def _due_at(self) -> float:
        """The time of the next event that is not the end of a process."""
        due_at = min((run.kill_at for run in self._runs.values()), default=inf)
        if self._next_arrival is not None:
            due_at = min(due_at, self._next_arrival.submitted_at)
        if self._outside:
            due_at = min(due_at, self._outside[-1].at)
        return due_at

    def _sleep(self, until: float) -> None:
        """Sleeps until that time, or until the leader of a group ends; possibly shorter."""
        must_poll = any(run.pidfd is None for run in self._runs.values())
        seconds_max = _POLL_SECONDS if must_poll else _SLEEP_SECONDS_MAX
        self._selector.select(min(max(until - self.now, 0.0), seconds_max))

    def _is_woken(self) -> bool:
        with suppress(BlockingIOError):
            return bool(os.read(self._woken, 4096))
        return False

    def _take_ends(self, now: float) -> list[Event]:
        events: list[Event] = []
        for run in list(self._runs.values()):
            if run.kill_at <= now:
                run.kill()
            if not run.leader_has_ended():
                continue
            if run.lingers():
                self._unwatch(run)  # the end of its leader is no longer news
            else:
                events.append(self._end(run))
        return events

    def _take_outside(self, now: float, events: list[Event]) -> None:
        while self._outside and self._outside[-1].at <= now:
            event = self._outside.pop()
            events.append(event)
            if isinstance(event, NodeChanged) and event.health is Health.FAILED:
                events.extend(self._lose(event.node))
            elif isinstance(event, JobSubmitted):
                self._jobs.setdefault(event.job.id, event.job)

    def _take_arrivals(self, now: float, events: list[Event]) -> None:
        while self._next_arrival is not None and self._next_arrival.submitted_at <= now:
            job = self._next_arrival
            self._jobs.setdefault(job.id, job)
            events.append(JobSubmitted(job.submitted_at, job))
            self._next_arrival = next(self._arrivals, None)

    def _lose(self, node: str) -> list[Event]:
        if node not in self._cluster.node_index:
            return []
        lost = [run for run in self._runs.values() if any(gpu.node == node for gpu in run.gpus)]
        return [self._end(run, Ending.LOST, f"node {node} failed") for run in lost]

    # Commands

    def _start(self, command: Start, job_id: str, steps_done: float) -> tuple[Event, ...]:
        epoch, run, ended = command.epoch, self._runs.get(job_id), self._ended.get(job_id)
        tombstone = self._tombstones.get(job_id)
        if tombstone is not None and epoch <= tombstone.epoch and (run is None or run.epoch != epoch):
            return (tombstone,) if epoch == tombstone.epoch else ()
        if run is not None:
            if epoch <= run.epoch:
                return (JobStarted(self.now, job_id, epoch),) if epoch == run.epoch else ()
            # The scheduler has given up the former lease; two runs would corrupt each other's checkpoints.
            former = self._end(run) if run.leader_has_ended() else self._end(run, Ending.STOPPED, "started anew")
            return (former, *self._start(command, job_id, steps_done))
        if ended is not None:
            if epoch <= ended.epoch:
                return (ended,) if epoch == ended.epoch else ()
            if ended.ending is Ending.FINISHED:
                # The message was lost on the way; send it again.
                return (self._remember(ended._replace(at=self.now, epoch=epoch)),)
        try:
            self._runs[job_id] = self._launch(command, job_id, steps_done)
        except (OSError, ValueError) as error:
            message = f"cannot start: {error}"
            return (self._remember(JobEnded(self.now, job_id, epoch, Ending.FAILED, steps_done, message)),)
        return (JobStarted(self.now, job_id, epoch),)

    def _launch(self, command: Start, job_id: str, steps_done: float) -> _Run:
        job = self._jobs.get(job_id)
        if job is None:
            raise ValueError("no such job was submitted")
        if not job.command.strip():
            raise ValueError("the job has no command")
        folder = self._directory / folder_name(job_id)
        folder.mkdir(parents=True, exist_ok=True)
        spoil_half_a_line(reports_file(folder))
        inherited = {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}
        with output_file(folder).open("ab") as output:
            output_at_start_bytes = output.tell()  # before the job moves it: the position is shared
            process = subprocess.Popen(
                job.command,
                shell=True,
                cwd=job.workdir or folder,
                env=inherited | self._environment(command, job, steps_done, folder),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            run = _Run(job, command.epoch, command.gpus, steps_done, folder, output_at_start_bytes, process)
            run.cells = command.cells
        self._watch(run)
        return run

    def _environment(self, command: Start, job: Job, steps_done: float, folder: Path) -> dict[str, str]:
        gpus = ",".join(map(str, self._cluster.positions(command.gpus).tolist()))
        environment = {
            "HORAE_JOB": job.id,
            "HORAE_EPOCH": str(command.epoch),
            "HORAE_GPUS": gpus,
            "HORAE_GPU_TYPE": command.shape.accelerator,
            "HORAE_LEVEL": command.shape.level,
            "HORAE_STEPS_DONE": f"{steps_done:.17g}",  # all digits, but no ".0" to break a shell script
            "HORAE_CHECKPOINT": str(checkpoint_file(folder)),
            "HORAE_REPORTS": str(reports_file(folder)),
            "CUDA_VISIBLE_DEVICES": gpus,
        }
        if job.steps_total is not None:
            environment["HORAE_STEPS_TOTAL"] = f"{job.steps_total:.17g}"
        former = checkpoint_file(self._directory / folder_name(job.continues))
        if job.continues and former.exists():
            environment["HORAE_CONTINUES"] = str(former)
        return environment

    def _entomb(self, command: Stop) -> tuple[Event, ...]:
        """Records a stop of a lease that does not run, so that its start does nothing if it arrives later."""
        job_id, epoch = command.job_id, command.epoch
        run, ended = self._runs.get(job_id), self._ended.get(job_id)
        if ended is not None and ended.ending is Ending.FINISHED:
            return (ended._replace(epoch=epoch),)
        if run is not None and epoch < run.epoch:
            return ()
        if ended is not None and ended.epoch >= epoch:
            return (ended,) if ended.epoch == epoch else ()
        tombstone = self._tombstones.get(job_id)
        if tombstone is None or tombstone.epoch < epoch:
            steps = run.steps() if run is not None else 0.0 if ended is None else ended.steps
            tombstone = self._tombstones[job_id] = JobEnded(self.now, job_id, epoch, Ending.STOPPED, steps)
        return (tombstone,) if tombstone.epoch == epoch else ()

    def _stop(self, command: Stop) -> tuple[Event, ...]:
        run = self._runs.get(command.job_id)
        if run is None or run.epoch != command.epoch:
            return self._entomb(command)
        # A job that has just ended by itself was not stopped, and grace is given once.
        if not run.stopping and not run.leader_has_ended():
            run.stop(self.now + command.grace_seconds)
        return ()

    def _end(self, run: _Run, ending: Ending | None = None, message: str = "") -> JobEnded:
        """Ends a run; if no ending is given, the leader's exit determines it."""
        self._unwatch(run)
        run.bury()
        del self._runs[run.job.id]
        if ending is None:
            ending = run.ending()
            message = run.complaint() if ending is Ending.FAILED else ""
        return self._remember(JobEnded(self.now, run.job.id, run.epoch, ending, run.steps(), message))

    def _remember(self, event: JobEnded) -> JobEnded:
        self._ended[event.job_id] = event
        return event

    # Wake-up at the end of a process

    def _watch(self, run: _Run) -> None:
        if not hasattr(os, "pidfd_open"):
            return
        with suppress(OSError):  # an old kernel, or too many open files
            run.pidfd = os.pidfd_open(run.process.pid)
            self._selector.register(run.pidfd, selectors.EVENT_READ)

    def _unwatch(self, run: _Run) -> None:
        if run.pidfd is not None:
            with suppress(KeyError):
                self._selector.unregister(run.pidfd)
            os.close(run.pidfd)
            run.pidfd = None


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _group_lives(group: int) -> bool:
    """Whether a process of the group still runs; ended but unreaped processes do not count."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # a process exists
    return any(_runs_in_group(stat, group) for stat in Path("/proc").glob("[0-9]*/stat"))


def _runs_in_group(stat: Path, group: int) -> bool:
    try:
        # The name of the program may contain anything, even a parenthesis.
        state, _, its_group, *_ = stat.read_text(errors="replace").rpartition(")")[2].split()
    except (OSError, ValueError):
        return False  # it has just ended
    return int(its_group) == group and state not in "ZX"
