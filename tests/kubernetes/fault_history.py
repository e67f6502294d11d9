"""One history of faults: gangs of two tenants train while parts of the cluster and the service fail at random."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from kubernetes.client import ApiError, Json, condition
from kubernetes.cluster import Cluster
from kubernetes.objects import A100, job, nodes, training
from kubernetes.service import Service, paused

SPEED = "H100=40;A100=20"
STEPS = 60.0
CONFIGURATION = """
tenants:
  nlp: {cells: {H100.node: 2}, policy: tiresias, cadence: rounds, round_seconds: 3}
  vision: {cells: {H100.node: 2}, policy: max-min, cadence: rounds, round_seconds: 3}
spare: {policy: themis, cadence: rounds, round_seconds: 3}
kubernetes: {unreachable: 3s, start_deadline: 30s}
"""
TENANTS = ("nlp", "vision", "other")
JOBS = 9
FAULTS = 6


class FaultHistory:
    def __init__(self, cluster: Cluster, folder: Path, seed: int, store: str = "") -> None:
        self._cluster = cluster
        self._folder = folder
        self._random = random.Random(seed)
        self._store = store
        self._names = {tenant: cluster.add_namespace({"horae.io/tenant": tenant}) for tenant in TENANTS}
        self._jobs: list[tuple[str, str]] = []  # namespace and name of those that must finish
        self._nodes = [node["metadata"]["name"] for node in self._all_nodes()]
        self._copy: Path | None = None
        self._service = self._new_service("service")
        self.told: list[str] = []

    @staticmethod
    def _all_nodes() -> list[Json]:
        return [*nodes(5, racks=2), *nodes(2, product=A100, prefix="a")]

    def _new_service(self, name: str, *options: str) -> Service:
        kubeconfig = self._cluster.control_plane.kubeconfig
        return Service(self._folder / name, kubeconfig, CONFIGURATION, self._store, *options)

    def run(self) -> None:
        """Returns when all gangs have finished in spite of everything."""
        self._cluster.add_nodes(*self._all_nodes())
        with ExitStack() as stack:
            stack.callback(self._stop)
            self._service.start()
            for index in range(JOBS):
                self._submit(f"gang-{index}")
                if index % 2:
                    self._fault()
            for _ in range(FAULTS - JOBS // 2):
                self._fault()
            self._heal()
            self._cluster.eventually(self._all_finished)
            self._check_leases()

    def _stop(self) -> None:
        self._service.stop()

    def _submit(self, name: str) -> None:
        namespace = self._names[self._random.choice(TENANTS)]
        pods, gpus = self._random.choice(((1, 8), (2, 8), (3, 8), (4, 2), (1, 4)))
        notes = {"horae.io/steps": str(STEPS), "horae.io/speed": SPEED, "horae.io/checkpoint": "true"}
        body = job(
            name, pods, gpus, annotations=notes, pod_annotations=training(STEPS, SPEED), backoff_limit=1000,
            grace_seconds=5,
        )  # fmt: skip
        self._persist(lambda: self._cluster.client.create_job(namespace, body))
        self._jobs.append((namespace, name))

    def _persist(self, action: Callable[[], object]) -> None:
        """Does what a user would try again."""

        def attempt() -> bool:
            try:
                action()
            except ApiError as error:
                return error.reason in ("AlreadyExists", "NotFound")
            return True

        self._cluster.eventually(attempt)

    # Faults

    def _fault(self) -> None:
        time.sleep(self._random.uniform(0.2, 3.0))
        faults = [
            self._kill_api, self._restart_etcd, self._restore_etcd, self._delete_pod, self._break_node,
            self._delete_node, self._cordon, self._recreate_job, self._foreign_pod, self._kill_service,
            self._unsuspend, self._lose_gpus, self._fail_image,
        ]  # fmt: skip
        if self._store:
            faults.append(self._two_services)
        fault = self._random.choice(faults)
        self.told.append(fault.__name__)
        fault()

    def _kill_api(self) -> None:
        self._cluster.control_plane.kill("kube-apiserver")
        time.sleep(self._random.uniform(0.0, 2.0))
        self._cluster.control_plane.start()

    def _restart_etcd(self) -> None:
        self._cluster.control_plane.restart("etcd")

    def _restore_etcd(self) -> None:
        """Back to a copy that was made a little earlier: the cluster forgets what was written since."""
        copy = self._cluster.control_plane.backup()
        time.sleep(self._random.uniform(0.2, 1.5))
        self._cluster.control_plane.restore(copy)

    def _delete_pod(self) -> None:
        pods = [pod for name in self._names.values() for pod in self._cluster.client.pods(name)]
        if pods:
            metadata = self._random.choice(pods)["metadata"]
            path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
            self._persist(lambda: self._cluster.client.delete(path))

    def _annotate_node(self, name: str, value: str | None) -> None:
        body = {"metadata": {"annotations": {"horae.test/broken": value}}}
        self._persist(lambda: self._cluster.client.patch(f"/api/v1/nodes/{name}", body))

    def _break_node(self) -> None:
        name = self._random.choice(self._nodes)
        self._annotate_node(name, "Unknown")
        time.sleep(self._random.uniform(0.5, 6.0))
        self._annotate_node(name, None)

    def _delete_node(self) -> None:
        name = self._random.choice(self._nodes)
        self._persist(lambda: self._cluster.client.delete(f"/api/v1/nodes/{name}"))
        time.sleep(self._random.uniform(0.2, 2.0))
        body = next(each for each in self._all_nodes() if each["metadata"]["name"] == name)
        self._persist(lambda: self._cluster.client.create_node(body))

    def _cordon(self) -> None:
        name = self._random.choice(self._nodes)
        for cordoned in (True, False):
            body = {"spec": {"unschedulable": cordoned}}
            self._persist(lambda body=body: self._cluster.client.patch(f"/api/v1/nodes/{name}", body))  # type: ignore[misc]
            time.sleep(self._random.uniform(0.2, 1.0))

    def _recreate_job(self) -> None:
        namespace, name = self._random.choice(self._jobs)
        path = f"/apis/batch/v1/namespaces/{namespace}/jobs/{name}"
        body = self._cluster.client.find(path)
        if body is None:
            return
        self._persist(lambda: self._cluster.client.delete(path, propagationPolicy="Background"))
        self._cluster.eventually(lambda: self._cluster.client.find(path) is None)
        self._jobs.remove((namespace, name))
        self._submit(name)

    def _foreign_pod(self) -> None:
        """A pod of another scheduler takes GPUs of a node while gangs are being bound there."""
        name = f"foreign-{self._random.randrange(10**9)}"
        spec = job(name, 1, self._random.choice((1, 4, 8)), scheduler="other")["spec"]["template"]["spec"]
        body = {"metadata": {"name": name}, "spec": {**spec, "nodeName": self._random.choice(self._nodes)}}
        self._persist(lambda: self._cluster.client.create_pod(self._cluster.namespace, body))
        time.sleep(self._random.uniform(0.2, 2.0))

    def _kill_service(self) -> None:
        self._service.kill()
        time.sleep(self._random.uniform(0.0, 2.0))
        self._service.start(ready=False)

    def _two_services(self) -> None:
        """The leader is stopped, another service takes over, and then the former one goes on."""
        other = self._new_service(f"service-{len(self.told)}", "--standby")
        other.start(ready=False)
        former = self._service
        with paused(former.loop_process()):
            time.sleep(15)
        self._service = other
        time.sleep(1)
        former.kill()

    def _unsuspend(self) -> None:
        namespace, name = self._random.choice(self._jobs)
        self._persist(lambda: self._cluster.client.patch_job(namespace, name, {"spec": {"suspend": False}}))

    def _lose_gpus(self) -> None:
        """The device plug-in reports fewer GPUs for a while."""
        name = self._random.choice(self._nodes)
        for usable in ("5", "8"):
            body = {"status": {"allocatable": {"nvidia.com/gpu": usable}}}
            path = f"/api/v1/nodes/{name}/status"
            self._persist(lambda path=path, body=body: self._cluster.client.patch(path, body))  # type: ignore[misc]
            time.sleep(self._random.uniform(0.5, 2.0))

    def _fail_image(self) -> None:
        namespace = self._names[self._random.choice(TENANTS)]
        body = job(f"bad-{self._random.randrange(10**9)}", 2, 4, image="missing/image")
        self._persist(lambda: self._cluster.client.create_job(namespace, body))

    # The end

    def _heal(self) -> None:
        """Pods of others leave, and every node is back."""
        self._cluster.control_plane.start()
        client = self._cluster.client
        for pod in client.pods(self._cluster.namespace):
            path = f"/api/v1/namespaces/{self._cluster.namespace}/pods/{pod['metadata']['name']}"
            self._persist(lambda path=path: client.delete(path, gracePeriodSeconds=0))  # type: ignore[misc]
        for body in self._all_nodes():
            name = body["metadata"]["name"]
            if client.find(f"/api/v1/nodes/{name}") is None:
                self._persist(lambda body=body: client.create_node(body))  # type: ignore[misc]
            self._annotate_node(name, None)
            whole = {"spec": {"unschedulable": False}}
            self._persist(lambda name=name, whole=whole: client.patch(f"/api/v1/nodes/{name}", whole))  # type: ignore[misc]
        # A restored etcd may have forgotten a Job: its owner creates it again.
        for namespace, name in list(self._jobs):
            if client.find(f"/apis/batch/v1/namespaces/{namespace}/jobs/{name}") is None:
                self._jobs.remove((namespace, name))
                self._submit(name)

    def _all_finished(self) -> bool:
        return all(condition(self._cluster.client.job(namespace, name), "Complete") for namespace, name in self._jobs)

    def _check_leases(self) -> None:
        """Leases as they stand in the cluster are those of the store: none is left of a gang that has finished."""
        client = self._service.client
        self._cluster.eventually(lambda: not [each for each in client.jobs(state="running") if each.name[:3] != "bad"])
        for namespace, name in self._jobs:
            notes = self._cluster.client.job(namespace, name)["metadata"]["annotations"]
            known = client.job(notes["horae.io/job"])
            assert known.state == "finished", (name, known)
            assert json.loads(notes["horae.io/lease"])["epoch"] > 0
