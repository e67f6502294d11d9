"""The gangs of the cluster as last seen, and what is wanted of them. One thread uses them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from horae.engines.kubernetes import names
from horae.engines.kubernetes.actions import Action, Annotate, Bind
from horae.engines.kubernetes.api import JOBS, PODS, ApiProblem, Json, Kind
from horae.engines.kubernetes.members import CellSizes
from horae.engines.kubernetes.names import SCHEDULER
from horae.engines.kubernetes.objects import JobObject, LeaseNote, PodObject, read_job, read_pod
from horae.engines.kubernetes.reconcile import Pods, Report, Step, Wanted, reconcile
from horae.model.cluster import Gpu
from horae.model.events import Ending, Phase
from horae.model.serialization import Plain


class Subject(Protocol):
    """A Job, or something that stands for pods without one."""

    @property
    def namespace(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def uid(self) -> str: ...

    @property
    def path(self) -> str: ...

    @property
    def reference(self) -> Json:
        """The object that events about it name."""
        ...


class Surroundings(NamedTuple):
    """What a step depends on besides the gang."""

    term: int
    lost_nodes: frozenset[str]
    cell_sizes: CellSizes


@dataclass
class Gang:
    """A Job with its pods."""

    uid: str
    job: JobObject | None = None  # None: it is not there (any more)
    former: JobObject | None = None  # as it was when it went
    raw: Json = field(default_factory=dict)
    pods: dict[str, PodObject] = field(default_factory=dict)
    placed: dict[str, tuple[Gpu, ...]] = field(default_factory=dict)  # by uid: pods of the present lease that are bound
    wanted: Wanted = field(default_factory=Wanted)
    job_id: str = ""  # "": not submitted yet
    specification: Plain | None = None
    saved_steps: float = 0.0
    told_phase: tuple[int, Phase] | None = None  # (epoch, phase) that was reported last
    told_steps: float = 0.0
    told_end: int = -1  # the epoch whose end was reported last
    ended_as: Ending = Ending.STOPPED
    is_registered: bool = False  # the service has submitted it, or has it from before
    shown_as: object = None  # what the service has been shown of it
    in_flight: int = 0  # actions that are being carried out
    failures: int = 0  # of actions, in a row

    @property
    def subject(self) -> Subject | None:
        """What is shown to the service, and what events are about; None: it is not there."""
        return self.job

    @property
    def is_absent(self) -> bool:
        return self.job is None

    @property
    def namespace(self) -> str:
        return "" if self.job is None else self.job.namespace

    @property
    def lease(self) -> LeaseNote | None:
        """That it has, or had last."""
        job = self.job or self.former
        return None if job is None else job.lease

    @property
    def epoch(self) -> int:
        """Of its active lease; -1: none."""
        return -1 if self.job is None else self.job.epoch

    @property
    def is_on_gpus(self) -> bool:
        """Whether its last lease has pods, or may still get them."""
        return self.lease is not None and (self.epoch >= 0 or any(pod.node for pod in self._live()))

    def has_lease(self, epoch: int) -> bool:
        return any(pod.epoch == epoch for pod in self.pods.values())

    @property
    def has_live_pods(self) -> bool:
        """Whether pods of it are there that have not ended."""
        return any(self._live())

    def _live(self) -> Iterator[PodObject]:
        return (pod for pod in self.pods.values() if not pod.is_terminal)

    @property
    def is_to_be_shown(self) -> bool:
        """Whether it is new to the service, or was rejected by it and has changed since."""
        if self.job is None or self.is_registered or self.job.is_over or self.is_on_gpus:
            return False
        return not self.job.is_recorded and self.shown_as != self._appearance

    @property
    def _appearance(self) -> object:
        return None if self.job is None else (self.job.annotations, self.job.parallelism)

    def show(self) -> None:
        self.shown_as = self._appearance

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """Those of its lease, or of the lease that it shall get."""
        if self.is_on_gpus and self.lease is not None:
            return self.lease.gpus
        return () if self.wanted.lease is None else self.wanted.lease.gpus

    @property
    def fenced(self) -> list[JobObject | PodObject]:
        """The objects that a former leader may still be about to write."""
        found: list[JobObject | PodObject] = [] if self.job is None or self.epoch < 0 else [self.job]
        return [*found, *(pod for pod in self.pods.values() if not pod.node and not pod.is_deleting)]

    def step(self, around: Surroundings) -> Step:
        assert self.job is not None
        pods = Pods(tuple(self.pods.values()), self.placed, self.saved_steps, around.lost_nodes)
        return reconcile(self.job, pods, self.wanted, around.term)

    def take_problems(self) -> list[tuple[PodObject, str]]:
        """Pods that cannot be part of a gang, with the reason; each is told once."""
        return []

    def annotate(self, notes: dict[str, str | None]) -> list[Action]:
        """What writes these annotations, as far as they differ."""
        if self.job is None:
            return []
        same = all(self.job.annotations.get(key) == value for key, value in notes.items())
        if same and (names.RECORDED not in notes or self.job.is_recorded):  # a copy of a Job has its annotations, too
            return []
        return [Annotate(self.job, notes)]

    def adopt(self) -> None:
        """Continues the lease that the Job has, until the scheduler says otherwise."""
        if self.job is not None and self.epoch >= 0:
            self.wanted = self.wanted._replace(lease=self.job.lease)

    def begin(self, action: Bind) -> None:
        """A pod is about to be bound."""
        self.placed[action.pod.uid] = action.gpus

    def update_job(self, raw: Json, *, is_listed: bool) -> None:
        """Takes over what was seen, unless it is older: an answer may overtake what the watch tells."""
        found = read_job(raw)
        if self.job is not None and not is_listed and not _is_newer(found.version, self.job.version):
            return
        if found.epoch != self.epoch:
            self.placed = {}
        self.job, self.raw = found, raw
        self.job_id = self.job_id or found.job_id
        self.saved_steps = max(self.saved_steps, found.saved_steps)
        for pod in self.pods.values():
            self._place(pod)

    def update_pod(self, pod: PodObject, *, is_listed: bool) -> None:
        former = self.pods.get(pod.uid)
        if former is None or is_listed or _is_newer(pod.version, former.version):
            self.pods[pod.uid] = pod
            self.saved_steps = max(self.saved_steps, pod.saved_steps)
            self._place(pod)

    def remove_pod(self, uid: str) -> None:
        self.pods.pop(uid, None)

    def _place(self, pod: PodObject) -> None:
        if pod.node and pod.epoch == self.epoch and pod.gpu_numbers:
            self.placed[pod.uid] = tuple(Gpu(pod.node, number) for number in pod.gpu_numbers)

    def bound(self, action: Bind, problem: ApiProblem | None) -> None:
        if problem is not None and not self._is_bound(action.pod.uid):
            self.placed.pop(action.pod.uid, None)

    def left(self) -> str:
        """Why the gang is no longer the job that it was submitted as; "": it is, or that job has ended."""
        return ""

    def _is_bound(self, uid: str) -> bool:
        return uid in self.pods and bool(self.pods[uid].node)

    def is_news(self, report: Report) -> bool:
        """Whether a report tells something that was not told before; it is then taken as told."""
        if report.ending is not None:
            if report.epoch <= self.told_end:
                return False
            self.told_end = report.epoch
            return True
        assert report.phase is not None
        if (report.epoch, report.phase) != self.told_phase:
            self.told_phase = report.epoch, report.phase
            return True
        return False


class Gangs:
    """All Jobs that Horae schedules, by uid, with their pods; and the pods of others that use GPUs."""

    def __init__(self, scheduler: str = SCHEDULER) -> None:
        self._scheduler = scheduler
        self._by_uid: dict[str, Gang] = {}
        self._owner: dict[str, str] = {}  # by pod: its Job
        self.foreign: dict[str, tuple[str, int]] = {}  # by pod of others: its node, and its GPUs
        self.strays: dict[str, PodObject] = {}  # pods for our scheduler that belong to no Job
        self.by_job: dict[str, Gang] = {}

    def __iter__(self) -> Iterator[Gang]:
        return iter(self._by_uid.values())

    def get(self, uid: str) -> Gang | None:
        return self._by_uid.get(uid)

    def register(self, job_id: str, uid: str) -> Gang:
        """Ties a job of the service to the Job of this uid, or to the pods of this key."""
        gang = self.get(uid) or self._by_uid.setdefault(uid, Gang(uid))
        gang.job_id, gang.is_registered = job_id, True
        self.by_job[job_id] = gang
        return gang

    def find(self, job_id: str, epoch: int) -> Gang | None:
        """The gang of a job. Where its Job is gone or was forgotten, its pods still name the lease."""
        found = self.by_job.get(job_id)
        if found is None:
            found = next((gang for gang in self if gang.has_lease(epoch)), None)
        return None if found is None else self.register(job_id, found.uid)

    def apply(self, kind: Kind, key: str, found: Json | None, *, is_listed: bool = False) -> Gang | None:
        """Takes over a change; returns the gang that it concerns. Pods of others are noted in `foreign`."""
        if kind == JOBS:
            return self._apply_job(key, found, is_listed)
        return self._apply_pod(key, found, is_listed) if kind == PODS else None

    def _apply_job(self, uid: str, found: Json | None, is_listed: bool) -> Gang | None:
        gang = self._by_uid.get(uid)
        if found is None:
            if gang is not None:
                gang.former, gang.job = gang.job or gang.former, None
                self.drop_if_empty(gang)
            return gang
        if gang is None:
            if not self._is_ours(found["spec"].get("template") or {}):
                return None
            gang = self._by_uid[uid] = Gang(uid)
        gang.update_job(found, is_listed=is_listed)
        if gang.job_id:
            self.by_job[gang.job_id] = gang
        return gang

    def _is_ours(self, template: Json) -> bool:
        return bool((template.get("spec") or {}).get("schedulerName") == self._scheduler)

    def _apply_pod(self, uid: str, found: Json | None, is_listed: bool) -> Gang | None:
        if found is None:
            self.foreign.pop(uid, None)
            self.strays.pop(uid, None)
            gang = self._by_uid.get(self._owner.pop(uid, ""))
            if gang is not None:
                gang.remove_pod(uid)
                self.drop_if_empty(gang)
            return gang
        pod = read_pod(found)
        if pod.scheduler != self._scheduler:
            self._note_foreign(pod)
            return None
        gang = self._gang_of(pod)
        if gang is None:  # created without a Job, or its Job was deleted without its pods
            self.strays[uid] = pod
            former = self._by_uid.get(self._owner.pop(uid, ""))
            if former is not None:
                former.remove_pod(uid)
            return former
        self._owner[uid] = gang.uid
        gang.update_pod(pod, is_listed=is_listed)
        return gang

    def _gang_of(self, pod: PodObject) -> Gang | None:
        return self._by_uid.setdefault(pod.owner, Gang(pod.owner)) if pod.owner else None

    def has_pod(self, uid: str) -> bool:
        gang = self._by_uid.get(self._owner.get(uid, ""))
        return gang is not None and uid in gang.pods

    def _note_foreign(self, pod: PodObject) -> None:
        if pod.node and pod.resource_gpus and not pod.is_terminal:
            self.foreign[pod.uid] = pod.node, pod.resource_gpus
        else:
            self.foreign.pop(pod.uid, None)

    def drop_if_empty(self, gang: Gang) -> None:
        if gang.job is None and not gang.pods and not gang.job_id and not gang.in_flight:
            self._by_uid.pop(gang.uid, None)

    def forget(self, gang: Gang) -> None:
        """The service has no more use for it; it stays while it is in the cluster."""
        if gang.job is None and not gang.pods:
            self._by_uid.pop(gang.uid, None)
        self.by_job.pop(gang.job_id, None)

    def adopt(self) -> None:
        """Continues all leases that were found. Of two on the same GPUs the older one has ended, and was revived by an
        edit of its Job."""
        taken: set[Gpu] = set()
        for gang in sorted(self, key=lambda gang: -gang.epoch):
            if gang.epoch < 0:
                gang.adopt()
            elif (gang.job_id or gang.job is None) and taken.isdisjoint(gang.gpus):
                taken.update(gang.gpus)
                gang.adopt()

    def release(self, job_id: str, gang: Gang) -> None:
        """The gang is no longer this job."""
        self.by_job.pop(job_id, None)
        self.drop_if_empty(gang)

    def leased(self) -> dict[str, set[int]]:
        """By node: the numbers of the GPUs that leases have, or shall get."""
        return _by_node(gpu for gang in self if gang.job_id for gpu in gang.gpus)

    def unaccounted(self) -> tuple[dict[str, set[int]], list[tuple[str, int]]]:
        """GPUs of pods for our scheduler that belong to no lease: their Job is gone since before this process began, or
        its annotations were removed. By number by node; and of pods that no scheduler of ours has placed, by count."""
        pods = [pod for gang in self if not (gang.job_id and gang.is_on_gpus) for pod in gang.pods.values()]
        using = [
            pod
            for pod in (*pods, *self.strays.values())
            if pod.node and (pod.resource_gpus or pod.gpu_numbers) and not pod.is_terminal
        ]
        numbered = _by_node(Gpu(pod.node, number) for pod in using for number in pod.gpu_numbers)
        return numbered, [(pod.node, pod.resource_gpus) for pod in using if not pod.gpu_numbers]


def _by_node(gpus: Iterable[Gpu]) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for gpu in gpus:
        found.setdefault(gpu.node, set()).add(gpu.number)
    return found


def _is_newer(version: str, than: str) -> bool:
    """Versions of one object are numbers that grow (KEP-5504); others count as news when they differ."""
    try:
        return int(version) > int(than)
    except ValueError:
        return version != than
