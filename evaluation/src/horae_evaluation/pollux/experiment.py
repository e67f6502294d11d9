"""Tiresias and Optimus on Pollux's workloads (Qiao et al., OSDI'21): 16 nodes of 4 T4.

The jobs are the workload's, with their own batch sizes. A job makes as many steps as were profiled to the end of
training at its batch size; a step takes the time profiled for the nodes on which its GPUs are. Tiresias runs gangs of
the requested size; under Optimus a job accepts every number of GPUs for which a packed gang was profiled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from horae.engines.engine import Engine
from horae.experiments.simulate import simulate
from horae.model.cluster import CLUSTER, NODE, Cluster, Node
from horae.model.errors import InputError
from horae.model.jobs import Arrival, Job, Truth
from horae.model.setup import Cadence, PoolSpec, Setup
from horae.model.shapes import Option, Shape
from horae_evaluation.philly.data import read_columns
from horae_evaluation.pollux.speeds import PlacedEngine, Steps, read_noise_steps, read_steps
from horae_evaluation.pollux.workloads import GPUS_PER_NODE, Profile, packed, read_profiles

NODES, ACCELERATOR = 16, "T4"
POLICIES = ("tiresias", "optimus")
WORKLOADS_FILE, PUBLISHED_FILE = "pollux/workloads.csv.gz", "pollux/published_sim_results.csv"


@dataclass(frozen=True)
class PolluxTask:
    """One row of a workload."""

    name: str
    submitted_at: float
    model: str
    gpus: int
    batch_size: int


@dataclass(frozen=True)
class Source:
    """The contents of the data folder."""

    tasks: Mapping[tuple[str, int], tuple[PolluxTask, ...]]  # by set and workload
    profiles: Mapping[str, Profile]  # by model: packed gangs, and how many steps training takes
    steps: Mapping[str, Steps]  # by model: gangs wherever they are
    noise_steps: Mapping[tuple[str, int], float]  # by model and batch size
    published: Mapping[tuple[str, str, int], Published]  # by set, policy and workload


@dataclass(frozen=True)
class Published:
    mean_seconds: float
    p50_seconds: float
    p99_seconds: float


@dataclass(frozen=True)
class PolluxCase:
    policy: str
    set_name: str = "1.0x"
    workload: int = 6
    restart_seconds: float = 30.0  # the data has none; a first start fits 30 s at half the load
    round_seconds: float = 60.0  # 0: decide at every event
    spreads: bool = True  # gangs that fit into a node go to the emptiest, rather than to the fullest
    is_placed: bool = True  # steps take the time of the nodes obtained; else that of a packed gang
    limit_gpu_hours: float = 16.0  # between Tiresias' two queues
    promote_after: float = 0.0  # Tiresias; 0: never
    interval_seconds: float = 600.0  # Optimus: sizes change at multiples
    damping: float = 1.0  # Optimus
    is_elastic: bool = True  # Optimus: any number of GPUs; else the requested one
    gpus_max: float = np.inf  # Optimus: per job, as a multiple of the request
    start_seconds: float = 0.0  # the cost of a first start
    by_noise: bool = False  # steps by the gradient noise; else as counted in the file
    share_max: tuple[tuple[str, int], ...] = ()  # by model: the largest part of a batch that a GPU takes at once


@dataclass(frozen=True)
class PolluxResult:
    jobs: int
    mean_seconds: float
    p50_seconds: float
    p99_seconds: float
    starts_mean: float
    queueing_mean_seconds: float  # from submission to the first start
    gpu_hours: float
    completion_seconds: Mapping[str, float]  # by job


def read_source(data: Path) -> Source:
    columns = {"set": None, "workload": 1, "name": None, "submit_s": 0, "model": None, "num_gpu": 1, "batch_size": 1}
    tasks: dict[tuple[str, int], list[PolluxTask]] = {}
    for name_of_set, number, *rest in read_columns(data, WORKLOADS_FILE, columns).iter_rows():
        tasks.setdefault((name_of_set, number), []).append(PolluxTask(*rest))
    path = data / WORKLOADS_FILE
    in_order = {key: tuple(sorted(rows, key=lambda task: task.submitted_at)) for key, rows in tasks.items()}
    return Source(in_order, read_profiles(path), read_steps(path), read_noise_steps(path), _read_published(data))


def _read_published(data: Path) -> dict[tuple[str, str, int], Published]:
    names = ("avg_jct_s", "p50_jct_s", "p99_jct_s")
    columns: dict[str, int | None] = {"set": None, "policy": None, "workload": 1}
    table = read_columns(data, PUBLISHED_FILE, columns | dict.fromkeys(names))
    found = {}
    for line, (set_name, policy, workload, *texts) in enumerate(table.iter_rows(), start=2):
        values = [_seconds(data / PUBLISHED_FILE, line, *each) for each in zip(names, texts, strict=True)]
        found[set_name, policy, workload] = Published(*values)
    return found


def _seconds(path: Path, line: int, field: str, text: str | None) -> float:
    try:
        value = float(text or "")
    except ValueError:
        value = 0.0
    if not 0 < value < np.inf:
        raise InputError(f"is {text!r}", file=str(path), line=line, field=field, remedy="give seconds above 0")
    return value


def cluster() -> Cluster:
    nodes = tuple(Node(f"node-{index:02}", ACCELERATOR, GPUS_PER_NODE) for index in range(NODES))
    return Cluster("pollux", nodes)


def run_case(case: PolluxCase, source: Source) -> PolluxResult:
    tasks = tasks_of(case, source)
    cut = {model: source.steps[model].in_parts_of(share) for model, share in case.share_max if model in source.steps}
    source = replace(source, steps={**source.steps, **cut})
    jobs = [arrival_of(task, case, source) for task in tasks]
    sizes = {task.name: task.batch_size for task in tasks}

    def placed(engine: Engine) -> Engine:
        return PlacedEngine(engine, cluster(), jobs, source.steps, sizes, case.start_seconds)

    run = simulate(setup_of(case), jobs, wrap=placed) if case.is_placed else simulate(setup_of(case), jobs)
    records = run.recorder.records()
    completion = np.array([record.ended_at - record.submitted_at for record in records])
    return PolluxResult(
        len(records),
        float(completion.mean()),
        float(np.quantile(completion, 0.5)),
        float(np.quantile(completion, 0.99)),
        float(np.mean([record.starts for record in records])),
        float(np.mean([record.started_at - record.submitted_at for record in records])),
        float(sum(record.gpu_seconds for record in records) / 3600),
        {record.job_id: record.ended_at - record.submitted_at for record in records},
    )


def tasks_of(case: PolluxCase, source: Source) -> tuple[PolluxTask, ...]:
    if (case.set_name, case.workload) not in source.tasks:
        raise InputError(
            f"has no workload {case.workload} in set {case.set_name!r}",
            file=WORKLOADS_FILE,
            field="workload",
            remedy=f"use {', '.join(f'{name} {number}' for name, number in sorted(source.tasks))}",
        )
    tasks = source.tasks[case.set_name, case.workload]
    for task in tasks:
        if task.model not in source.profiles or task.model not in source.steps:
            known = ", ".join(source.profiles) or "none"
            raise InputError(
                f"job {task.name!r} trains {task.model!r}, which has no profile",
                file=WORKLOADS_FILE,
                field="model",
                remedy=f"use a profiled model: {known}",
            )
    return tasks


def setup_of(case: PolluxCase) -> Setup:
    options: dict[str, object]
    if case.policy == "tiresias":
        options = {"limits": (case.limit_gpu_hours * 3600,), "promote_after": case.promote_after}
    else:
        options = {"interval_seconds": case.interval_seconds, "damping": case.damping}
    cadence = Cadence.ROUNDS if case.round_seconds else Cadence.EVENTS
    pool = PoolSpec("pollux", case.policy, options, cadence, case.round_seconds or 60.0, spreads=case.spreads)
    return Setup(cluster(), (pool,))


def arrival_of(task: PolluxTask, case: PolluxCase, source: Source) -> Arrival:
    profile = source.profiles[task.model]
    counts = [task.gpus]
    if case.policy == "optimus" and case.is_elastic:
        most = min(case.gpus_max * task.gpus, task.batch_size, NODES * GPUS_PER_NODE)
        counts += [gpus for gpus in sorted(profile.gangs) if gpus != task.gpus and gpus <= most]
    options = tuple(option for gpus in counts for option in _options(task, gpus, source.steps[task.model]))
    steps = profile.iterations_at(task.batch_size)
    if case.by_noise:  # a batch size that was not profiled has no noise of its own
        steps = source.noise_steps.get((task.model, task.batch_size), steps)
    job = Job(
        task.name, task.submitted_at, options, model=task.model, steps_total=steps, restart_seconds=case.restart_seconds
    )
    return Arrival(job, Truth(steps, options))


def _options(task: PolluxTask, gpus: int, steps: Steps) -> tuple[Option, ...]:
    """The options of a task: in one node where it fits, otherwise over several,
    with the speed estimated for a packed gang."""
    together = Option(Shape(ACCELERATOR, gpus, NODE), 1 / steps.seconds(packed(gpus), task.batch_size))
    if gpus == 1:
        return (together,)
    if gpus > GPUS_PER_NODE:
        return (Option(together.shape._replace(level=CLUSTER), together.steps_per_second),)
    halves = (gpus - gpus // 2, gpus // 2)
    return together, Option(Shape(ACCELERATOR, gpus, CLUSTER), 1 / steps.seconds(halves, task.batch_size))
