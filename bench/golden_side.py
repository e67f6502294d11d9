"""One side of the golden comparison: runs the named golden runs with the `horae` that is on the path.

`python -m bench.golden_side [PART]` prints one JSON object per run whose name contains PART, with every decision in
order and its digest. Nothing else may be printed to the standard output.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
import traceback
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import horae
from bench.golden_api import Cluster, gpus_by_node, kind, simulate, without_borrowing
from bench.golden_runs import RUNS, GoldenRun, Input

EVENTS_MAX = 300_000  # beyond that a run is taken to hang
EVENT_NAMES = {
    "JobSubmitted": "submitted",
    "JobCancelled": "cancelled",
    "NodeChanged": "node_changes",
    "PolicyChanged": "policy_changes",
    "ReservationsChanged": "reservation_changes",
    "TenantsChanged": "reservation_changes",
    "SpeedRevised": "speeds_revised",
    "CurveRevised": "curves_revised",
    "BidGiven": "bids",
    "Surveyed": "surveys",
}


class Vacuous(Exception):
    """A run does not contain what its name says, or does not come to an end."""


@dataclass
class Outcome:
    """What came of one run."""

    name: str
    digest: str = ""
    seconds: float = 0.0
    error: str = ""
    tally: dict[str, int] = field(default_factory=dict)
    decisions: list[list[str]] = field(default_factory=list)  # kind, time, jobs, what


class Tally:
    """An observer of a run: all decisions in order, and counts of what happened."""

    def __init__(self, cluster: Cluster) -> None:
        self.decisions: list[list[str]] = []
        self.counts: Counter[str] = Counter()
        self._cluster = cluster
        self._types = {node.name: node.accelerator for node in cluster.nodes}
        self._now = 0.0
        self._events = 0
        self._jobs: dict[str, Any] = {}
        self._ended: set[tuple[str, int]] = set()  # leases whose end was told
        self._former: dict[str, tuple[str, int]] = {}  # by job: GPU type and GPUs of its latest start
        self._used: dict[str, set[str]] = {"types": set(), "tenants": set()}

    def reacted(self, event: Any, reaction: Any) -> None:
        self._now = max(self._now, event.at)
        self._events += 1
        name = kind(event)
        if name in EVENT_NAMES:
            self.counts[EVENT_NAMES[name]] += 1
        if name == "JobSubmitted":
            self._jobs[event.job.id] = event.job
        elif name == "JobEnded" and (event.job_id, event.epoch) not in self._ended:  # it may be told twice
            self._ended.add((event.job_id, event.epoch))
            self.counts[event.ending.value] += 1
            self._note("end", event.job_id, event.ending.value)
        for command in reaction.commands:
            if kind(command) == "Start":
                self._start(command)
            elif kind(command) == "Stop":
                self.counts["stops"] += 1
                self._note("stop", command.job_id, "")

    def _note(self, what: str, job_ids: str, detail: str) -> None:
        self.decisions.append([what, repr(float(self._now)), job_ids, detail])

    def _start(self, command: Any) -> None:
        gpus = gpus_by_node(self._cluster, command.gpus)
        steps = " ".join(repr(round(float(each), 6)) for each in command.steps_done)
        places = " ".join(f"{node}:{index}" for node, index in gpus)
        self._note("start", "+".join(command.job_ids), f"on {places} from {steps}")
        shape = (self._types[gpus[0][0]], len(gpus))
        self.counts["starts"] += 1
        self.counts["pairs"] += len(command.job_ids) > 1
        self.counts["spread"] += len({node for node, _ in gpus}) > 1
        for job_id, done in zip(command.job_ids, command.steps_done, strict=True):
            job = self._jobs[job_id]
            former = self._former.get(job_id, shape)
            self.counts["resumed"] += done > 0
            self.counts["moved"] += former[0] != shape[0]
            self.counts["resized"] += former[1] != shape[1]
            self.counts["guests"] += job.priority < 0
            self.counts["unknown"] += job.steps_total is None
            self._former[job_id] = shape
            self._used["tenants"].add(job.tenant)
        self._used["types"].add(shape[0])

    def is_endless(self) -> bool:
        return self._events > EVENTS_MAX

    def tally(self) -> dict[str, int]:
        return {**dict(sorted(self.counts.items())), **{name: len(each) for name, each in self._used.items()}}


def digest_of(decisions: list[list[str]]) -> str:
    return hashlib.sha256("\n".join("\t".join(each) for each in decisions).encode()).hexdigest()


def check(tally: Mapping[str, int], at_least: Mapping[str, int]) -> None:
    short = [
        f"{tally.get(name, 0)} {name} of {wanted}" for name, wanted in at_least.items() if tally.get(name, 0) < wanted
    ]
    if short:
        raise Vacuous(f"too little happens: {', '.join(short)}")


def run_one(run: GoldenRun) -> Outcome:
    began = time.process_time()
    outcome = Outcome(run.name)
    watch: Tally | None = None
    try:
        given = run.make()
        watch = Tally(given.setup.cluster)
        _simulate(given, watch)
        check(watch.tally(), run.at_least)
    except Exception as error:  # reported with the run, so that the others go on
        where = traceback.extract_tb(error.__traceback__)[-1]
        outcome.error = f"{type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})"
    if watch is not None:
        outcome.decisions, outcome.tally = watch.decisions, watch.tally()
        outcome.digest = digest_of(watch.decisions)
    outcome.seconds = time.process_time() - began
    return outcome


def _simulate(given: Input, watch: Tally) -> None:
    done = simulate(
        without_borrowing(given.setup), given.arrivals, given.outside,
        checkpoint_seconds=given.checkpoint_seconds, observers=[watch], searches=given.searches,
        wrap=given.wrap, enough=watch.is_endless,
    )  # fmt: skip
    watch.counts["refused"] = len(done.refused)
    if watch.is_endless():
        raise Vacuous(f"the run did not end within {EVENTS_MAX:,} events")
    if done.unfinished:
        raise Vacuous(f"{len(done.unfinished)} jobs never finish, the first is {min(done.unfinished)!r}")


def main() -> None:
    chosen = [run for run in RUNS if all(part in run.name for part in sys.argv[1:])]
    print(json.dumps({"horae": str(Path(horae.__file__).parent), "runs": len(chosen)}), flush=True)
    for run in chosen:
        print(json.dumps(asdict(run_one(run))), flush=True)


if __name__ == "__main__":
    main()
