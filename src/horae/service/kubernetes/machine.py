"""The Kubernetes engine as the service drives it: Jobs of the cluster are submitted, and told what became of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf

import structlog
from sqlalchemy.exc import DBAPIError

from horae.engines.engine import Moment
from horae.engines.kubernetes.engine import Found, KubernetesEngine
from horae.engines.kubernetes.remarks import Remark
from horae.model.cluster import Cluster, Gpu
from horae.model.commands import Command
from horae.model.events import Event
from horae.model.serialization import Plain
from horae.scheduler.gpu_ledger import GpuLedger
from horae.service.api.problems import Refused
from horae.service.kubernetes.intake import Accepted, Intake
from horae.service.models import JobSpec
from horae.service.store.database import StoreFull, StoreUnavailable

EXPLAIN_SECONDS = 15.0
EXPLAINED_AT_A_TIME = 20

log = structlog.get_logger("kubernetes")


class KubernetesJobs:
    """Implements `LiveEngine` with the Jobs of a cluster."""

    def __init__(self, engine: KubernetesEngine, intake: Intake, now: Callable[[], float]) -> None:
        self._engine = engine
        self._intake = intake
        self._now = now
        self._explained_at = -inf
        self._ended: list[str] = []  # jobs that have ended for good since the last cycle
        self._unexplained: list[str] = []  # jobs that wait, and are to be told why

    def wait(self, until: float) -> Moment | None:
        moment = self._engine.wait(until)
        found, gone = self._engine.take_found(), self._engine.take_gone()
        try:
            if found:
                self._submit(found)
            if gone:
                self._intake.cancel(gone)
        except (StoreFull, StoreUnavailable, Refused, DBAPIError) as error:
            log.warning("new Jobs cannot be submitted now", jobs=len(found), problem=str(error))
            self._engine.put_back(found, gone)
        return moment

    def _submit(self, found: Sequence[Found]) -> None:
        by_uid = {each.job.uid: each.job for each in found}
        for result in self._intake.submit(found):
            job = by_uid[result.uid]
            if isinstance(result, Accepted):
                self._engine.register(result.job_id, result.uid)
                self._engine.remark(job, Remark("Submitted", f"waits as job {result.job_id} of Horae"))
            else:
                log.warning("a Job is not accepted", job=job.path, problem=result.problem)
                self._engine.remark(job, Remark("Rejected", result.problem, is_warning=True))

    def execute(self, commands: Sequence[Command]) -> Sequence[Event]:
        return self._engine.execute(commands)

    def wake(self) -> None:
        self._engine.wake()

    def watch(self, descriptor: int) -> None:
        self._engine.watch(descriptor)

    @property
    def is_running(self) -> bool:
        return self._engine.is_running

    def set_cluster(self, cluster: Cluster) -> None:
        """The nodes are those of the cluster, whatever the configuration says."""

    def begin(self, hardware: GpuLedger) -> None:
        nodes = hardware.real_cluster.nodes
        health = {node.name: hardware.health_of(node.name) for node in nodes}
        self._engine.believe(hardware.real_cluster, health, hardware.gpu_states)
        self._engine.start()

    def stop_all(self) -> None:
        self._engine.stop_all()

    def close(self) -> None:
        self._engine.close()

    def forget(self, job_id: str) -> None:
        self._ended.append(job_id)

    def specification(self, job_id: str) -> Plain | None:
        return self._engine.specification(job_id)

    def take_idle(self) -> Mapping[Gpu, float]:
        return {}

    def explain(self, why: Callable[[str], str]) -> None:
        """Shows on waiting Jobs why they wait; a few in each cycle, so that many do not delay decisions."""
        now = self._now()
        for job_id in self._ended:
            self._engine.explain(job_id, why(job_id), waits=False)
            self._engine.forget(job_id)
        self._ended = []
        if not self._unexplained and now >= self._explained_at + EXPLAIN_SECONDS:
            self._explained_at = now
            self._unexplained = self._engine.waiting()
        few, self._unexplained = self._unexplained[:EXPLAINED_AT_A_TIME], self._unexplained[EXPLAINED_AT_A_TIME:]
        for job_id in few:
            self._engine.explain(job_id, why(job_id))

    def repair(self, node: str) -> None:
        """The health of GPUs is what their device plug-in says."""

    def prepare(self, job_id: str, spec: JobSpec, specification: Plain) -> None:
        self._engine.expect(job_id, spec.workload.rpartition("/")[2], specification)
