"""One process of the service: an engine without threads, whose watches and actions advance when the test says so."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from random import Random
from typing import Any, cast

from kubernetes_model.api_server import KINDS, Api, ApiServer

from horae.engines.kubernetes.actions import Action
from horae.engines.kubernetes.api import NODES, Kind, KubernetesApi
from horae.engines.kubernetes.engine import KubernetesEngine
from horae.engines.kubernetes.hardware import Labels, as_node, is_ours, read_node
from horae.engines.kubernetes.informer import Change, News, Synced
from horae.model.cluster import Cluster


class Actions(Executor):
    """Actions that are under way; each is carried out when the test says so, in any order."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []
        self.on_submitted: Callable[[Action], None] = lambda action: None

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        if len(args) == 2 and isinstance(args[0], str):
            self.on_submitted(args[1])
        self.waiting.append((fn, args))
        return Future()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Leaves what is under way: it may still arrive."""

    def perform(self, index: int) -> None:
        act, args = self.waiting.pop(index)
        act(*args)


class Leader:
    def __init__(self, server: ApiServer, random: Random, now: Callable[[], float], term: int) -> None:
        """Without what the scheduler holds for true: `believe` follows."""
        self._server = server
        self.term = term
        self.api = Api(server, random)
        self.actions = Actions()
        self._known: dict[Kind, set[str]] = {kind: set() for kind in KINDS}
        self.read: dict[Kind, int] = dict.fromkeys(KINDS, -1)  # how much of the record was told; -1: nothing yet
        self.seen: dict[Kind, int] = dict.fromkeys(KINDS, -1)  # when the engine looked last
        self.engine = KubernetesEngine(
            cast(KubernetesApi, self.api),
            self.cluster(),
            now,
            term=term,
            type_of=lambda product: product,
            executor=self.actions,
        )

    def cluster(self) -> Cluster:
        """The nodes as they are now, with which a service begins."""
        nodes = [read_node(node) for node in self._server.all(NODES)]
        return Cluster("test", tuple(as_node(node, Labels(), str) for node in nodes if is_ours(node)))

    def list(self, kind: Kind) -> None:
        """What is there; what was known and is not there counts as deleted."""
        found = self._server.objects[kind]
        news: list[News] = [Change(kind, uid, each) for uid, each in found.items()]
        news += [Change(kind, uid, None) for uid in sorted(self._known[kind] - found.keys())]
        self._known[kind] = set(found)
        self.read[kind] = len(self._server.record[kind])
        self.engine.tell([*news, Synced(kind)])

    def watch(self, kind: Kind, changes_max: int) -> None:
        """The next changes of a kind, in their order."""
        if self.read[kind] < 0:
            self.list(kind)
            return
        first = self.read[kind]
        for change in self._server.record[kind][first : first + changes_max]:
            self.read[kind] += 1
            (self._known[kind].discard if change.object is None else self._known[kind].add)(change.uid)
            self.engine.tell([Change(kind, change.uid, change.object)])

    def is_behind(self, kind: Kind) -> bool:
        return self.read[kind] < len(self._server.record[kind])

    def catch_up(self) -> None:
        for kind in KINDS:
            self.watch(kind, 1 << 30)
            self.watch(kind, 1 << 30)
