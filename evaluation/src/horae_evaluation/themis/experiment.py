"""The simulations of Themis' evaluation (NSDI'20, section 8), on workloads W1 and W2 as fixed here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from time import perf_counter, process_time
from typing import Any

import numpy as np

from horae.driver import run
from horae.engines.search.engine import SearchEngine, first_jobs
from horae.engines.simulated import SimulatedEngine
from horae.model.arrays import Floats
from horae.model.cluster import Cluster
from horae.model.decisions import Grants
from horae.model.events import Event, Tick
from horae.model.jobs import Arrival
from horae.model.plans import Reaction
from horae.model.searches import Method, Search, searches_of
from horae.model.setup import Cadence, PoolSpec, Setup
from horae.reports.recorder import Recorder
from horae.reports.rho import AppFairness, apps
from horae.reports.run_log import RunLog
from horae.scheduler import Scheduler
from horae.traces.generators.themis import ThemisWorkload, themis_cluster
from horae.traces.jobs import arrivals
from horae_evaluation.ideal_time import Shadow, rho_measured, shadow_of

LEASE_SECONDS = 1200.0
SPLIT_PARTS = 4
POLICIES: Mapping[str, tuple[str, Mapping[str, object]]] = {
    "themis": ("themis", {"aim": "paper"}),  # as published
    "themis, chain": ("themis", {}),  # beyond it: T_id is no less than the longest chain of an app's jobs
    "tiresias": ("themis-tiresias", {}),
    "optimus": ("themis-optimus", {}),
    "gandiva": ("themis-gandiva", {}),
    "slaq": ("themis-slaq", {}),
    "highest-rho": ("highest-rho", {}),
}
WITH_ERRORS = ("themis-with-errors", ("noise", "liar", "overstates"))  # the policy of a case with any of these options


@dataclass(frozen=True)
class ThemisCase:
    """Everything that determines a run."""

    workload: str  # w1 or w2
    policy: str  # as in POLICIES
    seed: int
    options: Mapping[str, float | bool | str] = field(default_factory=dict)
    divided_by: int = 1  # the fraction of the cluster's nodes that is used; the workload stays the same
    network_intensive: float = 0.4
    method: str = Method.HALVING.value  # the search method of w2's apps; the load is set for it
    watched: int = -1  # position in the order of arrival of an app that is examined individually
    is_split: bool = False  # that app is submitted as several apps, which must gain it nothing
    declares: float = 0.0  # the relative excess of work that this app declares at submission
    durations_known: bool = True

    def __str__(self) -> str:
        options = "".join(f" {name}={value}" for name, value in self.options.items())
        parts = [f"{self.policy}{options}", self.workload]
        parts += [f"1/{self.divided_by} of the cluster"] if self.divided_by > 1 else []
        parts += [f"{self.network_intensive:.0%} network-intensive"] if self.network_intensive != 0.4 else []
        parts += [self.method] if self.method != Method.HALVING.value else []
        parts += [f"one app declares {self.declares:+.0%}"] if self.declares else []
        parts += ["one app split"] if self.is_split else []
        parts += [] if self.durations_known else ["durations unknown"]
        return ", ".join([*parts, f"seed {self.seed}"])


@dataclass(frozen=True)
class ThemisResult:
    rho_paper_max: float
    rho_paper_mean: float
    rho_floor_max: float  # the least rho_paper_max of any schedule, given N
    rho_measured_max: float
    rho_measured_mean: float
    rho_measured_jain: float
    over_share: float  # of apps with rho_measured above 1
    completion_mean_seconds: float  # of apps
    gpu_hours: float
    starts: int
    withheld_gpu_hours: float  # of leases, by payments
    decision_median_seconds: float
    decision_p95_seconds: float
    watched_completion_seconds: float  # nan: no app was watched
    watched_rho: float  # measured
    processor_seconds: float
    shadow_seconds: float  # of processor time


@dataclass(frozen=True)
class ThemisSetting:
    arrivals: Sequence[Arrival]
    searches: Sequence[Search]


def cluster_of(case: ThemisCase) -> Cluster:
    """The cluster of W1 and W2, reduced to every n-th node."""
    whole = themis_cluster()
    if case.divided_by == 1:
        return whole
    return Cluster("themis", whole.nodes[:: case.divided_by], whole.restart_seconds)


def workload_of(case: ThemisCase) -> ThemisSetting:
    generator = ThemisWorkload(workload=case.workload, network_intensive=case.network_intensive, search=case.method)
    made, _ = arrivals(generator.trace(case.seed), themis_cluster())
    names = list(dict.fromkeys(each.job.app_id for each in made))
    if case.watched >= 0:
        made = [_of_tenant(each, split=case.is_split and each.job.app_id == names[case.watched]) for each in made]
        made = [_declared(each, case.declares if each.job.tenant == names[case.watched] else 0.0) for each in made]
    searches = searches_of(made, Method(case.method), case.seed) if case.workload == "w2" else ()
    if searches:
        made = [job for search in searches for job in first_jobs(search)]
    if not case.durations_known:
        made = [replace(each, job=replace(each.job, steps_total=None)) for each in made]
    return ThemisSetting(made, searches)


def _of_tenant(arrival: Arrival, *, split: bool) -> Arrival:
    """The arrival with its app as the tenant; an app that is split stays one tenant."""
    job = arrival.job
    app = f"{job.app_id}/{int(job.id[-2:]) % SPLIT_PARTS}" if split else job.app_id
    return replace(arrival, job=replace(job, app=app, tenant=job.app_id))


def _declared(arrival: Arrival, part: float) -> Arrival:
    """The job with its declared work increased by this fraction."""
    said = arrival.job.steps_total
    return (
        arrival
        if not part or said is None
        else replace(arrival, job=replace(arrival.job, steps_total=said * (1 + part)))
    )


class _Stopwatch:
    """Measures how long decisions take, and what payments withhold."""

    def __init__(self, lease_seconds: float) -> None:
        self.seconds: list[float] = []
        self.withheld_gpu_seconds = 0.0
        self._lease_seconds = lease_seconds
        self._began = 0.0

    def heard(self, event: Event) -> None:
        self._began = perf_counter()

    def reacted(self, event: Event, reaction: Reaction) -> None:
        if not isinstance(event, Tick) or not reaction.rounds:
            return
        self.seconds.append(perf_counter() - self._began)
        for each in reaction.rounds:
            if isinstance(each.decision, Grants) and len(each.decision.closed_apps):
                short = {placement.serial: placement for placement in each.plan.placements}
                for placement in short.values():
                    missing = self._lease_seconds - placement.lease_seconds
                    self.withheld_gpu_seconds += missing * len(placement.gpus)


def pool_of(case: ThemisCase) -> PoolSpec:
    policy, options = POLICIES[case.policy]
    if any(name in case.options for name in WITH_ERRORS[1]):
        policy = WITH_ERRORS[0]
    lease_seconds = float(case.options.get("lease_seconds", LEASE_SECONDS))
    return PoolSpec("all", policy, {**options, **case.options}, Cadence.EVENTS, round_seconds=lease_seconds)


def run_case(case: ThemisCase, shadows: dict[Any, Shadow] | None = None) -> ThemisResult:
    """Runs a case; `shadows` caches measurements of the same workload under another policy."""
    workload, cluster = workload_of(case), cluster_of(case)
    pool = pool_of(case)
    setup = Setup(cluster, (pool,), case.seed)
    started = process_time()
    recorder, scheduler, watch = Recorder(setup), Scheduler(setup), _Stopwatch(pool.round_seconds)
    simulated = SimulatedEngine(cluster, recorder.expecting(workload.arrivals))
    engine = SearchEngine(simulated, workload.searches, recorder.expect) if workload.searches else simulated
    run(scheduler, engine, [recorder], watch)
    took = process_time() - started
    key = (case.workload, case.method, case.seed, case.network_intensive, case.is_split)
    shadow = (shadows if shadows is not None else {}).setdefault(key, shadow_of(workload.arrivals, workload.searches))
    started = process_time()
    log = recorder.log({})
    columns = apps(log)
    measured = rho_measured(log, columns, shadow)
    return _result(case, log, columns, (measured, shadow, watch), (took, process_time() - started))


def _result(
    case: ThemisCase,
    log: RunLog,
    columns: AppFairness,
    seen: tuple[Floats, Shadow, _Stopwatch],
    took: tuple[float, float],
) -> ThemisResult:
    measured, shadow, watch = seen
    completion = columns.ended_at - columns.submitted_at
    owner = np.array([_tenant(log, int(row)) for row in columns.first_job])
    mine = owner == f"app{case.watched:02}"
    worst = int(columns.rho_paper.argmax())
    name = log.apps[int(log.jobs.app[columns.first_job[worst]])] if len(log.apps) else ""
    alone = shadow.ideal_seconds(name, inf) if name else np.nan  # with as many GPUs as it can use
    began, ended = columns.submitted_at[mine], columns.ended_at[mine]
    return ThemisResult(
        rho_paper_max=float(columns.rho_paper.max()),
        rho_paper_mean=float(columns.rho_paper.mean()),
        rho_floor_max=float(columns.rho_paper[worst] * min(alone / completion[worst], 1.0)),
        rho_measured_max=float(measured.max()),
        rho_measured_mean=float(measured.mean()),
        rho_measured_jain=float(measured.sum() ** 2 / (len(measured) * (measured**2).sum())),
        over_share=float((measured > 1 + 1e-6).mean()),
        completion_mean_seconds=float(completion.mean()),
        gpu_hours=float(log.leases.gpu_seconds.sum() / 3600),
        starts=len(log.leases),
        withheld_gpu_hours=watch.withheld_gpu_seconds / 3600,
        decision_median_seconds=float(np.median(watch.seconds)),
        decision_p95_seconds=float(np.quantile(watch.seconds, 0.95)),
        watched_completion_seconds=float(ended.max() - began.min()) if mine.any() else float("nan"),
        watched_rho=float(measured[mine].max()) if mine.any() else float("nan"),
        processor_seconds=took[0],
        shadow_seconds=took[1],
    )


def _tenant(log: RunLog, row: int) -> str:
    return log.tenants[int(log.jobs.tenant[row])]
