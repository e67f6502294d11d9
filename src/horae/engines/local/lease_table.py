"""The leases that run, and what has to be true before one of them has ended."""

from __future__ import annotations

import os
import selectors
import time
from collections.abc import Iterator
from dataclasses import replace
from math import inf
from pathlib import Path

from horae.engines.local import cgroups, processes
from horae.engines.local.endings import end_of
from horae.engines.local.environment import MARKER
from horae.engines.local.gpu_states import GpuStates
from horae.engines.local.gpu_watch import GpuWatch
from horae.engines.local.locks import Locks, held_by, is_free
from horae.engines.local.records import EndRecord
from horae.engines.local.running import RunningLease
from horae.engines.local.untrusted_files import is_regular
from horae.model.cluster import Gpu
from horae.model.events import Ending

_DRIVER_SECONDS_MAX = 5.0  # for the answer whether a GPU has failed
_LOOK_SECONDS = 10.0
_FOREIGN_SECONDS = 1.0  # a lock that is still held so long after the end of its supervisor is reported


class LeaseTable:
    """By job: its lease. The ends of supervisors are noticed by `selector`."""

    def __init__(self, folder: Path, locks: Locks, gpus: GpuStates, selector: selectors.BaseSelector) -> None:
        self._marker = os.fsencode(f"\0{MARKER}={folder}/jobs/")
        self._locks = locks
        self._gpus = gpus
        self._selector = selector
        self._leases: dict[str, RunningLease] = {}
        self._look_at = 0.0  # when to look again which jobs have shown that they resume

    def __iter__(self) -> Iterator[RunningLease]:
        return iter(list(self._leases.values()))

    def __len__(self) -> int:
        return len(self._leases)

    def get(self, job_id: str) -> RunningLease | None:
        return self._leases.get(job_id)

    def using(self, gpu: Gpu) -> list[RunningLease]:
        return [lease for lease in self if gpu in lease.start.gpus]

    def add(self, lease: RunningLease) -> None:
        self._leases[lease.start.job_id] = lease
        if lease.descriptor is not None:
            self._selector.register(lease.descriptor, selectors.EVENT_READ, lease)

    def remove(self, lease: RunningLease) -> None:
        self.supervisor_ended(lease)
        cgroups.remove_group(lease.cgroup)
        del self._leases[lease.start.job_id]

    def supervisor_ended(self, lease: RunningLease) -> None:
        """Notes that the descriptor of a supervisor is readable: it is looked at, and has no more to tell."""
        if lease.descriptor is not None:
            self._selector.unregister(lease.descriptor)
            lease.close()
        lease.check_at = 0.0

    def close(self) -> None:
        for lease in self:
            lease.close()
        self._leases.clear()

    @property
    def due_at(self) -> float:
        looks = (self._look_at for lease in self if not lease.is_resumable)
        return min((*(lease.check_at for lease in self), *looks), default=inf)

    def due(self, now: float) -> list[RunningLease]:
        """The leases to be looked at that are not merely running."""
        due = [lease for lease in self if lease.check_at <= now]
        for lease in due:
            lease.check_later(now)
        return [lease for lease in due if lease.supervisor_has_ended()]

    def newly_resumable(self, now: float) -> list[str]:
        """Jobs that have shown since the last look that they resume; looked for once in a while."""
        if now < self._look_at:
            return []
        self._look_at = now + _LOOK_SECONDS
        found = [lease for lease in self if not lease.is_resumable and is_regular(lease.files.sdk)]
        for lease in found:
            lease.is_resumable = True
        return [lease.start.job_id for lease in found]

    def look_now(self) -> None:
        self._look_at = 0.0

    def end_of(self, lease: RunningLease, watch: GpuWatch | None, now: float) -> EndRecord | None:
        """How a lease has ended whose supervisor is gone; None while something of it is left, which is killed."""
        lease.reap()
        if lease.is_of_this_boot and not self._is_clear(lease):
            lease.kill_survivors(self._locks.of_job(lease.start.job_id))
            if not self._is_clear(lease):
                self._report_stuck(lease, now)
                return None
        if watch is not None and not self._knows_gpus(lease, watch):
            return None
        end = end_of(lease.start, lease.folder)
        failure = self._gpus.failure_of(lease.start.gpus)
        if end.ending is Ending.FAILED and failure:
            return replace(end, ending=Ending.LOST, message=f"{failure}; {end.message}")
        return end

    def _is_clear(self, lease: RunningLease) -> bool:
        """Whether nothing of a lease is left whose supervisor has ended."""
        start = lease.start
        own = [gpu for gpu in start.gpus if self.using(gpu) == [lease]]  # others are used by the other job of a bundle
        if not self._locks.are_free(start.job_id, own) or not cgroups.is_empty(lease.cgroup):
            return False
        return lease.files.exit.exists() or not lease.survivors(self._locks.of_job(start.job_id))

    def _report_stuck(self, lease: RunningLease, now: float) -> None:
        lease.stuck_since = min(lease.stuck_since, now)
        if now - lease.stuck_since >= _FOREIGN_SECONDS:
            for gpu in lease.start.gpus:
                path = self._locks.of_gpu(gpu)
                if not is_free(path):
                    self._gpus.lock_taken(gpu, f"after job {lease.start.job_id} it is {held_by(path)}", now)

    def _knows_gpus(self, lease: RunningLease, watch: GpuWatch) -> bool:
        """Whether the GPUs of an ended lease were looked at since: if one failed, its job is lost, not failed."""
        if lease.ended_at == inf:
            lease.ended_at = time.monotonic()
            watch.ask()
        self._gpus.driver_reports(watch.found)
        return watch.looked_at >= lease.ended_at or time.monotonic() >= lease.ended_at + _DRIVER_SECONDS_MAX

    def is_ours(self, pid: int) -> bool:
        """Whether a process belongs to one of these leases. Any thread may call it."""
        if self._marker in processes.environment_of(pid):
            return True
        supervisors = {lease.start.supervisor.pid for lease in self}
        while pid > 1 and pid not in supervisors:
            stat = processes.stat_of(pid)
            pid = 0 if stat is None else stat.parent
        return pid in supervisors
