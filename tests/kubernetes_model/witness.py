"""What must hold after every step, read from the cluster itself and from what was told; not by the engine's own code."""

from __future__ import annotations

import json

from kubernetes_model.api_server import (
    ApiServer,
    gpus_of,
    is_terminal,
    node_of,
    notes_of,
    owner_of,
)
from kubernetes_model.controllers import GPU, Kubelets
from kubernetes_model.leader import Leader
from world import Violation

from horae.engines.kubernetes.actions import Action, Bind
from horae.engines.kubernetes.api import JOBS, NODES, PODS, Json
from horae.model.cluster import Gpu
from horae.model.commands import Command, Start, Stop
from horae.model.events import Event, JobEnded

OURS = "horae"


class Witness:
    def __init__(self, server: ApiServer, kubelets: Kubelets) -> None:
        self._server = server
        self._kubelets = kubelets
        self.leader: Leader | None = None
        self.starts: dict[tuple[str, int], Start] = {}  # by uid of the Job, and epoch
        self.stops: set[tuple[str, int]] = set()  # that the present leader has been told
        self.uids: dict[str, str] = {}  # by job
        self.clean: dict[tuple[str, int], dict[str, tuple[int, int]]] = {}  # starts, with what was known of their nodes
        server.on_bound = self._bound
        kubelets.on_rejected = self._rejected

    # What passes by

    def lead(self, leader: Leader) -> None:
        self.leader = leader
        self.stops = set()
        leader.actions.on_submitted = self._submitted

    def commanded(self, commands: list[Command]) -> None:
        """Called before the engine gets them."""
        for command in commands:
            if isinstance(command, Start):
                key = self.uids[command.job_ids[0]], command.epoch
                if key not in self.starts:
                    self.clean[key] = self._knowledge({gpu.node for gpu in command.gpus})
                self.starts[key] = command

    def executed(self, commands: list[Command]) -> None:
        self.stops |= {(self.uids[each.job_id], each.epoch) for each in commands if isinstance(each, Stop)}

    def heard(self, event: Event) -> None:
        if not isinstance(event, JobEnded):
            return
        for pod in self._server.pods_of(self.uids[event.job_id]):
            if node_of(pod) and not is_terminal(pod) and _epoch(pod) == event.epoch and self._is_alive(node_of(pod)):
                raise Violation(f"a lease ends with its last pod: {event}, but {_name(pod)} is on {node_of(pod)}")

    def _is_alive(self, node: str) -> bool:
        return self._server.find(NODES, None, node) is not None and node not in self._kubelets.dead

    def _submitted(self, action: Action) -> None:
        if isinstance(action, Bind) and (action.pod.owner, action.epoch) in self.stops:
            raise Violation(f"no pod is bound for a lease that was stopped: {action.pod.name}, lease {action.epoch}")

    def _bound(self, pod: Json, binding: Json) -> None:
        notes, leader = binding["metadata"]["annotations"], self.leader
        term, epoch = int(notes["horae.io/term"]), int(notes["horae.io/epoch"])
        assert leader is not None
        if term < leader.term and leader.engine.is_synced:
            raise Violation(f"a former leader places nothing: {_name(pod)} by term {term}, now {leader.term}")
        start = self.starts.get((owner_of(pod), epoch))
        if start is None:
            raise Violation(f"only leases are placed: {_name(pod)}, lease {epoch}")
        node = binding["target"]["name"]
        if not {Gpu(node, int(each)) for each in notes["horae.io/gpus"].split(",")} <= set(start.gpus):
            raise Violation(f"a pod is on the GPUs of its lease: {_name(pod)}, {node}, {notes}, {start}")
        self._whole(pod, epoch, start)

    def _whole(self, pod: Json, epoch: int, start: Start) -> None:
        """All pods of the lease have been there."""
        uid = owner_of(pod)
        made = {
            change.uid
            for change in self._server.record[PODS]
            if change.object is not None and owner_of(change.object) == uid and _epoch(change.object) == epoch
        }
        job = self._server.objects[JOBS].get(uid)
        before = 0 if job is None else int(job["status"].get("succeeded") or 0)
        if len(made) + before < len(start.gpus) // max(gpus_of(pod), 1):
            raise Violation(f"a gang is placed as a whole: {len(made)} pods of lease {epoch} exist, {start}")

    def _rejected(self, pod: Json) -> None:
        """A kubelet has no room for a pod of ours although nothing has changed on its node since it was chosen."""
        key, node = (owner_of(pod), _epoch(pod)), node_of(pod)
        if not is_ours(pod) or key not in self.clean:
            return
        if self.clean[key].get(node) == self._last_changes(node):
            raise Violation(f"a pod is placed only where its GPUs are free: {_name(pod)} on {node}")

    def _knowledge(self, nodes: set[str]) -> dict[str, tuple[int, int]]:
        """By node: the last change there of the node and of pods of others; -1 if the leader has not read it yet."""
        assert self.leader is not None
        seen = self.leader.seen
        found: dict[str, tuple[int, int]] = {}
        for name in nodes:
            pods, own = self._last_changes(name)
            found[name] = (pods, own) if pods < seen[PODS] and own < seen[NODES] else (-1, -1)
        return found

    def _last_changes(self, node: str) -> tuple[int, int]:
        """Positions in the record: of pods of others on a node, and of the node itself."""
        record = self._server.record
        pods = (
            index
            for index, change in enumerate(record[PODS])
            if change.object is not None and not is_ours(change.object) and node_of(change.object) == node
        )
        own = (
            index
            for index, change in enumerate(record[NODES])
            if change.object is None or change.object["metadata"]["name"] == node
        )
        return max(pods, default=-1), max(own, default=-1)

    # What is there

    def look(self) -> None:
        using: dict[str, list[Json]] = {}
        epochs: dict[str, set[int]] = {}
        for pod in self._server.all(PODS):
            if is_ours(pod) and node_of(pod) and not is_terminal(pod) and self._is_alive(node_of(pod)):
                using.setdefault(node_of(pod), []).append(pod)
                epochs.setdefault(owner_of(pod), set()).add(_epoch(pod))
        for uid, found in epochs.items():
            if len(found) > 1:
                raise Violation(f"one lease of a Job at a time: {uid} has {found}")
        for node, pods in using.items():
            self._check_node(node, pods)
        assert self.leader is not None
        if self.leader.api.touched_foreign:
            raise Violation(f"what belongs to others is not touched: {self.leader.api.touched_foreign}")

    def _check_node(self, node: str, pods: list[Json]) -> None:
        taken: dict[str, str] = {}
        for pod in pods:
            numbers = [each for each in str(notes_of(pod).get("horae.io/gpus", "")).split(",") if each]
            if numbers and len(numbers) != gpus_of(pod):
                raise Violation(f"a pod has as many GPUs as it asks for: {_name(pod)} on {node}: {numbers}")
            for number in numbers:
                if number in taken:
                    raise Violation(f"no GPU has two pods: {node}/{number} has {taken[number]} and {_name(pod)}")
                taken[number] = _name(pod)
        found = self._server.find(NODES, None, node)
        assert found is not None
        if sum(map(gpus_of, pods)) > int(found["status"]["capacity"][GPU]):
            raise Violation(f"pods of ours fit their node: {node} has {list(map(_name, pods))}")


def is_ours(pod: Json) -> bool:
    return bool(pod["spec"].get("schedulerName") == OURS)


def _epoch(pod: Json) -> int:
    text = str(notes_of(pod).get("horae.io/epoch", "-1"))
    return int(text) if text.lstrip("-").isdecimal() else -1


def _name(pod: Json) -> str:
    return f"{pod['metadata']['name']} (lease {_epoch(pod)}, {json.dumps(pod['status'].get('phase'))})"
