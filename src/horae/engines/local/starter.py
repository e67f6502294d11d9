"""Starts leases: takes the locks, makes the folders, records the lease, and starts its supervisor."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from math import inf
from pathlib import Path

from horae.engines.local import cgroups, processes
from horae.engines.local.checkpoints import newest_published
from horae.engines.local.environment import Place, environment
from horae.engines.local.job_files import JobFolder, LeaseFolder, folder_name, spoil_half_a_line
from horae.engines.local.launch import Launch
from horae.engines.local.locks import Locks
from horae.engines.local.records import StartRecord, reserve, sync_folder, write_record
from horae.engines.local.spawn import Spawned
from horae.engines.local.users import User, user_of
from horae.model.cluster import Cluster, Gpu
from horae.model.commands import Start

Contact = Callable[[str, int], Mapping[str, str]]


class Starter:
    def __init__(
        self,
        cluster: Cluster,
        folder: Path,
        locks: Locks,
        now: Callable[[], float],
        contact: Contact,
        uuids: Mapping[Gpu, str],
        cgroup: Path | None,
    ) -> None:
        self.cluster = cluster
        self._folder = folder
        self._locks = locks
        self._now = now
        self._contact = contact
        self._uuids = uuids
        self._cgroup = cgroup
        self._active = folder / "active"
        self._active.mkdir(mode=0o700, exist_ok=True)

    def start(self, command: Start, launch: Launch, gpu_locks: Sequence[int]) -> StartRecord:
        """Starts one job of a lease.

        Raises ValueError if the job itself is at fault, LockTaken if an older run of it is left, and OSError if this
        machine cannot start it now.
        """
        if not launch.command.strip():
            raise ValueError("the job has no command")
        if launch.processes < 1:
            raise ValueError(f"a gang of {launch.processes} processes cannot run")
        if launch.has_terminal and launch.processes > 1:
            raise ValueError("a gang of several processes cannot share a terminal")
        if "\0" in launch.command or "\0" in launch.workdir:
            raise ValueError("the command and the folder of a job cannot contain zero bytes")
        steps_done = command.steps_done[command.job_ids.index(launch.job_id)]
        user = user_of(launch.user)
        job_lock = self._locks.take_job(launch.job_id)
        try:
            folder = JobFolder.of(self._folder, launch.job_id)
            lease = folder.lease(command.epoch)
            _make_folders(folder, lease, user)
            place = self._place(command, launch, folder, user)
            contact = self._contact(launch.job_id, command.epoch)
            found = environment(command, launch, place, steps_done, self._ends_in(command), contact)
            return self._spawn(command, launch, steps_done, place, found, [*gpu_locks, job_lock])
        finally:
            os.close(job_lock)

    def entry(self, job_id: str, epoch: int) -> Path:
        """A file that exists while a lease runs, or its end has not been received."""
        return self._active / f"{epoch}-{folder_name(job_id)}"

    def entries(self) -> list[tuple[Path, LeaseFolder]]:
        """These files, each with the folder of its lease."""
        found = []
        for entry in self._active.iterdir():
            epoch, _, job = entry.name.partition("-")
            found.append((entry, LeaseFolder(self._folder / "jobs" / job / "leases" / epoch)))
        return found

    def _spawn(
        self,
        command: Start,
        launch: Launch,
        steps_done: float,
        place: Place,
        variables: Mapping[bytes, bytes],
        locks: Sequence[int],
    ) -> StartRecord:
        lease = place.folder.lease(command.epoch)
        group = cgroups.make_group(self._cgroup, self._folder, launch.job_id, command.epoch)
        settings = _settings(launch, place, lease, variables, group)
        entry = self.entry(launch.job_id, command.epoch)
        entry.touch(mode=0o600)
        try:
            supervisor = Spawned(settings, locks, lease.supervisor_log)
            try:
                record = self._record(command, launch, steps_done, supervisor.process, group)
                write_record(lease.start, record)
            except BaseException:
                supervisor.cancel()
                raise
        except BaseException:
            cgroups.remove_group(group)
            with suppress(OSError):
                entry.unlink()
            raise
        supervisor.go()
        return record

    def _record(
        self, command: Start, launch: Launch, steps_done: float, supervisor: processes.ProcessId, group: Path | None
    ) -> StartRecord:
        return StartRecord(
            launch.job_id,
            command.epoch,
            command.gpus,
            command.cells,
            command.shape,
            steps_done,
            launch.steps_total,
            launch.grace_seconds,
            processes.boot_id(),
            supervisor,
            time.time(),
            "" if group is None else str(group),
            launch.specification,
        )

    def _place(self, command: Start, launch: Launch, folder: JobFolder, user: User | None) -> Place:
        positions = [str(position) for position in self.cluster.positions(command.gpus).tolist()]
        devices = [self._uuids.get(gpu, position) for gpu, position in zip(command.gpus, positions, strict=True)]
        continued = newest_published(JobFolder.of(self._folder, launch.continues)) if launch.continues else None
        return Place(folder, ",".join(positions), ",".join(devices), newest_published(folder), continued, user)

    def _ends_in(self, command: Start) -> float:
        return command.lease_until - self._now() if command.lease_until > 0 else inf


def _settings(
    launch: Launch,
    place: Place,
    lease: LeaseFolder,
    variables: Mapping[bytes, bytes],
    group: Path | None,
) -> dict[str, object]:
    """What the supervisor has to know; see `supervisor.py`."""
    user = place.user
    return {
        "folder": os.fsencode(lease.path),
        "command": os.fsencode(launch.command),
        "workdir": os.fsencode(launch.workdir or place.folder.work),
        "environment": dict(variables),
        "processes": launch.processes,
        "user": (user.uid, user.gid, user.groups) if user is not None else (),
        "cgroup": b"" if group is None else os.fsencode(group),
        "output": os.fsencode(place.folder.output),
        "output_bytes_max": launch.output_bytes_max,
        "grace_seconds": launch.grace_seconds,
        "detached_seconds": launch.detached_seconds if launch.has_terminal else None,
    }


def _make_folders(folder: JobFolder, lease: LeaseFolder, user: User | None) -> None:
    """Makes the files of a lease. Records belong to the service; only what a job writes belongs to its user."""
    lease.make()
    for record in (lease.stop, lease.exit, lease.ended, lease.sessions):
        record.unlink(missing_ok=True)  # of a start that was cut short
        reserve(record)
    for own in (folder.work, lease.checkpoint):
        own.mkdir(mode=0o700, exist_ok=True)
        if user is not None:
            user.own(own)
    spoil_half_a_line(folder.reports)
    with suppress(OSError):  # a job may have put anything in its place
        os.close(os.open(folder.reports, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600))
        if user is not None:
            user.own(folder.reports)
    sync_folder(folder.leases)
