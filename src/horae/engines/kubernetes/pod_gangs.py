"""Gangs of pods that no Job stands for: the pods of a HiveD group within a namespace.

While such a gang waits, it exists in the store only, under a key that is made of its pods: the same pods are never
submitted twice. From the first binding on, each of its pods has the whole lease in its annotations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import NamedTuple

from horae.engines.kubernetes import names
from horae.engines.kubernetes.actions import Action, Bind
from horae.engines.kubernetes.api import CONFLICT, ApiProblem, Json
from horae.engines.kubernetes.gangs import Gang, Gangs, Subject, Surroundings
from horae.engines.kubernetes.hived_notes import HivedNode, hived_notes
from horae.engines.kubernetes.members import Place
from horae.engines.kubernetes.objects import LeaseNote, PodObject
from horae.engines.kubernetes.reconcile import Report, Step, Wanted, rank_of
from horae.engines.kubernetes.reconcile_pods import Group, Member, is_waiting, reconcile_pods
from horae.model.cluster import Gpu
from horae.model.events import Ending, Phase

_KEY_CHARACTERS = 40


class Request(NamedTuple):
    """What a pod asks for, besides its own size the same for all pods of a gang."""

    group: str  # "": the pod is a gang of its own
    sizes: tuple[int, ...]  # GPUs of each member
    gpus: int  # of this pod
    text: str  # all of it that concerns the gang


ReadRequest = Callable[[PodObject], Request | str]  # or what is wrong with it


@dataclass(frozen=True)
class PodRules:
    """Which pods without a Job of ours are gangs, and what they are told."""

    read_request: ReadRequest = lambda pod: "pods without a Job are not accepted by this service"
    nodes: Mapping[str, HivedNode] = field(default_factory=dict)  # as HiveD's configuration names them


NO_PODS = PodRules()


class GroupObject(NamedTuple):
    """A gang of pods as it is shown to the service."""

    namespace: str
    name: str
    uid: str  # its key
    pods: tuple[PodObject, ...]

    @property
    def path(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def reference(self) -> Json:
        return self.pods[0].reference


@dataclass
class PodGang(Gang):
    """The pods of a group. `uid` is its path; `key` names the pods that were submitted together."""

    name: str = ""
    home: str = ""  # namespace
    nodes: Mapping[str, HivedNode] = field(default_factory=dict)
    keys: dict[str, PodGang] = field(default_factory=dict)  # of all gangs
    requests: dict[str, Request | str] = field(default_factory=dict)  # by pod
    told: set[tuple[str, str]] = field(default_factory=set)  # problems of pods
    key: str = ""
    crew: tuple[str, ...] = ()  # uids of these pods
    granted: LeaseNote | None = None  # under which pods were bound, or may have been
    tried: dict[str, Place] = field(default_factory=dict)
    done: set[str] = field(default_factory=set)  # pods that were bound
    over: dict[Place, PodObject | None] = field(default_factory=dict)

    @property
    def subject(self) -> Subject | None:
        pods = sorted((self.pods[uid] for uid in self.crew if uid in self.pods), key=rank_of)
        return GroupObject(self.home, self.name, self.key, tuple(pods)) if pods else None

    @property
    def is_absent(self) -> bool:
        return False

    @property
    def namespace(self) -> str:
        return self.home

    @property
    def lease(self) -> LeaseNote | None:
        return self.granted

    @property
    def epoch(self) -> int:
        return -1 if self.granted is None else self.granted.epoch

    @property
    def is_to_be_shown(self) -> bool:
        """Whether it is whole and new to the service, which may know its pods from before."""
        return bool(self.crew) and self.granted is None and not self.job_id and self.shown_as != self._appearance

    @property
    def _appearance(self) -> object:
        return self.key

    @property
    def is_on_gpus(self) -> bool:
        return bool(self.tried)

    def take_problems(self) -> list[tuple[PodObject, str]]:
        request, found = self._request, []
        for uid, pod in self.pods.items():
            own = self.requests[uid]
            problem = own if isinstance(own, str) else ""
            if isinstance(own, Request) and request is not None and own.text != request.text and is_waiting(pod):
                problem = "asks for something else than other pods of its group: give all the same, but for their size"
            if problem and (uid, problem) not in self.told:
                self.told.add((uid, problem))
                found.append((pod, problem))
        return found

    # Pods

    def has_lease(self, epoch: int) -> bool:
        return self.granted is not None and self.epoch == epoch

    def update_pod(self, pod: PodObject, *, is_listed: bool) -> None:
        super().update_pod(pod, is_listed=is_listed)
        pod = self.pods[pod.uid]
        if pod.node and self._is_granted(pod):
            if not pod.is_terminal or pod.uid in self.tried:
                self.tried[pod.uid] = _place_of(pod)
                self.done.add(pod.uid)
            if pod.is_terminal:
                self._leave(pod.uid, pod)
        elif pod.node or pod.is_terminal:
            self._retract(pod.uid)  # another client has bound it
        self._gather()

    def remove_pod(self, uid: str) -> None:
        pod = self.pods.pop(uid, None)
        self.requests.pop(uid, None)
        if pod is not None and uid in self.tried:
            self._leave(uid, pod if pod.is_terminal else None)
        self._gather()

    def _is_granted(self, pod: PodObject) -> bool:
        """Takes the lease over under which an earlier leader has bound the pod, if no other is known."""
        if self.granted is None and not pod.is_terminal:
            note = LeaseNote.parse(pod.annotations.get(names.LEASE, ""))
            if note is None or note.epoch <= self.told_end:
                return False
            self._take(note, pod)
        return pod.epoch == self.epoch

    def _take(self, note: LeaseNote, pod: PodObject) -> None:
        self.granted, self.job_id = note, pod.annotations.get(names.JOB, "")
        self._set_key(pod.annotations.get(names.GANG, ""))

    def _leave(self, uid: str, pod: PodObject | None) -> None:
        place = self.tried.pop(uid, None)
        self.done.discard(uid)
        if place is not None:
            self.over = {each: last for each, last in self.over.items() if not set(each) & set(place)}
            self.over[place] = pod

    def _retract(self, uid: str) -> None:
        """The pod was not bound by us."""
        self.done.discard(uid)
        if self.tried.pop(uid, None) is not None and not self.tried and not self.over:
            self.granted = None

    def _gather(self) -> None:
        """Chooses the pods that make a whole gang, unless those that were chosen are all still there."""
        if self.granted is not None or self.job_id or self._is_whole:
            return
        self.crew = self._whole_gang()
        text = "\n".join([self.uid, *sorted(self.crew)])
        self._set_key(sha256(text.encode()).hexdigest()[:_KEY_CHARACTERS] if self.crew else "")

    def _set_key(self, key: str) -> None:
        self.keys.pop(self.key, None)
        self.key = key
        if key:
            self.keys[key] = self

    @property
    def _is_whole(self) -> bool:
        return bool(self.crew) and all(uid in self.pods and is_waiting(self.pods[uid]) for uid in self.crew)

    @property
    def _request(self) -> Request | None:
        """That of the gang: of pods with GPUs, or else of the first one that waits."""
        pods = [self.pods[uid] for uid in self.tried if uid in self.pods]
        pods += sorted(filter(is_waiting, self.pods.values()), key=rank_of)
        found = (self.requests.get(pod.uid) for pod in pods)
        return next((each for each in found if isinstance(each, Request)), None)

    def _members(self) -> list[Member]:
        request = self._request
        return [
            Member(pod, own.gpus)
            for uid, pod in self.pods.items()
            if isinstance(own := self.requests.get(uid), Request) and request is not None and own.text == request.text
        ]

    def _whole_gang(self) -> tuple[str, ...]:
        request = self._request
        if request is None:
            return ()
        missing = Counter(request.sizes)
        found: list[str] = []
        for each in sorted(self._members(), key=lambda member: rank_of(member.pod)):
            if is_waiting(each.pod) and missing[each.gpus] > 0:
                missing[each.gpus] -= 1
                found.append(each.pod.uid)
        return tuple(found) if len(found) == len(request.sizes) else ()

    # What the engine does with any gang

    def step(self, around: Surroundings) -> Step:
        request = self._request
        if request is None and self.granted is None and self.wanted == Wanted():
            return Step()
        group = Group(
            request.sizes if request is not None else (),
            tuple(self._members()),
            frozenset(self.crew),
            self.granted,
            self.tried,
            frozenset(self.done),
            self.over,
            around.lost_nodes,
        )
        step = reconcile_pods(group, self.wanted, around.term, around.cell_sizes)
        return step._replace(actions=self._annotated(step.actions))

    def _annotated(self, actions: Sequence[Action]) -> tuple[Action, ...]:
        """Bindings with all that a later leader needs, and with what HiveD tells its pods."""
        lease = self.granted or self.wanted.lease
        bindings = [each for each in actions if isinstance(each, Bind)]
        if lease is None or not bindings:
            return tuple(actions)
        new = {each.pod.uid: each.gpus for each in bindings}
        places = list({**self.tried, **new}.values())
        places += [place for place in self.over if not any(set(place) & set(each) for each in places)]
        own = {names.LEASE: lease.as_json(), names.JOB: self.job_id, names.GANG: self.key}
        return tuple(
            each._replace(further={**own, **hived_notes(lease, places, each.gpus, self.nodes)})
            if isinstance(each, Bind)
            else each
            for each in actions
        )

    def annotate(self, notes: dict[str, str | None]) -> list[Action]:
        return []  # a waiting gang has its record in the store, and its pods are told by events

    def adopt(self) -> None:
        """Continues the lease of its pods, or tells how it has ended if all of them have."""
        if self.granted is None and not self.crew:
            self._take_ended()
        for pod in self.pods.values():
            if pod.is_terminal and pod.epoch == self.epoch and _place_of(pod) not in self.tried.values():
                self.over.setdefault(_place_of(pod), pod)
        if self.granted is not None:
            self.wanted = self.wanted._replace(lease=self.granted)

    def _take_ended(self) -> None:
        noted = [
            (note.epoch, note, pod)
            for pod in self.pods.values()
            if pod.is_terminal and (note := LeaseNote.parse(pod.annotations.get(names.LEASE, ""))) is not None
        ]
        if noted:
            _, note, pod = max(noted, key=lambda each: each[0])
            self._take(note, pod)

    def begin(self, action: Bind) -> None:
        self.granted = self.granted or self.wanted.lease
        self.tried[action.pod.uid] = action.gpus
        self.done.add(action.pod.uid)

    def bound(self, action: Bind, problem: ApiProblem | None) -> None:
        uid = action.pod.uid
        if problem is None or uid not in self.tried or self.pods[uid].node:
            return
        self.done.discard(uid)
        if not problem.is_temporary and problem.status != CONFLICT:  # otherwise it may have been bound, now or before
            self._retract(uid)

    def is_news(self, report: Report) -> bool:
        if report.phase is Phase.STARTING and self.told_phase == (report.epoch, Phase.RUNNING):
            return False  # a pod is replaced
        is_news = super().is_news(report)
        if report.ending is not None and report.epoch >= self.epoch:
            self.granted = None
            self.tried, self.done, self.over = {}, set(), {}
        return is_news

    def left(self) -> str:
        """It is the job that was submitted as long as all of its pods wait, or some have its GPUs."""
        if not self.job_id or self.granted is not None or self._is_whole:
            return ""
        has_ended, self.ended_as = self.ended_as in (Ending.FINISHED, Ending.FAILED), Ending.STOPPED
        self.job_id, self.is_registered, self.specification, self.wanted = "", False, None, Wanted()
        self.crew, self.saved_steps, self.told_steps = (), 0.0, 0.0
        self._gather()
        return "" if has_ended else "its pods are gone; those that replace them are a new job"


class PodGangs(Gangs):
    """All gangs: Jobs, and groups of pods without one."""

    def __init__(self, scheduler: str, rules: PodRules) -> None:
        super().__init__(scheduler)
        self._rules = rules
        self._by_key: dict[str, PodGang] = {}

    def get(self, uid: str) -> Gang | None:
        return super().get(uid) or self._by_key.get(uid)

    def _is_ours(self, template: Json) -> bool:
        notes = (template.get("metadata") or {}).get("annotations") or {}
        return super()._is_ours(template) and names.HIVED_REQUEST not in notes

    def _gang_of(self, pod: PodObject) -> Gang | None:
        if names.HIVED_REQUEST not in pod.annotations:
            return super()._gang_of(pod)
        known = super().get(self._owner.get(pod.uid, ""))
        if known is not None:
            return known  # what it asks for does not change, whatever its annotation says since
        request = self._rules.read_request(pod)
        group = request.group if isinstance(request, Request) else ""
        uid = f"group/{pod.namespace}/{group}" if group else f"pod/{pod.namespace}/{pod.name}"
        gang = super().get(uid)
        if not isinstance(gang, PodGang):
            gang = PodGang(uid, name=group or pod.name, home=pod.namespace, nodes=self._rules.nodes, keys=self._by_key)
            self._by_uid[uid] = gang
        gang.requests[pod.uid] = request
        return gang

    def _apply_pod(self, uid: str, found: Json | None, is_listed: bool) -> Gang | None:
        gang = super()._apply_pod(uid, found, is_listed)
        if isinstance(gang, PodGang):
            self._tie(gang)
            if gang.job_id:  # as its pods name it
                self.by_job[gang.job_id] = gang
        return gang

    def _tie(self, gang: PodGang) -> None:
        """Ties the job to the gang that was expected under the gang's key before its pods were known."""
        expected = self._by_uid.get(gang.key)
        if expected is not None and not isinstance(expected, PodGang):
            del self._by_uid[gang.key]
            gang.specification = expected.specification
            gang.wanted, gang.told_steps = expected.wanted, expected.told_steps
            self.register(expected.job_id, gang.key)


def _place_of(pod: PodObject) -> Place:
    return tuple(Gpu(pod.node, number) for number in pod.gpu_numbers)
