"""Checks what the API server accepts and no scheduler may do; what it finds goes to a file, one JSON object per line.

It looks at pods as the API server has them, in the order of its changes: a scheduler that has seen the end of a pod may
give its GPUs away.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from kubernetes.client import Json
from kubernetes.kubelets import pods
from kubernetes.kubelets.statuses import now


class Placed(NamedTuple):
    """A pod of Horae on a node that has not ended."""

    name: str
    node: str
    job: str
    epoch: str
    gpus: frozenset[int]
    is_running: bool


class Checker:
    def __init__(self, violations: Path) -> None:
        self._file = violations.open("a", buffering=1)
        self._placed: dict[str, Placed] = {}
        self._nodes: defaultdict[str, set[str]] = defaultdict(set)
        self._jobs: defaultdict[str, set[str]] = defaultdict(set)
        self._reported: set[tuple[str, frozenset[str]]] = set()

    def apply(self, gone: Sequence[Json], there: Sequence[Json]) -> None:
        """All changes that were seen at once are applied before any check: their order is not known."""
        for pod in gone:
            self._replace(pods.uid_of(pod), None)
        changed = [uid for pod in there if self._replace(uid := pods.uid_of(pod), _placed(pod))]
        for uid in changed:
            placed = self._placed[uid]
            self._compare(uid, self._nodes[placed.node], _share_gpus)
            self._compare(uid, self._jobs[placed.job], _two_epochs)
            self._compare(uid, self._jobs[placed.job], _two_epochs_running)

    def _replace(self, uid: str, placed: Placed | None) -> bool:
        """Whether there is something new to check."""
        before = self._placed.pop(uid, None)
        if before is not None:
            self._nodes[before.node].discard(uid)
            self._jobs[before.job].discard(uid)
        if placed is None:
            return False
        self._placed[uid] = placed
        self._nodes[placed.node].add(uid)
        if placed.job:
            self._jobs[placed.job].add(uid)
        return placed != before

    def _compare(self, uid: str, others: set[str], violation: Callable[[Placed, Placed], Json | None]) -> None:
        for other in others - {uid}:
            found = violation(self._placed[uid], self._placed[other])
            if found is not None and (key := (str(found["kind"]), frozenset({uid, other}))) not in self._reported:
                self._reported.add(key)
                two = [self._placed[other]._asdict(), self._placed[uid]._asdict()]
                self._file.write(json.dumps({**found, "at": now(), "pods": two}, default=sorted) + "\n")


def _placed(pod: Json) -> Placed | None:
    notes = pods.notes_of(pod)
    if pods.is_terminal(pod) or not pods.node_of(pod) or "horae.io/epoch" not in notes:
        return None
    numbers = notes.get("horae.io/gpus", "").split(",")
    return Placed(
        name=pods.name_of(pod),
        node=pods.node_of(pod),
        job=pods.job_of(pod),
        epoch=notes["horae.io/epoch"],
        gpus=frozenset(int(number) for number in numbers if number),
        is_running=pods.phase_of(pod) == "Running",
    )


def _share_gpus(one: Placed, other: Placed) -> Json | None:
    shared = one.gpus & other.gpus
    return {"kind": "gpus of two pods", "node": one.node, "gpus": sorted(shared)} if shared else None


def _two_epochs(one: Placed, other: Placed) -> Json | None:
    return {"kind": "two epochs of a Job"} if one.epoch != other.epoch else None


def _two_epochs_running(one: Placed, other: Placed) -> Json | None:
    both = one.is_running and other.is_running
    return {"kind": "two epochs of a Job are running"} if both and one.epoch != other.epoch else None
