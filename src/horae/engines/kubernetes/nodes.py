"""What the nodes of the cluster become, as events for the scheduler."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf

from horae.engines.kubernetes.actions import Action, PutInService, PutOutOfService
from horae.engines.kubernetes.api import Json
from horae.engines.kubernetes.gangs import Gangs
from horae.engines.kubernetes.hardware import Labels, NodeObject, as_node, count_by_node, is_ours, read_node, unusable
from horae.model.cluster import Cluster, Gpu, Node
from horae.model.events import ClusterChanged, Event, GpuChanged, GpuState, Health, NodeChanged


class Nodes:
    """Remembers what was told, and tells what differs from it."""

    def __init__(
        self,
        cluster: Cluster,
        labels: Labels,
        type_of: Callable[[str], str],
        unreachable_seconds: float,
        *,
        is_fixed: bool = False,
    ) -> None:
        """`is_fixed`: the nodes are those of the configuration; others are not ours, absent ones have failed."""
        self._fixed = {node.name: node for node in cluster.nodes} if is_fixed else None
        self._labels = labels
        self._type_of = type_of
        self._unreachable_seconds = unreachable_seconds
        self._found: dict[str, NodeObject] = {}
        self._names: dict[str, str] = {}  # by uid
        self._ours: dict[str, Node] = dict(self._fixed or {})
        self._is_dirty = True
        self._told: dict[str, Node] = {node.name: node for node in cluster.nodes}
        self._health: dict[str, Health] = {}
        self._gpus: dict[str, dict[int, GpuState]] = {}
        self._unready_since: dict[str, float] = {}
        self._marked: set[str] = set()  # put out of service, as far as requested

    def believe(self, cluster: Cluster, health: Mapping[str, Health], gpus: Mapping[Gpu, GpuState]) -> None:
        """What the scheduler holds for true at the start."""
        self._told = {node.name: node for node in cluster.nodes}
        # An operator may have drained a node through Horae: only what differs from healthy is told then.
        self._health = {name: each for name, each in health.items() if each is not Health.DRAINING}
        for gpu, state in gpus.items():
            self._gpus.setdefault(gpu.node, {})[gpu.number] = state

    def apply(self, uid: str, found: Json | None) -> None:
        self._is_dirty = True
        if found is None:
            name = self._names.pop(uid, "")
            if name in self._names.values():
                return  # another of this name has been listed before
            self._found.pop(name, None)
            if self._fixed is None:
                self._ours.pop(name, None)
            return
        node = read_node(found)
        self._names[uid] = node.name
        self._found[node.name] = node
        if self._fixed is not None:
            return
        if is_ours(node):
            self._ours[node.name] = as_node(node, self._labels, self._type_of)
        else:
            self._ours.pop(node.name, None)

    def with_labels(self, labels: Mapping[str, str]) -> list[str]:
        """The nodes of ours that have all of these."""
        return [
            name
            for name, node in sorted(self._found.items())
            if name in self._ours and labels.items() <= node.labels.items()
        ]

    def cell_sizes(self, name: str) -> list[int]:
        """GPUs of the cells inside a node, the smallest first."""
        return sorted(gpus for _, gpus in self._ours[name].levels) if name in self._ours else []

    @property
    def lost(self) -> frozenset[str]:
        """Nodes that are gone or out of service: no kubelet confirms the end of their pods."""
        missing = self._told.keys() - self._found.keys()
        return frozenset({*missing, *(name for name, node in self._found.items() if node.is_out_of_service)})

    def next_at(self, now: float) -> float:
        """When a node will next have been unreachable for too long. One that has been matters again when a pod of ours
        is there, which is news."""
        due = (since + self._unreachable_seconds for since in self._unready_since.values())
        return min((at for at in due if at > now), default=inf)

    def events(self, gangs: Gangs, now: float) -> list[Event]:
        """Everything that differs from what was told; it is then taken as told."""
        events: list[Event] = []
        if self._is_dirty:
            self._is_dirty = False
            events = self._node_events(now)
        numbered, counted = gangs.unaccounted()
        foreign = count_by_node([*gangs.foreign.values(), *counted])
        suspects = [
            name
            for name, node in self._found.items()
            if name in self._ours
            and (self._failed_gpus(node) or name in foreign or name in numbered or self._gpus.get(name))
        ]
        leased = gangs.leased() if suspects else {}
        for name in sorted(suspects):
            used = numbered.get(name, set()) - leased.get(name, set())
            events += self._gpu_events(name, leased.get(name, set()), used, foreign.get(name, 0), now)
        return events

    def _node_events(self, now: float) -> list[Event]:
        events: list[Event] = []
        changed = tuple(node for name, node in sorted(self._ours.items()) if self._told.get(name) != node)
        if changed:
            events.append(ClusterChanged(now, changed))
        for name in sorted(self._told.keys() | self._ours.keys()):
            health = self._found[name].health if name in self._ours and name in self._found else Health.FAILED
            if self._health.get(name, Health.HEALTHY) is not health:
                events.append(NodeChanged(now, name, health))
                self._health[name] = health
        removed = tuple(name for name in self._told if name not in self._ours)
        if removed:
            events.append(ClusterChanged(now, removed=removed))
        for name in removed:
            self._health.pop(name, None)
            self._gpus.pop(name, None)
        self._told = dict(self._ours)
        return events

    def _gpu_events(self, name: str, leased: set[int], used: set[int], foreign: int, now: float) -> list[Event]:
        count, before = self._ours[name].gpus, self._gpus.get(name, {})
        failed = self._failed_gpus(self._found[name])
        after = unusable(count, failed, foreign, leased | used, before) | dict.fromkeys(used, GpuState.FOREIGN)
        self._gpus[name] = after
        notes = dict.fromkeys(used, "used by a pod that has no lease")
        note = "used by pods of other schedulers"
        return [
            GpuChanged(now, Gpu(name, number), state, notes.get(number, note) if state is GpuState.FOREIGN else "")
            for number in sorted(before.keys() | after.keys())
            if (state := after.get(number, GpuState.USABLE)) is not before.get(number, GpuState.USABLE)
        ]

    def _failed_gpus(self, node: NodeObject) -> int:
        """How many cannot be used. Where no device plug-in counts them, as HiveD needs none, all can."""
        return max(self._ours[node.name].gpus - node.usable_gpus, 0) if node.gpus else 0

    def actions(self, is_in_use: Callable[[str], bool], now: float) -> list[Action]:
        """Nodes with pods of ours that have been unreachable for long are put out of service, and back when ready."""
        found: list[Action] = []
        for name, node in self._found.items():
            if node.is_ready:
                self._unready_since.pop(name, None)
                if node.is_out_of_service and any(map(PutInService.is_own, node.taints)):
                    found.append(PutInService(name, node.version, node.taints))
                self._marked.discard(name)
                continue
            since = self._unready_since.setdefault(name, now)
            is_due = now >= since + self._unreachable_seconds
            if is_due and not node.is_out_of_service and name not in self._marked and is_in_use(name):
                self._marked.add(name)
                found.append(PutOutOfService(name, node.version, node.taints))
        for name in self._unready_since.keys() - self._found.keys():
            del self._unready_since[name]
        return found

    def unmark(self, name: str) -> None:
        """The node could not be put out of service; it is tried again."""
        self._marked.discard(name)
