"""The four Philly virtual clusters in one pool: which apps are worst off under each policy, and the cost.

All policies decide in rounds. A job of two seconds that waits for a round takes a hundred times as long as alone,
whatever the policy, so rho is reported for jobs of ten minutes and more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from time import process_time

from horae.experiments.simulate import simulate
from horae.model.arrays import Floats
from horae.model.setup import Cadence, PoolSpec, Setup
from horae.reports.rho import apps
from horae_evaluation.hived.experiment import HivedWorkload, read_workloads

RESTART_SECONDS = 45.0
ROUND_SECONDS = 360.0
SECONDS_MIN = 600.0  # of jobs for which rho is reported
POLICIES: Mapping[str, tuple[str, Mapping[str, object]]] = {
    "themis": ("themis", {"aim": "paper"}),  # as published
    "themis, chain": ("themis", {}),
    "themis, chain, no filter": ("themis", {"f": 0.0}),
    "finish-time-fairness": ("finish-time-fairness", {}),
    "tiresias": ("tiresias", {}),
    "gandiva": ("gandiva", {}),  # equal shares of time, as in Gavel
    "gandiva, own rules": ("gandiva-time-slicing", {}),
    "optimus": ("optimus", {}),
    "slaq": ("slaq", {}),
    "max-min": ("max-min", {}),
}


@dataclass(frozen=True)
class PhillyCase:
    policy: str

    def __str__(self) -> str:
        return self.policy


@dataclass(frozen=True)
class PhillyRow:
    policy: str
    jobs: int
    rho_paper_max: float
    rho_private_max: float  # for apps of one job, equal to the measured rho
    rho_private_jain: float
    over_share: float  # of apps with rho_private above 1
    completion_mean_seconds: float
    gpu_hours: float
    restarts: int
    processor_seconds: float


def read(data: Path) -> HivedWorkload:
    workload = read_workloads(data, ["philly"])["philly"]
    jobs = [replace(each, job=replace(each.job, restart_seconds=RESTART_SECONDS)) for each in workload.arrivals]
    return replace(workload, arrivals=tuple(jobs))


def run_case(case: PhillyCase, workload: HivedWorkload) -> PhillyRow:
    policy, options = POLICIES[case.policy]
    pool = PoolSpec("all", policy, options, Cadence.ROUNDS, ROUND_SECONDS)
    started = process_time()
    run = simulate(Setup(workload.cluster, (pool,)), workload.arrivals)
    columns = apps(run.log)
    completion = columns.ended_at - columns.submitted_at
    told = columns.gpu_seconds / columns.gpus >= SECONDS_MIN
    private = columns.rho_private[told]
    return PhillyRow(
        policy=case.policy,
        jobs=len(run.log.jobs),
        rho_paper_max=float(columns.rho_paper[told].max()),
        rho_private_max=float(private.max()),
        rho_private_jain=_jain(private),
        over_share=float((private > 1 + 1e-6).mean()),
        completion_mean_seconds=float(completion.mean()),
        gpu_hours=float(run.log.leases.gpu_seconds.sum() / 3600),
        restarts=len(run.log.leases) - len(run.log.jobs),
        processor_seconds=process_time() - started,
    )


def _jain(values: Floats) -> float:
    return float(values.sum() ** 2 / (len(values) * (values**2).sum()))
