"""Simulated training: the gang of a lease advances while all of its pods run, and saves its steps when it is stopped.

A gang is all pods of one Job with the same `horae.io/epoch`, as many as the Job's `parallelism`. The next gang of the
Job continues from the steps that were saved. `horae.io/speed` states the steps per second of the whole gang by GPU
type, such as `H100=3.1;A100=1.4`: the type whose name is part of the node's label `nvidia.com/gpu.product` counts, and
for a gang on several types the slowest.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from kubernetes.client import Json
from kubernetes.kubelets import pods
from kubernetes.kubelets.nodes import Node

WORK, STEPS, SPEED = "horae.test/work", "horae.io/steps", "horae.io/speed"
EPOCH = "horae.io/epoch"


class Trainings:
    def __init__(self, resume_seconds: float, work_speed: float) -> None:
        self._resume_seconds = resume_seconds
        self._work_speed = work_speed
        self._jobs: dict[str, Json] = {}  # also those that are gone: their pods may still be there
        self._seen: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._saved: dict[str, float] = {}  # steps by the uid of the Job
        self._gangs: defaultdict[str, dict[str, Gang]] = defaultdict(dict)  # by Job and epoch

    def see(self, job: Json) -> None:
        uid = pods.uid_of(job)
        self._jobs[uid] = job
        self._seen[uid].set()
        for epoch, gang in self._gangs[uid].items():
            self._update(uid, epoch, gang)

    def job_seen(self, pod: Json) -> asyncio.Event:
        """Is set when the pod's Job is known, at once for a pod without one."""
        job = pods.job_of(pod)
        if not job:
            self._seen[job].set()
        return self._seen[job]

    def notes(self, pod: Json) -> Mapping[str, str]:
        """The annotations of the pod's Job and its own."""
        job = self._jobs.get(pods.job_of(pod))
        return {**({} if job is None else pods.notes_of(job)), **pods.notes_of(pod)}

    def join(self, pod: Json, node: Node) -> Gang:
        """The pod runs: its gang, which advances if it is whole now."""
        job, epoch = _gang_of(pod)
        if epoch not in self._gangs[job]:
            notes, saved = self.notes(pod), self._saved.get(job, 0.0)
            self._gangs[job][epoch] = Gang(float(notes[STEPS]), speeds(notes[SPEED]), saved)
        gang = self._gangs[job][epoch]
        if not gang.members and self._saved.get(job):
            gang.resume_seconds = self._resume_seconds
        gang.members[pods.uid_of(pod)] = node
        self._update(job, epoch, gang)
        return gang

    def leave(self, pod: Json) -> None:
        """The pod has ended or is told to stop: its gang no longer advances."""
        job, epoch = _gang_of(pod)
        gang = self._gangs[job][epoch]
        gang.members.pop(pods.uid_of(pod), None)
        self._update(job, epoch, gang)

    def save(self, pod: Json) -> float:
        """A checkpoint of the pod's gang; the steps that it has."""
        job, epoch = _gang_of(pod)
        gang = self._gangs[job][epoch]
        gang.settle()
        self._saved[job] = max(gang.steps, self._saved.get(job, 0.0))
        return gang.steps

    def nodes_changed(self) -> None:
        """A node is cut off, or there again."""
        for job, gangs in self._gangs.items():
            for epoch, gang in gangs.items():
                self._update(job, epoch, gang)

    def _update(self, job: str, epoch: str, gang: Gang) -> None:
        is_whole = len(gang.members) == self._size(job, epoch)
        advances = is_whole and all(node.is_served.is_set() for node in gang.members.values())
        gang.advance(self._work_speed if advances else 0.0)

    def _size(self, job: str, epoch: str) -> int:
        """How many pods the gang has; 0 while the Job as last seen is of another epoch."""
        spec = self._jobs[job]["spec"] if job in self._jobs else {}
        of_template = pods.notes_of(spec.get("template") or {"metadata": {}}).get(EPOCH, epoch)
        return int(spec.get("parallelism", 1)) if of_template == epoch else 0


def _gang_of(pod: Json) -> tuple[str, str]:
    return pods.job_of(pod), pods.notes_of(pod).get(EPOCH, "")


@dataclass
class Gang:
    steps_total: float
    speeds: Mapping[str, float]
    steps: float
    resume_seconds: float = 0.0  # that are left
    members: dict[str, Node] = field(default_factory=dict)
    is_done: asyncio.Event = field(default_factory=asyncio.Event)
    _speed: float = 0.0
    _settled_at: float = 0.0
    _end: asyncio.TimerHandle | None = None

    def advance(self, factor: float) -> None:
        """From now on with this factor to its speed; 0: it stands still."""
        self.settle()
        if self._end is not None:
            self._end.cancel()
        self._speed = factor * min((speed_on(self.speeds, node.product) for node in self.members.values()), default=0.0)
        if self._speed > 0.0:
            seconds = self.resume_seconds + (self.steps_total - self.steps) / self._speed
            self._end = asyncio.get_running_loop().call_later(seconds, self._finish)

    def settle(self) -> None:
        """Brings the steps up to now."""
        now = asyncio.get_running_loop().time()
        if self._speed > 0.0:
            seconds = now - self._settled_at
            resuming = min(seconds, self.resume_seconds)
            self.resume_seconds -= resuming
            self.steps = min(self.steps_total, self.steps + self._speed * (seconds - resuming))
        self._settled_at = now

    def _finish(self) -> None:
        self.steps = self.steps_total
        self._speed = 0.0
        self.is_done.set()


def speeds(text: str) -> dict[str, float]:
    """Steps per second by GPU type; a number alone is for all types."""
    found = {}
    for part in filter(None, (each.strip() for each in text.split(";"))):
        accelerator, _, number = part.rpartition("=")
        found[accelerator.strip()] = float(number)
    return found


def speed_on(speeds: Mapping[str, float], product: str) -> float:
    """Of the longest name that is part of the product's; 0 if there is none."""
    matching = [accelerator for accelerator in speeds if accelerator.lower() in product.lower()]
    return speeds[max(matching, key=len)] if matching else 0.0
