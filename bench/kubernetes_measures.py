"""What is measured of gangs on Kubernetes, whichever scheduler binds them: from the times of their pods and Jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from statistics import fmean, median, quantiles

PARTIAL_SECONDS = 2.0  # a shorter time is that of the bindings themselves


@dataclass
class PodTimes:
    """When a pod was bound, when it was told to stop, and when it had ended; infinity: never."""

    bound: float = inf
    stopped: float = inf
    ended: float = inf
    has_succeeded: bool = False

    def is_member(self, at: float) -> bool:
        """Whether the gang has this pod: it is bound, or has done its work."""
        return self.bound <= at and (self.has_succeeded or at < min(self.stopped, self.ended))

    def holds_gpus(self, at: float) -> bool:
        return self.bound <= at < self.ended


@dataclass
class GangTimes:
    tenant: str
    size: int  # in pods
    gpus_per_pod: int
    created: float
    completed: float = inf
    pods: dict[str, PodTimes] = field(default_factory=dict)  # by uid, of all of its starts

    @property
    def gpus(self) -> int:
        return self.size * self.gpus_per_pod

    def first_bound(self) -> float:
        return min((pod.bound for pod in self.pods.values()), default=inf)

    def all_bound(self) -> float:
        return next((at for at, members in self._members() if members == self.size), inf)

    def partial(self) -> list[tuple[float, int]]:
        """The intervals in which some of its pods were bound and others were not: seconds, and GPU-seconds held."""
        found: list[tuple[float, int, float]] = []  # begin, pods, end
        changes = [*self._members(), (self.completed, 0)]
        for (begin, members), (end, _) in pairwise(changes):
            if 0 < members < self.size and end > begin:
                found.append((begin, members, end))
        return _merged(found, self.gpus_per_pod)

    def starts(self) -> int:
        """How often all of its pods were bound."""
        counts = [members for _, members in self._members()]
        return sum(before < self.size == now for before, now in pairwise([0, *counts]))

    def members(self, at: float) -> int:
        return sum(pod.is_member(at) for pod in self.pods.values())

    def _members(self) -> list[tuple[float, int]]:
        """The number of its bound pods after each change."""
        times = {time for pod in self.pods.values() for time in (pod.bound, pod.stopped, pod.ended)}
        return [(at, self.members(at)) for at in sorted(times) if at < self.completed]


def _merged(parts: Iterable[tuple[float, int, float]], gpus_per_pod: int) -> list[tuple[float, int]]:
    """Neighbouring parts are one interval."""
    merged: list[tuple[float, float, float]] = []  # begin, end, GPU-seconds
    for begin, pods, end in parts:
        used = pods * gpus_per_pod * (end - begin)
        if merged and merged[-1][1] == begin:
            merged[-1] = (merged[-1][0], end, merged[-1][2] + used)
        else:
            merged.append((begin, end, used))
    return [(end - begin, round(used)) for begin, end, used in merged]


def measure(gangs: Sequence[GangTimes], gpus: int) -> dict[str, float]:
    """All figures of one run in which every gang has completed."""
    first = [gang.first_bound() - gang.created for gang in gangs]
    whole = [gang.all_bound() - gang.created for gang in gangs]
    partial = [each for gang in gangs for each in gang.partial() if each[0] > PARTIAL_SECONDS]
    tenants = sorted({gang.tenant for gang in gangs})
    ratios = shares_received(gangs, gpus)
    return {
        "first bind, median": median(first),
        "first bind, p90": quantiles(first, n=10)[-1],
        "all bound, median": median(whole),
        "all bound, p90": quantiles(whole, n=10)[-1],
        "makespan": max(gang.completed for gang in gangs) - min(gang.created for gang in gangs),
        "completion, mean": _completion(gangs),
        **{f"completion, {name}": _completion(gang for gang in gangs if gang.tenant == name) for name in tenants},
        "least share": min(ratios.values(), default=inf),
        "starts per gang": fmean(gang.starts() for gang in gangs),
        "partial gangs": float(len(partial)),
        "partial GPU-seconds": float(sum(used for _, used in partial)),
    }


def standstill(gangs: Sequence[GangTimes], at: float) -> str:
    """What is there when a run does not come to its end."""
    left = [gang for gang in gangs if gang.completed == inf]
    partly = [members for gang in left if 0 < (members := gang.members(at)) < gang.size]
    return f"did not end: {len(left)} gangs are left, {len(partly)} of them partly bound, with {sum(partly)} pods"


def _completion(gangs: Iterable[GangTimes]) -> float:
    return fmean(gang.completed - gang.created for gang in gangs)


def shares_received(gangs: Sequence[GangTimes], gpus: int) -> dict[str, float]:
    """By tenant: the GPU-seconds that its pods held while more GPUs were asked for than there are, over those of an
    equal share. A tenant is entitled to no more than its unfinished gangs ask for; what it does not need is divided
    among the others."""
    held, entitled = dict[str, float](), dict[str, float]()
    for begin, end in pairwise(_times(gangs)):
        at = (begin + end) / 2  # nothing changes within
        asked = _by_tenant(gangs, lambda gang: gang.gpus if gang.created <= at < gang.completed else 0)  # noqa: B023
        if sum(asked.values()) <= gpus:
            continue
        now = _by_tenant(gangs, lambda gang: _held(gang, at))  # noqa: B023
        for tenant, share in equal_shares(asked, gpus).items():
            entitled[tenant] = entitled.get(tenant, 0.0) + share * (end - begin)
            held[tenant] = held.get(tenant, 0.0) + now[tenant] * (end - begin)
    return {tenant: held[tenant] / share for tenant, share in entitled.items() if share > 0.0}


def equal_shares(asked: Mapping[str, float], gpus: float) -> dict[str, float]:
    """Water filling: equal parts, but for tenants that ask for less."""
    shares, left = dict[str, float](), gpus
    for index, tenant in enumerate(sorted(asked, key=lambda name: asked[name])):
        shares[tenant] = min(asked[tenant], left / (len(asked) - index))
        left -= shares[tenant]
    return shares


def _held(gang: GangTimes, at: float) -> int:
    return sum(pod.holds_gpus(at) for pod in gang.pods.values()) * gang.gpus_per_pod


def _by_tenant(gangs: Sequence[GangTimes], gpus_of: Callable[[GangTimes], int]) -> dict[str, float]:
    found = dict[str, float]()
    for gang in gangs:
        found[gang.tenant] = found.get(gang.tenant, 0.0) + gpus_of(gang)
    return found


def _times(gangs: Sequence[GangTimes]) -> list[float]:
    """Of all changes."""
    times = {time for gang in gangs for time in (gang.created, gang.completed)}
    times |= {time for gang in gangs for pod in gang.pods.values() for time in (pod.bound, pod.ended)}
    return sorted(time for time in times if time < inf)
