"""The parts of a cluster that act by themselves: job controller, garbage collector, kubelets. The test says when."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from kubernetes_model.api_server import (
    TRACKING,
    ApiServer,
    gpus_of,
    has,
    is_active,
    is_deleting,
    is_terminal,
    node_of,
    notes_of,
    owner_of,
    set_condition,
)

from horae.engines.kubernetes.api import JOBS, NODES, PODS, Json

INDEX = "batch.kubernetes.io/job-completion-index"
GPU = "nvidia.com/gpu"
BACKOFF_SECONDS, BACKOFF_SECONDS_MAX = 10.0, 600.0


class JobController:
    """Acts on Jobs as it has last read them, which may be a while ago; it sees all pods."""

    def __init__(self, server: ApiServer, random: Random) -> None:
        self._server = server
        self._random = random
        self._read: dict[str, Json] = {}
        self._wait_until: dict[str, float] = {}  # by Job: no new pods before
        self._failures: dict[str, int] = {}

    def read(self, uid: str) -> None:
        found = self._server.objects[JOBS].get(uid)
        if found is None:
            self._read.pop(uid, None)
        else:
            self._read[uid] = found

    def sync(self, uid: str, now: float) -> None:
        seen, server = self._read.get(uid), self._server
        if uid not in server.objects[JOBS] or seen is None:
            for pod in server.pods_of(uid):
                self._release(pod)
            return
        succeeded, failed = self._count(uid, seen, now)
        if has(seen, "Complete") or has(seen, "Failed") or is_deleting(seen):
            return
        pods = server.pods_of(uid)
        is_failing = failed > seen["spec"].get("backoffLimit", 6)
        wanted = seen["spec"].get("completions") or seen["spec"]["parallelism"]
        is_done = succeeded >= wanted
        if is_failing or is_done or seen["spec"].get("suspend"):
            for pod in pods:
                if is_active(pod):
                    self._delete(pod)
        else:
            self._scale(seen, pods, min(seen["spec"]["parallelism"], wanted - succeeded), now)
        self._write_status(uid, seen, succeeded, failed, is_done=is_done, is_failing=is_failing)

    def _count(self, uid: str, seen: Json, now: float) -> tuple[int, int]:
        """Counts pods that have ended, each once."""
        succeeded = int(seen["status"].get("succeeded") or 0)
        failed = int(seen["status"].get("failed") or 0)
        is_current = self._server.objects[JOBS][uid] == seen
        for pod in self._server.pods_of(uid):
            waits_for_end = node_of(pod) and seen["spec"].get("podReplacementPolicy") == "Failed"
            has_ended = is_terminal(pod) or (is_deleting(pod) and not waits_for_end)
            if not has_ended or TRACKING not in (pod["metadata"].get("finalizers") or ()):
                continue
            if not is_current:
                continue  # its status could not be written
            if pod["status"].get("phase") == "Succeeded":
                succeeded += 1
            else:
                failed += 1
                self._failures[uid] = self._failures.get(uid, 0) + 1
                pause = BACKOFF_SECONDS * 2 ** (self._failures[uid] - 1)
                self._wait_until[uid] = now + min(pause, BACKOFF_SECONDS_MAX)
            self._release(pod)
        return succeeded, failed

    def _release(self, pod: Json) -> None:
        def change(found: Json) -> None:
            found["metadata"].pop("finalizers", None)

        self._server.change(PODS, pod["metadata"]["uid"], change)

    def _delete(self, pod: Json) -> None:
        self._release(pod)
        self._server.delete(PODS, pod["metadata"]["uid"])

    def _scale(self, seen: Json, pods: list[Json], wanted: int, now: float) -> None:
        active = [pod for pod in pods if is_active(pod)]
        only_ended = seen["spec"].get("podReplacementPolicy") == "Failed"
        going = [pod for pod in pods if is_deleting(pod) and not is_terminal(pod)] if only_ended else []
        for pod in active[wanted:]:
            self._delete(pod)
        missing = wanted - len(active) - len(going)
        if missing <= 0 or now < self._wait_until.get(seen["metadata"]["uid"], 0.0):
            return
        is_indexed = seen["spec"].get("completionMode") == "Indexed"
        used = {notes_of(pod).get(INDEX) for pod in pods if not (pod["status"].get("phase") == "Failed")}
        free = [index for index in range(seen["spec"]["parallelism"]) if str(index) not in used]
        for number in range(self._random.randint(1, missing)):
            if is_indexed and number >= len(free):
                break
            self._create(seen, free[number] if is_indexed else None)

    def _create(self, seen: Json, index: int | None) -> None:
        metadata, template = seen["metadata"], seen["spec"]["template"]
        notes = dict(template.get("metadata", {}).get("annotations") or {})
        if index is not None:
            notes[INDEX] = str(index)
        number = self._random.randrange(10**6)
        body = {
            "metadata": {
                "namespace": metadata["namespace"],
                "name": f"{metadata['name']}-{'' if index is None else index}-{number:06}",
                "annotations": notes,
                "finalizers": [TRACKING],
                "ownerReferences": [{"uid": metadata["uid"], "kind": "Job", "controller": True}],
            },
            "spec": dict(template["spec"]),
            "status": {"phase": "Pending"},
        }
        self._server.add(PODS, body)

    def _write_status(
        self, uid: str, seen: Json, succeeded: int, failed: int, *, is_done: bool, is_failing: bool
    ) -> None:
        if self._server.objects[JOBS][uid] != seen:
            return  # a conflict: it comes again
        pods = self._server.pods_of(uid)
        left = [pod for pod in pods if not is_terminal(pod)]

        def change(found: Json) -> None:
            active = sum(map(is_active, pods))
            status = {**found["status"], "active": active, "succeeded": succeeded, "failed": failed}
            found["status"] = {key: value for key, value in status.items() if value}
            if (is_done or is_failing) and not left:
                set_condition(found, "Complete" if is_done else "Failed", reason="BackoffLimitExceeded")
            elif not is_done and not is_failing:
                is_suspended = bool(found["spec"].get("suspend"))
                if is_suspended or has(found, "Suspended"):
                    set_condition(found, "Suspended", is_true=is_suspended)

        self._read[uid] = self._server.change(JOBS, uid, change)


class GarbageCollector:
    """Deletes what has lost its owner, in the background or before the owner goes; and pods of nodes that are gone."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server

    def orphans(self) -> list[Json]:
        """Pods whose Job is gone, or waits for them to go."""
        jobs = self._server.objects[JOBS]
        return [
            pod
            for pod in self._server.all(PODS)
            if owner_of(pod)
            and not is_deleting(pod)
            and (owner_of(pod) not in jobs or is_deleting(jobs[owner_of(pod)]))
        ]

    def collect(self, pod: Json) -> None:
        self._server.delete(PODS, pod["metadata"]["uid"])

    def finish(self) -> None:
        """Jobs that are deleted in the foreground go with the last of their pods."""
        for uid, job in list(self._server.objects[JOBS].items()):
            if is_deleting(job) and not self._server.pods_of(uid):
                self._server.change(JOBS, uid, lambda found: found["metadata"].pop("finalizers", None))

    def stranded(self) -> list[Json]:
        """Pods that the pod collector removes: of nodes that do not exist, or that are out of service."""
        nodes = {node["metadata"]["name"]: node for node in self._server.all(NODES)}
        return [
            pod
            for pod in self._server.all(PODS)
            if node_of(pod)
            and (
                node_of(pod) not in nodes
                or (
                    is_deleting(pod)
                    and is_out_of_service(nodes[node_of(pod)])
                    and not has(nodes[node_of(pod)], "Ready")
                )
            )
        ]

    def force(self, pod: Json) -> None:
        """Marked as failed first, then deleted without a grace period."""
        uid = pod["metadata"]["uid"]
        if not is_terminal(pod):

            def fail(found: Json) -> None:
                found["status"] = {**found["status"], "phase": "Failed"}
                set_condition(found, "DisruptionTarget", reason="DeletionByPodGC")

            self._server.change(PODS, uid, fail)
        self._server.delete(PODS, uid, 0)


def is_out_of_service(node: Json) -> bool:
    taints = node["spec"].get("taints") or ()
    return any(taint["key"] == "node.kubernetes.io/out-of-service" for taint in taints)


class Kubelets:
    """What happens on the nodes. A pod is admitted if its GPUs are free there; only then it uses them."""

    def __init__(self, server: ApiServer, random: Random) -> None:
        self._server = server
        self._random = random
        self.admitted: set[str] = set()
        self.dead: set[str] = set()  # machines that do nothing more
        self.on_rejected: Callable[[Json], None] = lambda pod: None

    def act(self, pod: Json, *, may_fail: bool, may_finish: bool = True) -> None:
        """The next thing that happens to a pod on its node."""
        node = self._server.find(NODES, None, node_of(pod))
        if node is None or node_of(pod) in self.dead or is_terminal(pod):
            if is_terminal(pod) and is_deleting(pod):
                self._gone(pod)
            return
        if is_deleting(pod):
            self._terminate(pod)
        elif pod["metadata"]["uid"] not in self.admitted:
            self._admit(pod, node, may_fail=may_fail)
        elif pod["status"]["phase"] == "Pending":
            self._start(pod, may_fail=may_fail)
        elif not has(pod, "Ready"):
            self._set(pod, "Running", ready=True)
        elif may_fail and self._random.random() < 0.15:
            self._end(pod, self._random.choice((1, 137)))
        elif may_finish:
            self._end(pod, 0)

    def in_use(self, node: str) -> int:
        pods = self._server.all(PODS)
        return sum(
            gpus_of(pod)
            for pod in pods
            if node_of(pod) == node and pod["metadata"]["uid"] in self.admitted and not is_terminal(pod)
        )

    def _admit(self, pod: Json, node: Json, *, may_fail: bool) -> None:
        name = node_of(pod)
        if self.in_use(name) + gpus_of(pod) > int(node["status"]["allocatable"][GPU]):
            self.on_rejected(pod)
            self._fail(pod, reason="OutOfnvidia.com/gpu", message="Node didn't have enough resource")
        elif may_fail and self._random.random() < 0.05:
            self._fail(pod, reason="UnexpectedAdmissionError", message="Allocate failed")
        else:
            self.admitted.add(pod["metadata"]["uid"])

    def _start(self, pod: Json, *, may_fail: bool) -> None:
        if may_fail and self._random.random() < 0.1:
            reason = self._random.choice(("ErrImagePull", "ImagePullBackOff"))
            self._set(pod, "Pending", containerStatuses=[{"state": {"waiting": {"reason": reason}}}])
        else:
            self._set(pod, "Running", ready=self._random.random() < 0.5, containerStatuses=[{"state": {"running": {}}}])

    def _set(self, pod: Json, phase: str, *, ready: bool = False, **status: object) -> None:
        def change(found: Json) -> None:
            found["status"] = {**found["status"], **status, "phase": phase}
            set_condition(found, "Ready", is_true=ready)

        self._server.change(PODS, pod["metadata"]["uid"], change)

    def _fail(self, pod: Json, **status: object) -> None:
        self._set(pod, "Failed", **status)

    def _end(self, pod: Json, code: int) -> None:
        states = [{"state": {"terminated": {"exitCode": code}}}]
        self._set(pod, "Failed" if code else "Succeeded", containerStatuses=states)

    def _terminate(self, pod: Json) -> None:
        self._end(pod, self._random.choice((0, 143)))
        if self._random.random() < 0.7:
            self._gone(self._server.objects[PODS][pod["metadata"]["uid"]])

    def _gone(self, pod: Json) -> None:
        if pod["metadata"]["uid"] in self._server.objects[PODS]:
            self._server.delete(PODS, pod["metadata"]["uid"], 0)
