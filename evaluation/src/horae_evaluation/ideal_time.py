"""Measures T_id: each app of a run is run again, alone on the GPUs to which it was entitled.

The formulas of T_id know how much work an app has, not in which order it can be done: a search whose last trial takes a
day cannot end within an hour, however many GPUs it has. Here the same app runs through the same scheduler and engine on
one private node, with as many GPUs as its share of the cluster. So `rho_measured` above 1 means exactly that it would
have been better off alone.

A share that is smaller than the app's largest gang is a fraction of the time of that many GPUs: the app runs on them,
and the time it takes is stretched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from horae.engines.search.engine import first_jobs
from horae.experiments.simulate import simulate
from horae.model.arrays import Floats
from horae.model.cluster import Cluster, Node
from horae.model.jobs import Arrival
from horae.model.searches import Search
from horae.model.setup import PoolSpec, Setup
from horae.model.shapes import Option, Shape
from horae.reports.rho import AppFairness
from horae.reports.run_log import RunLog


@dataclass
class Shadow:
    """The apps of a workload, each ready to be run alone; measurements are cached."""

    arrivals: Mapping[str, Sequence[Arrival]]  # by app: its first jobs
    searches: Mapping[str, Search]  # by app, if it is a search

    def __post_init__(self) -> None:
        self._seconds: dict[tuple[str, int], float] = {}
        self._largest = {app: max(each.job.gpus for each in own) for app, own in self.arrivals.items()}
        self._most = {app: sum(each.job.gpus for each in own) for app, own in self.arrivals.items()}

    def ideal_seconds(self, app: str, entitled_gpus: float) -> float:
        """The run time of an app alone on this many GPUs; linearly interpolated between whole numbers."""
        largest, entitled_gpus = self._largest[app], min(entitled_gpus, self._most[app])
        if entitled_gpus <= largest:
            return self._alone(app, largest) * largest / entitled_gpus
        low = int(entitled_gpus)
        part = entitled_gpus - low
        fewer = self._alone(app, low)
        return fewer if not part else fewer * (1 - part) + self._alone(app, low + 1) * part

    def _alone(self, app: str, gpus: int) -> float:
        key = app, gpus
        if key not in self._seconds:
            self._seconds[key] = self._measure(app, gpus)
        return self._seconds[key]

    def _measure(self, app: str, gpus: int) -> float:
        own = self.arrivals[app]
        kind = own[0].job.options[0].shape.accelerator
        setup = Setup(Cluster("share", (Node("n", kind, gpus),)), (PoolSpec("all", "fifo", {"backfill": True}),))
        search = self.searches.get(app)
        if search is not None:
            search = replace(search, trials=tuple(replace(t, arrival=_in_one_node(t.arrival)) for t in search.trials))
            jobs = first_jobs(search)
        else:
            jobs = [_in_one_node(each) for each in own]
        # Longest job first, which is unproblematic on a private share.
        jobs = sorted(jobs, key=lambda each: (each.job.submitted_at, -each.truth.steps_total))
        run = simulate(setup, jobs, searches=() if search is None else (search,))
        return float(run.log.jobs.ended_at.max() - run.log.jobs.submitted_at.min())


def _in_one_node(arrival: Arrival) -> Arrival:
    """The same job in its reference shape on one node."""
    shape, speed = arrival.truth.options[0]
    options = (Option(Shape(shape.accelerator, shape.gpus, "node"), speed),)
    return Arrival(replace(arrival.job, options=options), replace(arrival.truth, options=options))


def shadow_of(arrivals: Sequence[Arrival], searches: Sequence[Search] = ()) -> Shadow:
    own: dict[str, list[Arrival]] = {}
    for arrival in arrivals:
        own.setdefault(arrival.job.app_id, []).append(arrival)
    return Shadow(own, {search.app: search for search in searches})


def rho_measured(log: RunLog, apps: AppFairness, shadow: Shadow) -> Floats:
    """By app: its run time divided by the time it would have taken alone on its share of the pool."""
    jobs = log.jobs
    names = [_app_name(log, int(row)) for row in apps.first_job]
    entitled = apps.pool_gpus / apps.apps_average
    ideal = [shadow.ideal_seconds(name, float(gpus)) for name, gpus in zip(names, entitled, strict=True)]
    assert len(jobs) >= len(names)
    return (apps.ended_at - apps.submitted_at) / np.array(ideal)


def _app_name(log: RunLog, row: int) -> str:
    """The name of an app; for an unnamed app, that of its only job."""
    number = int(log.jobs.app[row])
    return log.apps[number] if number >= 0 else log.jobs.id[row]
