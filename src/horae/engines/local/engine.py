"""The local engine: real processes on this machine, which survive the service.

Each lease has a supervisor, a small process that is the parent of the job and goes on when the service dies. What runs
is on record in the engine's folder and held by locks, so that the next service finds it, reports what ended meanwhile,
and goes on. Jobs are shell commands; `environment.py` lists what they are told. A job that is told to stop gets
SIGTERM, and SIGKILL when its grace period is over; no process of it outlives the lease.

    fence, fence.lock   the service that may give commands, see `fence.py`
    locks/              one lock per GPU and one per job, see `locks.py`
    active/             names the leases that run, or whose end has not been received
    jobs/               one folder per job, see `job_files.py`
    gpus                GPUs that were reported as not usable

If all jobs run as the user of the service, they are in one trust domain: they can read and change these files.
"""

from __future__ import annotations

import os
import selectors
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from math import inf
from pathlib import Path
from types import TracebackType
from typing import Self

import structlog

from horae.engines.engine import Moment
from horae.engines.local import cgroups
from horae.engines.local.checkpoints import delete_unused, newest_published
from horae.engines.local.endings import end_of
from horae.engines.local.fence import Fence
from horae.engines.local.gpu_states import GpuStates
from horae.engines.local.gpu_watch import GpuWatch
from horae.engines.local.job_files import JobFolder
from horae.engines.local.launch import Launch
from horae.engines.local.lease_table import LeaseTable
from horae.engines.local.locks import Locks, LockTaken
from horae.engines.local.nvml import Nvml, in_order_of
from horae.engines.local.records import EndRecord, History, StartRecord, history, read_record, write_record
from horae.engines.local.running import RunningLease
from horae.engines.local.starter import Contact, Starter
from horae.engines.local.untrusted_files import is_regular
from horae.model.cluster import Cluster, Gpu
from horae.model.commands import Command, Start, Stop, Survey
from horae.model.events import Ending, Event, JobEnded, JobResumable, JobStarted, Surveyed
from horae.model.serialization import Plain

log = structlog.get_logger("engine")

_WAKE, _NEWS = b"w", b"n"  # notes to a waiting engine: return in any case, or only if there are events
_SLEEP_SECONDS_MAX = 3600.0  # epoll counts milliseconds in 32 bits


def _no_contact(job_id: str, epoch: int) -> Mapping[str, str]:
    return {}


class LocalEngine:
    """Runs jobs on the GPUs of this machine, or on emulated ones, under the clock `now`.

    A second engine on the same folder takes over; the first then raises Fenced instead of carrying out commands.
    """

    def __init__(
        self,
        cluster: Cluster,
        folder: Path,
        now: Callable[[], float],
        *,
        term: int = 1,
        contact: Contact = _no_contact,
        nvml: Nvml | None = None,
        use_cgroups: bool = True,
    ) -> None:
        """`folder` holds the engine's state, and `now` returns the time of the log in seconds. `contact` returns what
        one lease is told in its environment about the service. With `nvml`, the first GPUs of the cluster are those of
        this machine; all others are emulated. Raises Fenced if a service of a higher term has the folder."""
        self._now = now
        self._folder = folder.absolute()
        self._folder.mkdir(parents=True, exist_ok=True)
        self._folder.chmod(0o711)  # whatever the service usually gives: users of jobs pass through it
        self._fence = Fence(self._folder, term)
        self._locks = Locks(self._folder / "locks")
        gpus = [Gpu(node.name, number) for node in cluster.nodes for number in range(node.gpus)]
        detected = nvml.detect() if nvml is not None else []
        known = in_order_of(detected, cluster)
        uuids = dict(zip(known, (each.uuid for each in detected), strict=False))
        cgroup = cgroups.own_cgroup() if use_cgroups else None
        self._starter = Starter(cluster, self._folder, self._locks, now, contact, uuids, cgroup)
        self._gpus = GpuStates(cluster, self._locks, self._folder / "gpus")
        self._selector = selectors.DefaultSelector()
        self._woken, self._alarm = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._watched: set[int] = set()
        self._launches: dict[str, Launch] = {}
        self._leases = LeaseTable(self._folder, self._locks, self._gpus, self._selector)
        self._queued: dict[int, Start] = {}  # by epoch: a start that waits for the end of older leases of its jobs
        self._unrecorded: dict[str, EndRecord] = {}  # by job: an end that could not be recorded, or of no lease
        self._events: list[Event] = []  # to be returned by the next `wait`
        self._unacknowledged: list[Path] = []  # entries of leases whose end was returned
        self._is_woken = False
        self._adopt()
        self._gpus.probe([gpu for gpu in gpus if not self._leases.using(gpu)], now())
        news = partial(self._send, _NEWS)
        self._watch = GpuWatch(nvml, list(uuids), self._leases.is_ours, news) if nvml is not None else None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Leaves everything running, for the next engine on this folder."""
        if self._watch is not None:
            self._watch.close()
            self._watch = None
        self._leases.close()
        self._selector.close()
        self._fence.close()
        for descriptor in (self._woken, self._alarm) if self._alarm >= 0 else ():
            os.close(descriptor)
        self._woken = self._alarm = -1

    def wake(self) -> None:
        """Interrupts a wait, from any thread or from a signal handler."""
        self._send(_WAKE)

    def _send(self, note: bytes) -> None:
        with suppress(BlockingIOError):  # full: it is awake anyway
            os.write(self._alarm, note)

    def watch(self, descriptor: int) -> None:
        """Lets `wait` return whenever this descriptor is readable, too."""
        self._watched.add(descriptor)
        self._selector.register(descriptor, selectors.EVENT_READ)

    def unwatch(self, descriptor: int) -> None:
        self._watched.discard(descriptor)
        self._selector.unregister(descriptor)

    def expect(self, launch: Launch) -> None:
        """Registers how a job is run, before its first start."""
        self._launches[launch.job_id] = launch

    def set_cluster(self, cluster: Cluster) -> None:
        """Emulated nodes have come or gone."""
        self._starter.cluster = cluster

    def take_idle(self) -> Mapping[Gpu, float]:
        """By GPU of which the driver tells it: for how many seconds it computed nothing since the last call."""
        return {} if self._watch is None else self._watch.take_idle()

    def repair(self, node: str) -> None:
        """Counts the failed GPUs of a node as usable, until the driver reports a fault that is new or lasts."""
        gpus = self._gpus.failed_on(node)
        if self._watch is not None:
            self._watch.forgive(gpus)
        else:
            self._gpus.forgive(gpus)
            self.wake()

    def forget(self, job_id: str) -> None:
        """Drops how a job is run: it will not start again. Its files remain."""
        self._launches.pop(job_id, None)
        self._unrecorded.pop(job_id, None)

    def specification(self, job_id: str) -> Plain | None:
        """What the launch of a running job said about it; None if the job does not run."""
        lease = self._leases.get(job_id)
        return None if lease is None else lease.start.specification

    @property
    def is_running(self) -> bool:
        """Whether any lease runs, or has ended without having been reported."""
        return bool(self._leases) or bool(self._events)

    def stop_all(self, grace_seconds: float | None = None) -> None:
        """Tells all jobs to stop, with this grace period or that of each; their ends are reported by `wait`."""
        with self._fence.held():
            self._queued.clear()
            for lease in self._leases:
                lease.stop(lease.start.grace_seconds if grace_seconds is None else grace_seconds, self._now())

    def wait(self, until: float) -> Moment | None:
        """The next events. What earlier calls returned counts as received."""
        self._acknowledge()
        self._poll(0.0)
        while True:
            now = self._now()
            events = self._take_events(now)
            if events or self._is_woken or now >= until:
                self._is_woken = False
                return Moment(self._now(), events)
            due_at = min(until, self._leases.due_at, self._gpus.due_at)
            if due_at == inf and not self._leases and not self._watched and self._watch is None:
                return None
            self._poll(due_at - now)

    def execute(self, commands: Sequence[Command]) -> Sequence[Event]:
        replies: list[Event] = []
        for command in commands:
            match command:
                case Start():
                    with self._fence.held():
                        replies.extend(self._start(command))
                case Stop():
                    with self._fence.held():
                        replies.extend(self._stop(command))
                case Survey():
                    replies.extend(self._survey())
        return replies

    # Waiting

    def _poll(self, seconds: float) -> None:
        """Waits for something to happen."""
        for key, _ in self._selector.select(max(min(seconds, _SLEEP_SECONDS_MAX), 0.0)):
            if key.fd == self._woken:
                self._is_woken = self._is_woken or _WAKE in os.read(self._woken, 4096)
            elif key.fd in self._watched:
                self._is_woken = True
            else:
                self._leases.supervisor_ended(key.data)

    def _take_events(self, now: float) -> list[Event]:
        self._events.extend(JobResumable(now, job_id) for job_id in self._leases.newly_resumable(now))
        for lease in self._leases.due(now):
            with self._fence.held():
                end = self._leases.end_of(lease, self._watch, now)
                if end is not None:
                    self._end(lease, end)
        if self._watch is not None:
            self._gpus.forgive(self._watch.take_forgiven())
            self._gpus.driver_reports(self._watch.found)
        events = [*self._gpus.changes(now), *self._events]
        self._events = []
        ends = [event for event in events if isinstance(event, JobEnded)]
        self._unacknowledged.extend(self._starter.entry(event.job_id, event.epoch) for event in ends)
        return events

    def _acknowledge(self) -> None:
        for entry in self._unacknowledged:
            with suppress(OSError):
                entry.unlink()
        self._unacknowledged.clear()
        self._gpus.acknowledge()

    # Starting

    def _start(self, command: Start) -> list[Event]:
        """Starts those jobs of a bundle that do not run yet. They share the locks of their GPUs."""
        replies: list[Event] = []
        fresh: list[str] = []
        for job_id in command.job_ids:
            known = self._known(command, job_id)
            replies.extend(known or ())
            if known is None:
                fresh.append(job_id)
        former = self._former(command)
        for lease in former:
            # The scheduler has given up the former lease. The two must not run at the same time.
            lease.stop(0.0, self._now())
            self._queued[command.epoch] = command
        return replies if former or not fresh else [*replies, *self._launch_all(command, fresh)]

    def _former(self, command: Start) -> list[RunningLease]:
        """Older leases of these jobs that still run."""
        leases = [self._leases.get(job_id) for job_id in command.job_ids]
        return [lease for lease in leases if lease is not None and lease.start.epoch < command.epoch]

    def _launch_all(self, command: Start, job_ids: Sequence[str]) -> list[Event]:
        gpu_locks: list[int] = []
        try:
            for gpu in command.gpus:
                gpu_locks.append(self._take_gpu(gpu))  # noqa: PERF401  those taken so far must be closed
            return [self._launch(command, job_id, gpu_locks) for job_id in job_ids]
        except (LockTaken, OSError) as error:
            return [self._lost(command, job_id, error) for job_id in job_ids]
        finally:
            for lock in gpu_locks:
                os.close(lock)

    def _known(self, command: Start, job_id: str) -> Sequence[Event] | None:
        """The answer to a start that was carried out before, or must not be; None if it is to be carried out."""
        epoch, lease, past = command.epoch, self._leases.get(job_id), self._history(job_id)
        if lease is not None and epoch == lease.start.epoch:
            return (JobStarted(self._now(), job_id, epoch),)
        if lease is not None and epoch < lease.start.epoch:
            return ()
        for end in (past.tombstone, past.ended):
            if end is not None and epoch <= end.epoch:
                return (end.event(self._now()),) if epoch == end.epoch else ()
        if lease is None and past.ended is not None and past.ended.ending is Ending.FINISHED:
            return (past.ended.event(self._now())._replace(epoch=epoch),)  # the message was lost on the way
        return None

    def _history(self, job_id: str) -> History:
        past = history(JobFolder.of(self._folder, job_id))
        other = self._unrecorded.get(job_id)
        if other is not None and (past.ended is None or past.ended.epoch < other.epoch):
            return History(other, past.tombstone)
        return past

    def _take_gpu(self, gpu: Gpu) -> int:
        users = [lease.start for lease in self._leases.using(gpu)]
        try:
            return self._locks.take_gpu(gpu)
        except LockTaken as error:
            if users:
                raise LockTaken(error.what, f"held by lease {users[0].epoch} of job {users[0].job_id}") from None
            self._gpus.lock_taken(gpu, f"{error.what} is {error.holder}", self._now())
            raise

    def _launch(self, command: Start, job_id: str, gpu_locks: Sequence[int]) -> Event:
        launch = self._launches.get(job_id)
        if launch is None:
            return self._refuse(command, job_id, Ending.FAILED, "no such job was submitted")
        try:
            start = self._starter.start(command, launch, gpu_locks)
        except ValueError as error:
            return self._refuse(command, job_id, Ending.FAILED, str(error))
        except (LockTaken, OSError) as error:
            return self._lost(command, job_id, error)
        self._unrecorded.pop(job_id, None)
        self._leases.add(RunningLease(start, JobFolder.of(self._folder, job_id)))
        return JobStarted(self._now(), job_id, command.epoch)

    def _lost(self, command: Start, job_id: str, error: LockTaken | OSError) -> JobEnded:
        """The answer to a start that this machine cannot carry out now. Only operators see the log."""
        detail = f"{error.what} is {error.holder}" if isinstance(error, LockTaken) else str(error)
        log.warning("a job cannot start", job=job_id, epoch=command.epoch, error=detail)
        return self._refuse(command, job_id, Ending.LOST, str(error))

    def _refuse(self, command: Start, job_id: str, ending: Ending, message: str) -> JobEnded:
        steps = command.steps_done[command.job_ids.index(job_id)]
        end = EndRecord(job_id, command.epoch, ending, steps, f"cannot start: {message}")
        self._unrecorded[job_id] = end
        return end.event(self._now())

    # Stopping

    def _stop(self, command: Stop) -> Sequence[Event]:
        lease = self._leases.get(command.job_id)
        if lease is not None and lease.start.epoch == command.epoch:
            lease.stop(command.grace_seconds, self._now())
            return ()
        return self._entomb(command)

    def _entomb(self, command: Stop) -> Sequence[Event]:
        """Records a stop of a lease that does not run, so that its start does nothing if it arrives later."""
        job_id, epoch = command.job_id, command.epoch
        lease, past = self._leases.get(job_id), self._history(job_id)
        if past.ended is not None and past.ended.ending is Ending.FINISHED:
            return (past.ended.event(self._now())._replace(epoch=epoch),)
        if lease is not None and epoch < lease.start.epoch:
            return ()
        for end in (past.ended, past.tombstone):
            if end is not None and epoch <= end.epoch:
                return (end.event(self._now()),) if epoch == end.epoch else ()
        return self._bury(command, past)

    def _bury(self, command: Stop, past: History) -> Sequence[Event]:
        job_id, lease = command.job_id, self._leases.get(command.job_id)
        steps = 0.0 if past.ended is None else past.ended.steps
        steps = steps if lease is None else lease.as_found().steps
        tombstone = EndRecord(job_id, command.epoch, Ending.STOPPED, steps)
        files = JobFolder.of(self._folder, job_id).lease(command.epoch)
        try:
            files.make()
            write_record(files.tombstone, tombstone)
        except OSError:
            return ()  # it is not durable, so the stop is not answered, and comes again
        return (tombstone.event(self._now()),)

    # What runs, and how it ends

    def _adopt(self) -> None:
        """Finds what runs, and what has ended and was not received."""
        found: list[StartRecord] = []
        for entry, files in self._starter.entries():
            start = read_record(StartRecord, files.start)
            if start is not None:
                found.append(start)
            else:  # its service died before it could start the job
                entry.unlink()
        for start in sorted(found, key=lambda start: start.epoch, reverse=True):
            folder = JobFolder.of(self._folder, start.job_id)
            end = read_record(EndRecord, folder.lease(start.epoch).ended)
            if end is None and self._leases.get(start.job_id) is None:
                self._leases.add(RunningLease(start, folder))
            else:
                self._events.append((end or end_of(start, folder)).event(self._now()))

    def _survey(self) -> list[Event]:
        """Everything that runs; ends that were not reported yet come first, so that none is taken for lost."""
        self._poll(0.0)
        self._leases.look_now()
        now = self._now()
        events = self._take_events(now)
        running = sorted((lease.as_found() for lease in self._leases), key=lambda run: (run.epoch, run.job_id))
        return [*events, Surveyed(now, tuple(running))]

    def _end(self, lease: RunningLease, end: EndRecord) -> None:
        """Records an end, and starts what has waited for it."""
        start, folder = lease.start, lease.folder
        if not lease.is_resumable and is_regular(lease.files.sdk):
            self._events.append(JobResumable(self._now(), start.job_id))
        try:
            write_record(lease.files.ended, end, durable=False)
        except OSError:
            self._unrecorded[start.job_id] = end
        self._leases.remove(lease)
        checkpoint = newest_published(folder)
        kept = None if checkpoint is None else checkpoint.epoch
        if kept == start.epoch or end.ending is Ending.FINISHED:
            delete_unused(folder, start.epoch, kept)
        self._events.append(end.event(self._now()))
        for command in [each for each in self._queued.values() if not self._former(each)]:
            del self._queued[command.epoch]
            self._events.extend(self._start(command))
