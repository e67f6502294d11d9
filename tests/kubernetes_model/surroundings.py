"""A cluster with its users: all that happens around a service, one random step at a time."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from kubernetes_model.api_server import (
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
from kubernetes_model.controllers import GPU, GarbageCollector, JobController, Kubelets
from kubernetes_model.witness import OURS

from horae.engines.kubernetes.api import JOBS, NAMESPACES, NODES, PODS, Json


class Surroundings:
    def __init__(self, random: Random, without: frozenset[str], say: Callable[[str], None]) -> None:
        self.random = random
        self.without = without
        self.say = say
        self.now = 1000.0
        self.may_fail = random.random() < 0.7
        self.server = ApiServer()
        self.controller = JobController(self.server, random)
        self.kubelets = Kubelets(self.server, random)
        self.collector = GarbageCollector(self.server)
        self._names = 0
        self.server.add(NAMESPACES, {"metadata": {"name": "ns", "labels": {"horae.io/tenant": "t"}}, "spec": {}})
        for _ in range(random.randint(1, 3)):
            self._add_node(f"n{self._number()}")

    def _number(self) -> int:
        self._names += 1
        return self._names

    def time_passes(self) -> None:
        self.now += self.random.choice((0.1, 1.0, 10.0, 60.0))

    # The parts of the cluster

    def controller_reads(self) -> None:
        for uid in self._some_jobs():
            self.controller.read(uid)

    def controller_acts(self) -> None:
        for uid in self._some_jobs():
            self.controller.sync(uid, self.now)

    def kubelet(self) -> None:
        pods = [pod for pod in self.server.all(PODS) if node_of(pod)]
        if pods:
            may_finish = self.random.random() < 0.15
            self.kubelets.act(self.random.choice(pods), may_fail=self.may_fail, may_finish=may_finish)

    def collect(self) -> None:
        found = self.collector.orphans()
        if found:
            self.collector.collect(self.random.choice(found))
        stranded = self.collector.stranded()
        if stranded and self.random.random() < 0.3:
            self.collector.force(self.random.choice(stranded))
        self.collector.finish()

    def _some_jobs(self) -> list[str]:
        uids = list(self.server.objects[JOBS])
        gone = {owner_of(pod) for pod in self.server.all(PODS)} - set(uids) - {""}
        uids += sorted(gone)
        return self.random.sample(uids, min(len(uids), 2))

    def controllers_work(self) -> None:
        for uid in sorted({*self.server.objects[JOBS], *map(owner_of, self.server.all(PODS))} - {""}):
            for _ in range(self.random.randint(0, 3)):
                self.controller.read(uid)
                self.controller.sync(uid, self.now)

    def kubelets_work(self) -> None:
        may_finish = self.random.random() < 0.1
        for pod in self.server.all(PODS):
            if node_of(pod) and self.random.random() < 0.9 and pod["metadata"]["uid"] in self.server.objects[PODS]:
                self.kubelets.act(pod, may_fail=self.may_fail, may_finish=may_finish)

    def works_well(self) -> None:
        for uid in sorted({*self.server.objects[JOBS], *map(owner_of, self.server.all(PODS))} - {""}):
            for _ in range(3):
                self.controller.read(uid)
                self.controller.sync(uid, self.now)
        for pod in self.server.all(PODS):
            if pod["metadata"]["uid"] in self.server.objects[PODS] and node_of(pod):
                self.kubelets.act(pod, may_fail=False, may_finish=self.random.random() < 0.2)
        for pod in self.collector.orphans():
            self.collector.collect(pod)
        for pod in self.collector.stranded():
            self.collector.force(pod)
        self.collector.finish()

    # Users

    def submit(self) -> None:
        self._create_job(f"j{self._number()}", {})

    def _create_job(self, name: str, notes: dict[str, str]) -> None:
        random = self.random
        pods = random.randint(1, 3)
        is_indexed = random.random() < 0.7
        resources = {"limits": {GPU: str(random.randint(1, 2))}}
        spec: Json = {
            "parallelism": pods,
            "completions": pods,
            "completionMode": "Indexed" if is_indexed else "NonIndexed",
            "suspend": random.random() < 0.9,
            "backoffLimit": random.choice((0, 1, 6)),
            "template": {"metadata": {}, "spec": {"schedulerName": OURS, "containers": [{"resources": resources}]}},
        }
        if random.random() < 0.7:
            spec["podReplacementPolicy"] = "Failed"
        metadata = {"namespace": "ns", "name": name, "annotations": notes}
        self.server.add(JOBS, {"metadata": metadata, "spec": spec, "status": {}})

    def users_change_a_job(self) -> None:
        jobs = self.server.all(JOBS)
        if not jobs:
            return
        job = self.random.choice(jobs)
        act = self.random.choice((self._toggle, self._toggle, self._delete_job, self._replace_job, self._edit_job))
        self.say(f"   {job['metadata']['name']} {job['metadata']['uid']} {act.__name__}")
        act(job)

    def _toggle(self, job: Json) -> None:
        def toggle(found: Json) -> None:
            found["spec"] = {**found["spec"], "suspend": not found["spec"]["suspend"]}

        self.server.change(JOBS, job["metadata"]["uid"], toggle)

    def _replace_job(self, job: Json) -> None:
        """Deleted and created again under the same name; with all its annotations, as a copy of it has them."""
        self._delete_job(job)
        if job["metadata"]["uid"] not in self.server.objects[JOBS]:
            copied = "copies" not in self.without and self.random.random() < 0.5
            self._create_job(job["metadata"]["name"], dict(notes_of(job)) if copied else {})

    def _edit_job(self, job: Json) -> None:
        """Other annotations; another size of its pods, while it is suspended."""
        if "edits" in self.without:
            return
        uid, draw = job["metadata"]["uid"], self.random.random()

        def edit(found: Json) -> None:
            notes = dict(notes_of(found))
            if notes and draw < 0.6:
                notes.pop(self.random.choice(sorted(notes)))
                found["metadata"] = {**found["metadata"], "annotations": notes}
            elif found["spec"]["suspend"] and has(found, "Suspended") and "startTime" not in found["status"]:
                template = found["spec"]["template"]
                resources = {"limits": {GPU: self.random.choice(("0", "1", "2", "3"))}}
                spec = {**template["spec"], "containers": [{"resources": resources}]}
                found["spec"] = {**found["spec"], "template": {**template, "spec": spec}}

        self.server.change(JOBS, uid, edit)

    def _delete_job(self, job: Json) -> None:
        uid, draw = job["metadata"]["uid"], self.random.random()
        if draw < 0.3:  # in the foreground

            def wait_for_pods(found: Json) -> None:
                found["metadata"]["finalizers"] = ["foregroundDeletion"]

            self.server.change(JOBS, uid, wait_for_pods)
        elif draw < 0.5 and "orphans" not in self.without:
            for pod in self.server.pods_of(uid):
                self.server.change(PODS, pod["metadata"]["uid"], lambda found: found["metadata"].pop("ownerReferences"))
        self.server.delete(JOBS, uid)

    def users_delete_a_pod(self) -> None:
        pods = [pod for pod in self.server.all(PODS) if pod["spec"].get("schedulerName") == OURS]
        if pods:
            is_forced = "force" not in self.without and self.random.random() < 0.2
            self.server.delete(PODS, self.random.choice(pods)["metadata"]["uid"], 0 if is_forced else None)

    # Others

    def foreign_pods(self) -> None:
        nodes = [node for node in self.server.all(NODES) if has(node, "Ready")]
        own = [pod for pod in self.server.all(PODS) if pod["spec"].get("schedulerName") != OURS]
        if own and self.random.random() < 0.5:
            pod = self.random.choice(own)["metadata"]["uid"]
            self.server.delete(PODS, pod, 0)
        elif nodes:
            self._add_foreign(self.random.choice(nodes), is_stale=self.random.random() < 0.3)

    def _add_foreign(self, node: Json, *, is_stale: bool) -> None:
        """Another scheduler sees what others have bound; with an old view it does not see what we have."""
        name, gpus = node["metadata"]["name"], self.random.randint(1, 2)
        counted = [pod for pod in self.server.all(PODS) if node_of(pod) == name and not is_terminal(pod)]
        if is_stale:
            counted = [pod for pod in counted if pod["spec"].get("schedulerName") != OURS]
        if sum(map(gpus_of, counted)) + gpus > int(node["status"]["allocatable"][GPU]):
            return
        spec = {
            "schedulerName": "default-scheduler",
            "nodeName": name,
            "containers": [{"resources": {"limits": {GPU: str(gpus)}}}],
        }
        metadata = {"namespace": "ns", "name": f"f{self._number()}"}
        self.server.add(PODS, {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}})

    # Nodes

    def _add_node(self, name: str) -> None:
        status = {
            "capacity": {GPU: "4"},
            "allocatable": {GPU: "4"},
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        self.server.add(NODES, {"metadata": {"name": name, "labels": {}}, "spec": {}, "status": status})
        self.kubelets.dead.discard(name)

    def nodes_change(self) -> None:
        nodes, draw = self.server.all(NODES), self.random.random()
        if len(nodes) < 4 and (not nodes or draw < 0.2):
            self._add_node(f"n{self._number()}")
            return
        node = self.random.choice(nodes)
        name, uid = node["metadata"]["name"], node["metadata"]["uid"]
        if draw < 0.4:
            self.toggle_ready(node)
        elif draw < 0.6:

            def cordon(found: Json) -> None:
                found["spec"] = {**found["spec"], "unschedulable": not found["spec"].get("unschedulable")}

            self.server.change(NODES, uid, cordon)
        elif draw < 0.8:

            def shrink(found: Json) -> None:
                usable = {**found["status"]["allocatable"], GPU: str(self.random.randint(2, 4))}
                found["status"] = {**found["status"], "allocatable": usable}

            self.server.change(NODES, uid, shrink)
        else:
            self.server.remove(NODES, uid)
            if len(nodes) == 1 or self.random.random() < 0.5:
                self._add_node(name)

    def toggle_ready(self, node: Json) -> None:
        """A machine dies or comes back; its pods are no longer ready, and are evicted after a while."""
        name, is_ready = node["metadata"]["name"], has(node, "Ready")
        (self.kubelets.dead.add if is_ready and self.random.random() < 0.7 else self.kubelets.dead.discard)(name)
        self.server.change(
            NODES, node["metadata"]["uid"], lambda found: set_condition(found, "Ready", is_true=not is_ready)
        )
        for pod in self.server.all(PODS):
            if is_ready and node_of(pod) == name and has(pod, "Ready"):
                self.server.change(
                    PODS, pod["metadata"]["uid"], lambda found: set_condition(found, "Ready", is_true=False)
                )

    def evict(self) -> None:
        for node in self.server.all(NODES):
            for pod in self.server.all(PODS):
                if not has(node, "Ready") and node_of(pod) == node["metadata"]["name"] and is_active(pod):
                    self.server.delete(PODS, pod["metadata"]["uid"])

    def unsubmitted(self, known: dict[str, str]) -> list[str]:
        """Jobs of ours that no service has submitted."""
        return [
            f"{job['metadata']['name']} was not submitted"
            for uid, job in self.server.objects[JOBS].items()
            if uid not in known
            and not (has(job, "Complete") or has(job, "Failed") or is_deleting(job))
            and gpus_of({"spec": job["spec"]["template"]["spec"]}) > 0
        ]
