"""What to do next for one gang: a function of what the scheduler wants, and of the Job and its pods as last seen.

It remembers nothing, so that lost events, restarts and changes by others need no cases of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from types import MappingProxyType
from typing import NamedTuple

from horae.engines.kubernetes import names
from horae.engines.kubernetes.actions import (
    Action,
    Annotate,
    Bind,
    ClearStart,
    ForceDelete,
    NoteEnd,
    Suspend,
    Unsuspend,
)
from horae.engines.kubernetes.objects import EndNote, JobObject, LeaseNote, PodObject
from horae.model.cluster import Gpu
from horae.model.events import Ending, Phase

FALSE_STARTS_MAX = 3  # an image that cannot be pulled on several nodes is probably the job's own fault
_REJECTED = ("OutOf", "UnexpectedAdmissionError", "NodeAffinity", "NodeShutdown", "Evicted", "Preempting", "Terminated")


class Wanted(NamedTuple):
    """What the scheduler has last said about a job."""

    lease: LeaseNote | None = None  # that it shall have
    stopped: int = -1  # no lease of this epoch or before shall run


class Pods(NamedTuple):
    """The pods of a Job, and what is known about them besides."""

    all: Sequence[PodObject] = ()
    placed: Mapping[str, tuple[Gpu, ...]] = MappingProxyType({})  # by uid, of the present lease: those that were bound
    saved_steps: float = 0.0  # that any of its pods has reported, also one that is gone
    lost_nodes: frozenset[str] = frozenset()  # that do not exist, or are out of service

    @property
    def live(self) -> list[PodObject]:
        """Those that have not ended; a suspension leaves the others where they are."""
        return [pod for pod in self.all if not pod.is_terminal]


class Report(NamedTuple):
    """What is to be told to the scheduler: a lease is in a phase, or has ended."""

    epoch: int
    phase: Phase | None = None
    ending: Ending | None = None
    steps: float = 0.0
    message: str = ""


class Step(NamedTuple):
    actions: tuple[Action, ...] = ()
    reports: tuple[Report, ...] = ()
    remark: str = ""  # for the owner of the Job: something that was undone


def reconcile(job: JobObject, pods: Pods, wanted: Wanted, term: int) -> Step:
    if job.is_over:
        return _over(job, wanted)
    if job.is_deleting:
        return _deleted(job, pods)
    if not job.suspend:
        return _active(job, pods, wanted, term)
    return _idle(job, pods, wanted)


# A Job that has ended


def _over(job: JobObject, wanted: Wanted) -> Step:
    """The Job is complete or has failed: its last lease, and one that was granted too late, have ended that way."""
    ending = Ending.FINISHED if job.finished else Ending.FAILED
    epochs = {each.epoch for each in (job.lease, wanted.lease) if each is not None} | ({wanted.stopped} - {-1})
    reports = tuple(Report(epoch, None, ending, job.saved_steps, job.failure) for epoch in sorted(epochs))
    return Step(reports=reports)


def _deleted(job: JobObject, pods: Pods) -> Step:
    """The Job goes, with its pods; its lease ends with the last of them."""
    if pods.live or job.lease is None:
        return Step(_remove_lost(pods))
    return Step(reports=(Report(job.lease.epoch, None, Ending.STOPPED, job.saved_steps, "its Job was deleted"),))


# A Job with pods


def _active(job: JobObject, pods: Pods, wanted: Wanted, term: int) -> Step:
    lease = job.lease
    if lease is None or lease.epoch <= job.ended.epoch:
        remark = "Horae starts the pods of its Jobs itself: this Job was unsuspended, and is suspended again"
        return Step((Suspend(job, None),), remark=remark)
    if _has_finished(job, lease, pods):  # the job controller says so a second later
        return Step(reports=(Report(lease.epoch, None, Ending.FINISHED, _steps(job, pods)),))
    end = _end_of(job, lease, pods, wanted) or _misfit(lease, job, pods)
    if end is not None:
        return Step((Suspend(job, end),))
    mine = [pod for pod in pods.all if pod.epoch == lease.epoch]
    places = places_of(lease.gpus, job.pod_gpus)
    if len(mine) + job.succeeded < len(places):
        return Step(reports=(Report(lease.epoch, Phase.QUEUED, steps=_steps(job, pods)),))
    taken = set(pods.placed.values())
    free = [gpus for gpus in places if gpus not in taken]
    unbound = sorted((pod for pod in mine if not pod.node and pod.uid not in pods.placed), key=rank_of)
    bindings = tuple(
        Bind(pod, term, lease.epoch, gpus, cells_of(lease, gpus))
        for pod, gpus in zip(unbound, free, strict=False)  # a Job may have more pods than its lease: they wait
    )
    bound = [pod for pod in mine if pod.uid in pods.placed]
    is_placed = len(bound) >= min(len(mine), len(places))
    phase = Phase.RUNNING if is_placed and all(map(_runs, bound)) else Phase.STARTING
    return Step(bindings, (Report(lease.epoch, phase, steps=_steps(job, pods)),))


def _has_finished(job: JobObject, lease: LeaseNote, pods: Pods) -> bool:
    """Whether all pods of the lease have succeeded."""
    done = sum(pod.epoch == lease.epoch and pod.phase == "Succeeded" for pod in pods.all)
    return done == len(places_of(lease.gpus, job.pod_gpus))


def _end_of(job: JobObject, lease: LeaseNote, pods: Pods, wanted: Wanted) -> EndNote | None:
    """How the lease must end now, if it must."""
    superseded = wanted.lease is None or wanted.lease.epoch > lease.epoch
    if lease.epoch <= wanted.stopped or superseded:
        return EndNote(lease.epoch, Ending.STOPPED)
    present = {each.uid for each in pods.all}
    gone = [gpus for uid, gpus in pods.placed.items() if uid not in present]
    if gone:
        return EndNote(lease.epoch, Ending.LOST, f"a pod on {gone[0][0].node} was deleted")
    ends = [end for pod in pods.all if pod.epoch == lease.epoch and (end := failure_of(lease.epoch, pod)) is not None]
    own = [end for end in ends if end.ending is Ending.FAILED]
    first = next(iter([*own, *ends]), None)  # if one pod fails, others are often lost with it
    return None if first is None else _again(first, job.ended)


def _again(end: EndNote, last: EndNote) -> EndNote:
    """The end, as a failure of the job if its containers could not start several times in a row."""
    if not end.false_starts:
        return end
    count = last.false_starts + 1
    return end._replace(false_starts=count, ending=Ending.FAILED if count >= FALSE_STARTS_MAX else end.ending)


def _misfit(lease: LeaseNote, job: JobObject, pods: Pods) -> EndNote | None:
    """How a lease ends whose GPUs are not what the pods ask for: the Job was edited since it was submitted."""
    sizes = {job.pod_gpus, *(pod.resource_gpus for pod in pods.all if pod.epoch == lease.epoch)}
    if sizes == {len(gpus) for gpus in places_of(lease.gpus, job.pod_gpus)}:
        return None
    return EndNote(lease.epoch, Ending.FAILED, "its pods ask for another number of GPUs than when it was submitted")


def failure_of(epoch: int, pod: PodObject) -> EndNote | None:
    """How a lease ends because of one of its pods."""
    which = f"pod {pod.name}" + (f" on {pod.node}" if pod.node else "")
    if pod.phase == "Failed" and (pod.reason.startswith(_REJECTED) or pod.is_disrupted or pod.is_deleting):
        return EndNote(epoch, Ending.LOST, f"{which}: {pod.reason or 'disrupted'} {pod.message}".strip())
    if pod.phase == "Failed":
        code = "failed" if pod.exit_code is None else f"exited with {pod.exit_code}"
        return EndNote(epoch, Ending.FAILED, f"{which} {code}")
    if pod.is_deleting and pod.phase != "Succeeded":
        return EndNote(epoch, Ending.LOST, f"{which} was deleted")
    if pod.trouble:
        return EndNote(epoch, Ending.LOST, f"{which} cannot start: {pod.trouble}", false_starts=1)
    return None


def _runs(pod: PodObject) -> bool:
    return pod.phase == "Succeeded" or (pod.phase == "Running" and pod.is_ready)


def rank_of(pod: PodObject) -> tuple[int, str]:
    return pod.rank, pod.name


# A Job without pods, or whose pods are about to go


def _idle(job: JobObject, pods: Pods, wanted: Wanted) -> Step:
    if pods.live:
        return Step(_remove_lost(pods))
    steps = _steps(job, pods)
    if steps > job.saved_steps:  # before the end is reported, so that it is not forgotten
        return Step((Annotate(job, {names.SAVED_STEPS: repr(steps)}),))
    lease, ended = job.lease, job.ended
    reports: list[Report] = []
    if lease is not None and lease.epoch > ended.epoch:
        return Step((NoteEnd(job, EndNote(lease.epoch, Ending.LOST, "its Job was suspended by another client")),))
    if ended.epoch >= 0:
        reports.append(Report(ended.epoch, None, ended.ending, job.saved_steps, ended.message))
    if wanted.stopped > ended.epoch:
        return Step((NoteEnd(job, EndNote(wanted.stopped, Ending.STOPPED)),), tuple(reports))
    if wanted.lease is None or wanted.lease.epoch <= ended.epoch or not job.is_suspended or job.active:
        return Step(reports=tuple(reports))
    misfit = _misfit(wanted.lease, job, pods)
    if misfit is not None:
        return Step((NoteEnd(job, misfit),), tuple(reports))
    if job.was_started:
        return Step((ClearStart(job),), tuple(reports))
    count = len(places_of(wanted.lease.gpus, job.pod_gpus))
    return Step((Unsuspend(job, wanted.lease, count),), tuple(reports))


def _remove_lost(pods: Pods) -> tuple[Action, ...]:
    """Pods that must go, and whose kubelet cannot say that they have."""
    return tuple(ForceDelete(pod) for pod in pods.live if pod.is_deleting and pod.node in pods.lost_nodes)


# Places


def places_of(gpus: Sequence[Gpu], pod_gpus: int) -> list[tuple[Gpu, ...]]:
    """The GPUs of each pod, in the order of the nodes of the lease; no pod spans nodes."""
    order = {node: index for index, node in enumerate(dict.fromkeys(gpu.node for gpu in gpus))}
    ordered = sorted(gpus, key=lambda gpu: (order[gpu.node], gpu.number))
    places: list[tuple[Gpu, ...]] = []
    size = max(pod_gpus, 1)
    for _, group in groupby(ordered, key=lambda gpu: gpu.node):
        on_node = tuple(group)
        places += [on_node[start : start + size] for start in range(0, len(on_node), size)]
    return places


def cells_of(lease: LeaseNote, gpus: Sequence[Gpu]) -> tuple[str, ...]:
    if not lease.cells:
        return ()
    levels = dict(zip(lease.gpus, lease.cells, strict=True))
    return tuple(levels[gpu] for gpu in gpus)


def _steps(job: JobObject, pods: Pods) -> float:
    return max([job.saved_steps, pods.saved_steps, *(pod.saved_steps for pod in pods.all)])
