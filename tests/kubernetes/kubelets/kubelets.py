"""All kubelets: which pods they serve, and on what they decide."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence

from kubernetes.client import Json
from kubernetes.kubelets import pods
from kubernetes.kubelets.api import Api
from kubernetes.kubelets.checker import Checker
from kubernetes.kubelets.life import Life
from kubernetes.kubelets.nodes import Node
from kubernetes.kubelets.options import Options
from kubernetes.kubelets.training import Trainings


class Kubelets:
    def __init__(self, options: Options, tasks: asyncio.TaskGroup) -> None:
        self._options = options
        self._tasks = tasks
        self._api = Api(options.kubeconfig)
        self._checker = Checker(options.violations)
        self._trainings = Trainings(options.resume_seconds, options.work_speed)
        self._nodes: defaultdict[str, Node] = defaultdict(Node)
        self._pods: dict[str, Json] = {}  # that are bound, by uid
        self._lives: defaultdict[str, dict[str, Life]] = defaultdict(dict)  # by node and uid

    def start(self) -> None:
        follow = self._api.follow
        self._tasks.create_task(follow("/api/v1/nodes", self._nodes_changed, labelSelector="horae.test/simulated=true"))
        self._tasks.create_task(follow("/apis/batch/v1/jobs", self._jobs_changed))
        self._tasks.create_task(follow("/api/v1/pods", self._pods_changed, fieldSelector="spec.nodeName!="))

    def _nodes_changed(self, gone: Sequence[Json], there: Sequence[Json]) -> None:
        for found in gone:
            self._nodes[found["metadata"]["name"]].apply(None)
            self._trainings.nodes_changed()
        for found in there:
            name = found["metadata"]["name"]
            node = self._nodes[name]
            if not node.found:
                self._tasks.create_task(node.report(self._api))
            was_served = node.is_served.is_set()
            node.apply(found)
            if node.is_served.is_set() != was_served:
                self._trainings.nodes_changed()
            if node.is_served.is_set() and not was_served:
                self._serve_all(name)

    def _jobs_changed(self, gone: Sequence[Json], there: Sequence[Json]) -> None:
        for job in there:
            self._trainings.see(job)

    def _pods_changed(self, gone: Sequence[Json], there: Sequence[Json]) -> None:
        self._checker.apply(gone, there)
        for pod in gone:
            self._pods.pop(pods.uid_of(pod), None)
            self._serve(pods.node_of(pod), pods.uid_of(pod))
        # What runs already has its room before others are admitted.
        for pod in sorted(there, key=lambda pod: pods.phase_of(pod) != "Running"):
            uid = pods.uid_of(pod)
            before = self._pods.get(uid, pod)
            self._pods[uid] = pod
            if pods.node_of(before) != pods.node_of(pod):  # the cluster was set back, and the pod is bound otherwise
                self._serve(pods.node_of(before), uid)
            self._serve(pods.node_of(pod), uid)

    def _serve_all(self, name: str) -> None:
        """A node is there, or there again."""
        bound = [uid for uid, pod in self._pods.items() if pods.node_of(pod) == name]
        for uid in dict.fromkeys([*self._lives[name], *bound]):
            self._serve(name, uid)

    def _serve(self, name: str, uid: str) -> None:
        """Tells the kubelet of a node how a pod is now."""
        node, lives = self._nodes[name], self._lives[name]
        if not node.is_served.is_set():
            return
        pod = self._pods.get(uid)
        life = lives.get(uid)
        if pod is None or pods.node_of(pod) != name:
            if life is not None:
                life.forget()
        elif life is None:
            self._admit(pod, node, lives)
        else:
            life.see(pod)

    def _admit(self, pod: Json, node: Node, lives: dict[str, Life]) -> None:
        refusal = None
        if pods.phase_of(pod) == "Pending":
            others = [life.pod for life in lives.values() if not life.has_ended]
            refusal = self._unexpected(pods.uid_of(pod)) or pods.refusal(pod, node.found, others)
        life = lives[pods.uid_of(pod)] = Life(pod, node, self._api, self._options, self._trainings)
        life.has_ended = refusal is not None
        self._tasks.create_task(life.live(refusal))
        self._tasks.create_task(life.report())

    def _unexpected(self, uid: str) -> pods.Refusal | None:
        if self._options.draw(uid, "refuse") >= self._options.refused:
            return None
        message = "Pod was rejected: Allocate failed due to a simulated fault, which is unexpected"
        return pods.Refusal("UnexpectedAdmissionError", message)
