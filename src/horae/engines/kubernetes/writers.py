"""What is done in other threads: writes to the cluster, remarks for owners, and reading the output of pods."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from typing import NamedTuple

import structlog

from horae.engines.kubernetes.actions import Action, Touch, perform
from horae.engines.kubernetes.api import CONFLICT, JOBS, ApiProblem, Json, KubernetesApi
from horae.engines.kubernetes.gangs import Subject
from horae.engines.kubernetes.objects import JobObject, PodObject
from horae.engines.kubernetes.remarks import Remark, event_of

THREADS = 16
LOG_LINES = 200  # of the output of a pod, when it is deleted

log = structlog.get_logger("kubernetes")

OnLog = Callable[[str, int, str, str], None]  # job, epoch, pod, and the end of its output


class Done(NamedTuple):
    """An action was carried out, or not."""

    uid: str  # of the gang; "": of none
    action: Action
    found: Json | None = None  # the object as it is afterwards
    problem: ApiProblem | None = None


class Writers:
    """`done` is called in the thread that has carried an action out."""

    def __init__(
        self, api: KubernetesApi, executor: Executor | None, done: Callable[[Done], None], on_log: OnLog
    ) -> None:
        self._api = api
        self._pool = executor or ThreadPoolExecutor(THREADS, "write")
        self._done = done
        self._on_log = on_log
        self.leads: Callable[[], bool] = lambda: True  # asked before every write

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)

    def carry_out(self, uid: str, action: Action) -> None:
        self._pool.submit(self._carry_out, uid, action)

    def remark(self, about: Subject, remark: Remark) -> None:
        self._pool.submit(self._remark, about, remark)

    def keep_output(self, job_id: str, epoch: int, pod: PodObject) -> None:
        self._pool.submit(self._keep_output, job_id, epoch, pod)

    def _carry_out(self, uid: str, action: Action) -> None:
        try:
            if not self.leads():
                raise ApiProblem(0, "NotLeading", "this process may not lead any more")
            done = Done(uid, action, perform(action, self._api))
        except ApiProblem as problem:
            done = Done(uid, action, self._present(action) if problem.status == CONFLICT else None, problem)
        except Exception as error:
            log.exception("an action failed", action=type(action).__name__)
            done = Done(uid, action, None, ApiProblem(500, type(error).__name__, str(error)))
        self._done(done)

    def _present(self, action: Action) -> Json | None:
        """The Job that has changed meanwhile, as it is now; the action is then decided anew."""
        found = action.object if isinstance(action, Touch) else getattr(action, "job", None)
        if isinstance(found, JobObject):
            with suppress(ApiProblem):
                return self._api.get(JOBS, found.namespace, found.name)
        return None

    def _remark(self, about: Subject, remark: Remark) -> None:
        try:
            event_of(about.namespace, about.reference, remark, self._api)
        except ApiProblem as problem:
            log.warning("an event cannot be written", about=about.path, problem=str(problem))

    def _keep_output(self, job_id: str, epoch: int, pod: PodObject) -> None:
        try:
            self._on_log(job_id, epoch, pod.name, self._api.log_tail(pod.namespace, pod.name, LOG_LINES))
        except (ApiProblem, OSError) as problem:
            log.info("the output of a pod cannot be kept", pod=f"{pod.namespace}/{pod.name}", problem=str(problem))
