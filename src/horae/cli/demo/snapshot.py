"""What the service shows of the demo at one moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import mean

from horae.client import Client
from horae.service.models import JobView, NodeView, ShareRow, TenantView

HOUR = 3600.0
NO_JOB = ("idle", "unusable")  # kinds of GPU-hours


@dataclass(frozen=True)
class Snapshot:
    seconds: float  # since the first job was submitted
    jobs: Sequence[JobView]
    nodes: Sequence[NodeView]
    tenants: Sequence[TenantView]
    shares: Mapping[str, ShareRow]  # by tenant
    own_waits: Mapping[str, float]  # by tenant: the longest time that a job waited for cells of its own

    def of(self, tenant: str) -> list[JobView]:
        return [job for job in self.jobs if job.tenant == tenant]

    @property
    def running(self) -> list[JobView]:
        return [job for job in self.jobs if job.held_gpus]

    @property
    def waiting(self) -> list[JobView]:
        return [job for job in self.jobs if job.state in ("submitted", "pending", "holding")]

    @property
    def finished(self) -> list[JobView]:
        return [job for job in self.jobs if job.state == "finished"]

    @property
    def preemptions(self) -> int:
        return sum(job.preemptions for job in self.jobs)

    @property
    def gpus(self) -> int:
        return sum(node.gpus for node in self.nodes)

    @property
    def held_gpus(self) -> int:
        return sum(job.held_gpus for job in self.jobs)

    @cached_property
    def holders(self) -> Mapping[str, JobView]:
        """By GPU, such as `a0/3`: the job that holds it."""
        return {place: job for job in self.running for place in job.places}


def take(client: Client, seconds: float) -> Snapshot:
    """The state of the service, so long after its first job was submitted."""
    longest: dict[str, float] = {}
    for row in client.share(by="app"):  # in the demo, every job is an app of its own
        longest[row.tenant] = max(longest.get(row.tenant, 0.0), row.waited_for_own_cells_seconds or 0.0)
    return Snapshot(
        seconds=seconds,
        jobs=list(client.jobs()),
        nodes=client.nodes(),
        tenants=[tenant for tenant in client.tenants() if tenant.cells],
        shares={row.name: row for row in client.share()},
        own_waits=longest,
    )


def used_seconds(client: Client) -> dict[str, float]:
    """GPU-seconds that jobs have had, by GPU type."""
    found: dict[str, float] = {}
    for row in client.usage(by=["gpu_type", "kind"]):
        if row.kind not in NO_JOB:
            found[row.gpu_type] = found.get(row.gpu_type, 0.0) + row.gpu_hours * HOUR
    return found


def mean_completion(jobs: Sequence[JobView]) -> float | None:
    """Seconds from submission to end, of jobs that have finished."""
    seconds = [job.ended_at - job.submitted_at for job in jobs if job.state == "finished" and job.ended_at]
    return mean(seconds) if seconds else None
