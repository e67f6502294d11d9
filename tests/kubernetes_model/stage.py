"""A cluster and one leader for short stories: each part acts when the story says so, and nothing fails by itself."""

from __future__ import annotations

from random import Random

from kubernetes_model.api_server import KINDS, ApiServer, node_of, notes_of, owner_of, set_condition
from kubernetes_model.controllers import GPU, GarbageCollector, JobController, Kubelets
from kubernetes_model.leader import Leader

from horae.engines.kubernetes.api import JOBS, NAMESPACES, NODES, PODS, Json, Kind
from horae.model.cluster import Gpu
from horae.model.commands import Command, Start, Survey
from horae.model.events import Event, Surveyed
from horae.model.shapes import Shape


class Stage:
    def __init__(self, *nodes: str) -> None:
        random = Random(1)
        self.now = 0.0
        self.server = ApiServer()
        self.controller = JobController(self.server, random)
        self.kubelets = Kubelets(self.server, random)
        self.collector = GarbageCollector(self.server)
        self.server.add(NAMESPACES, {"metadata": {"name": "ns", "labels": {"horae.io/tenant": "t"}}, "spec": {}})
        for name in nodes or ("n0",):
            self.add_node(name)
        self.uids: dict[str, str] = {}  # by job
        self.leader = self.lead(1)

    def lead(self, term: int, *, has_listed: bool = True) -> Leader:
        """Another process leads."""
        self.leader = Leader(self.server, Random(2), lambda: self.now, term)
        self.leader.engine.believe(self.leader.cluster(), {}, {})
        for kind in KINDS if has_listed else ():
            self.leader.list(kind)
        return self.leader

    # Objects

    def add_node(self, name: str) -> None:
        status = {
            "capacity": {GPU: "4"},
            "allocatable": {GPU: "4"},
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        self.server.add(NODES, {"metadata": {"name": name, "labels": {}}, "spec": {}, "status": status})

    def add_job(self, job_id: str, pods: int = 1, gpus: int = 1, notes: dict[str, str] | None = None) -> str:
        """A Job that is submitted under this id; returns its uid."""
        container = {"resources": {"limits": {GPU: str(gpus)}}}
        spec = {
            "parallelism": pods,
            "completions": pods,
            "completionMode": "Indexed",
            "suspend": True,
            "podReplacementPolicy": "Failed",
            "template": {"metadata": {}, "spec": {"schedulerName": "horae", "containers": [container]}},
        }
        metadata = {"namespace": "ns", "name": f"job-{job_id}", "annotations": notes or {}}
        uid = self.uids[job_id] = self.server.add(JOBS, {"metadata": metadata, "spec": spec, "status": {}})["metadata"][
            "uid"
        ]
        self.cluster_acts()
        self.settle()
        self.leader.engine.register(job_id, uid)
        self.settle()
        return uid

    def add_pod(self, name: str, node: str, gpus: int, scheduler: str = "other", **metadata: object) -> str:
        spec = {
            "schedulerName": scheduler,
            "nodeName": node,
            "containers": [{"resources": {"limits": {GPU: str(gpus)}}}],
        }
        body = {"metadata": {"namespace": "ns", "name": name, **metadata}, "spec": spec, "status": {"phase": "Running"}}
        return str(self.server.add(PODS, body)["metadata"]["uid"])

    def job(self, job_id: str) -> Json:
        return self.server.objects[JOBS][self.uids[job_id]]

    def pods(self, job_id: str) -> list[Json]:
        return self.server.pods_of(self.uids[job_id])

    def edit(self, kind: Kind, uid: str, **notes: str | None) -> None:
        """Changes annotations of Horae as a user may; None removes one."""

        def change(found: Json) -> None:
            merged = {**notes_of(found), **{f"horae.io/{key}": value for key, value in notes.items()}}
            found["metadata"]["annotations"] = {key: value for key, value in merged.items() if value is not None}

        self.server.change(kind, uid, change)

    # The service

    def hear(self) -> list[Event]:
        """What the engine tells after it has read everything."""
        self.leader.catch_up()
        moment = self.leader.engine.wait(self.now)
        assert moment is not None
        return list(moment.events)

    def perform(self) -> None:
        """Carries out the actions under way."""
        for _ in range(len(self.leader.actions.waiting)):
            self.leader.actions.perform(0)

    def settle(self) -> list[Event]:
        """The service does all that it can do before the cluster moves; returns what it tells."""
        events: list[Event] = []
        for _ in range(5):
            events += self.hear()
            self.perform()
        return events

    def tell(self, *commands: Command) -> list[Event]:
        return [*self.leader.engine.execute(commands), *self.settle()]

    def start(self, epoch: int, job_id: str, *gpus: Gpu) -> list[Event]:
        self.leader.engine.expect(job_id, self.uids[job_id], {"job": job_id})
        return self.tell(Start(epoch, (job_id,), gpus, Shape("gpu", len(gpus), "cluster"), (0.0,), (False,)))

    def run(self, epoch: int, job_id: str, *gpus: Gpu) -> None:
        """Starts a lease, until all of its pods run."""
        self.start(epoch, job_id, *gpus)
        for _ in range(8):
            self.cluster_acts()
            self.settle()
        assert all(node_of(pod) and pod["status"]["phase"] == "Running" for pod in self.pods(job_id)[-1:])

    def survey(self) -> Surveyed:
        return next(each for each in self.tell(Survey()) if isinstance(each, Surveyed))

    # The cluster

    def cluster_acts(self) -> None:
        """Controllers and kubelets do one thing each; nothing fails, and no pod comes to its end."""
        for uid in sorted({*self.server.objects[JOBS], *map(owner_of, self.server.all(PODS))} - {""}):
            for _ in range(4):
                self.controller.read(uid)
                self.controller.sync(uid, self.now)
        for pod in self.server.all(PODS):
            if node_of(pod) and owner_of(pod):
                self.kubelets.act(pod, may_fail=False, may_finish=False)

    def end(self, pod: Json, code: int) -> None:
        """A container exits."""

        def change(found: Json) -> None:
            found["status"] = {
                "phase": "Failed" if code else "Succeeded",
                "containerStatuses": [{"state": {"terminated": {"exitCode": code}}}],
            }
            set_condition(found, "Ready", is_true=False)

        self.server.change(PODS, pod["metadata"]["uid"], change)
