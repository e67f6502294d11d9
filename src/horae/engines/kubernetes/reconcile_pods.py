"""What to do next for a gang of pods that no Job stands for: a function of its pods, and of the lease that is wanted.

Such pods cannot be suspended. They are bound when all of them are there; a lease that must end deletes them, and what
their owner makes instead is a new gang. A pod that ends by itself leaves the others running, and a new one that takes
its part in the gang gets its GPUs, as with HiveD.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from horae.engines.kubernetes.actions import Action, Bind, Delete, ForceDelete
from horae.engines.kubernetes.members import CellSizes, Place, places_of_members
from horae.engines.kubernetes.objects import LeaseNote, PodObject
from horae.engines.kubernetes.reconcile import Report, Step, Wanted, cells_of, failure_of, rank_of
from horae.model.events import Ending, Phase


class Member(NamedTuple):
    pod: PodObject
    gpus: int  # that it asks for


class Group(NamedTuple):
    """The pods of a gang, and what is known about them besides."""

    sizes: tuple[int, ...]  # GPUs of each member
    pods: Sequence[Member] = ()
    crew: frozenset[str] = frozenset()  # uids of the pods that were submitted together
    lease: LeaseNote | None = None  # under which pods were bound, or may have been
    tried: Mapping[str, Place] = MappingProxyType({})  # by uid: pods that were bound under it, or may have been
    bound: frozenset[str] = frozenset()  # of these, the ones that were
    over: Mapping[Place, PodObject | None] = MappingProxyType({})  # the pods that had these GPUs last; None: deleted
    lost_nodes: frozenset[str] = frozenset()

    @property
    def holders(self) -> list[Member]:
        """Pods that may use GPUs of the lease."""
        return [each for each in self.pods if each.pod.uid in self.tried and not each.pod.is_terminal]

    @property
    def waiting(self) -> list[Member]:
        """Pods that could be bound."""
        return [each for each in self.pods if is_waiting(each.pod)]


def is_waiting(pod: PodObject) -> bool:
    return not (pod.node or pod.is_deleting or pod.is_terminal)


def reconcile_pods(group: Group, wanted: Wanted, term: int, cell_sizes: CellSizes) -> Step:
    if group.lease is None:
        return _waiting(group, wanted, term, cell_sizes)
    if not group.holders:
        return Step(reports=(_end_of(group, group.lease, wanted),))
    if _must_end(group.lease, wanted):
        return Step(_deletions(group))
    return _active(group, group.lease, term, cell_sizes)


# A gang that waits


def _waiting(group: Group, wanted: Wanted, term: int, cell_sizes: CellSizes) -> Step:
    reports: tuple[Report, ...] = ()
    if wanted.stopped >= 0:
        reports = (Report(wanted.stopped, None, Ending.STOPPED),)
    lease = wanted.lease
    if lease is None or lease.epoch <= wanted.stopped:
        return Step(reports=reports)
    crew = [each for each in group.waiting if each.pod.uid in group.crew]
    if len(crew) != len(group.sizes):
        message = "a pod of the gang was deleted before it was bound"
        return Step(reports=(*reports, Report(lease.epoch, None, Ending.LOST, message=message)))
    crew.sort(key=_order)
    places = places_of_members(lease.gpus, [each.gpus for each in crew], cell_sizes)
    if places is None:
        message = "the pods of the gang do not fit the GPUs of its lease"
        return Step(reports=(*reports, Report(lease.epoch, None, Ending.LOST, message=message)))
    pairs = zip(crew, places, strict=True)
    return Step(tuple(_bind(each.pod, lease, place, term) for each, place in pairs), reports)


# A gang with GPUs


def _must_end(lease: LeaseNote, wanted: Wanted) -> bool:
    return lease.epoch <= wanted.stopped or wanted.lease is None or wanted.lease.epoch > lease.epoch


def _deletions(group: Group) -> tuple[Action, ...]:
    pods = [each.pod for each in group.holders if not each.pod.is_deleting]
    return (*map(Delete, pods), *_remove_lost(group))


def _remove_lost(group: Group) -> tuple[Action, ...]:
    """Pods that must go, and whose kubelet cannot say that they have."""
    pods = (each.pod for each in group.holders)
    return tuple(ForceDelete(pod) for pod in pods if pod.is_deleting and pod.node in group.lost_nodes)


def _active(group: Group, lease: LeaseNote, term: int, cell_sizes: CellSizes) -> Step:
    """Binds again what was perhaps not bound, and pods that take the parts of others that have left."""
    taken = {each.pod.uid: group.tried[each.pod.uid] for each in group.holders}
    pairs = [(each.pod, taken[each.pod.uid]) for each in group.waiting if each.pod.uid in taken.keys() - group.bound]
    pairs += _joining(group, lease, list(taken.values()), cell_sizes)
    bindings = tuple(_bind(pod, lease, place, term) for pod, place in pairs)
    phase = Phase.STARTING if bindings else Phase.RUNNING  # parts of pods that have left are free for others
    return Step((*bindings, *_remove_lost(group)), (Report(lease.epoch, phase),))


def _joining(
    group: Group, lease: LeaseNote, taken: Sequence[Place], cell_sizes: CellSizes
) -> list[tuple[PodObject, Place]]:
    sizes = list(group.sizes)
    for place in taken:
        if len(place) in sizes:
            sizes.remove(len(place))
    used = {gpu for place in taken for gpu in place}
    free = places_of_members([gpu for gpu in lease.gpus if gpu not in used], sizes, cell_sizes) or []
    found: list[tuple[PodObject, Place]] = []
    for each in sorted(group.waiting, key=_order):
        fitting = [place for place in free if len(place) == each.gpus]
        if fitting and each.pod.uid not in group.tried:
            free.remove(fitting[0])
            found.append((each.pod, fitting[0]))
    return found


def _end_of(group: Group, lease: LeaseNote, wanted: Wanted) -> Report:
    """No pod is left: how the lease has ended, by the pods that were the last on their GPUs."""
    last = list(group.over.values())
    if all(pod is not None and pod.phase == "Succeeded" for pod in last):
        return Report(lease.epoch, None, Ending.FINISHED)
    if _must_end(lease, wanted):
        return Report(lease.epoch, None, Ending.STOPPED)
    ends = [end for pod in last if pod is not None and (end := failure_of(lease.epoch, pod)) is not None]
    own = [end for end in ends if end.ending is Ending.FAILED]
    end = next(iter([*own, *ends]), None)
    if end is None:
        return Report(lease.epoch, None, Ending.STOPPED, message="its pods were deleted")
    return Report(lease.epoch, None, end.ending, message=end.message)


def _bind(pod: PodObject, lease: LeaseNote, place: Place, term: int) -> Bind:
    return Bind(pod, term, lease.epoch, place, cells_of(lease, place))


def _order(member: Member) -> tuple[int, int, str]:
    return (-member.gpus, *rank_of(member.pod))
