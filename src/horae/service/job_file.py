"""Job files, and the jobs that the scheduler makes of them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from datetime import datetime
from difflib import get_close_matches
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

from horae.model.cluster import CLUSTER, Cluster
from horae.model.errors import InputError, JobError
from horae.model.jobs import Job
from horae.model.safe_text import shown
from horae.model.setup import Setup
from horae.model.shapes import Option
from horae.service.models import PRIORITIES, PROCESSES_MAX, PROCESSES_PER_GPU_MAX, GpuRange, JobSpec
from horae.service.sweeps import points
from horae.traces.gpu_names import find_types
from horae.traces.job_shapes import RequestedShapes, shapes
from horae.traces.units import seconds
from horae.traces.yaml_files import YamlFile, read_yaml

PREFERENCE = 1.05  # a job that prefers a level counts as this much slower in wider cells
SPEED_DEFAULT = 1.0  # steps per second, where nothing is known
EXAMPLE = {"name": "bert", "run": "python train.py", "gpus": 2}

Speeds = Mapping[tuple[str, int], float]  # of one model: steps per second by GPU type and number of GPUs
NO_SPEEDS: Speeds = {}


# Reading


def read_job_file(source: Path | str) -> JobSpec:
    """The job file at a path, or of this text; errors have one line with file, field and remedy.

    A relative working directory is relative to the file's folder.
    """
    if isinstance(source, Path):
        file: YamlFile[JobSpec] = read_yaml(source, JobSpec)
        spec = file.value
        return spec.model_copy(update={"workdir": str((source.parent / (spec.workdir or ".")).resolve())})
    with tempfile.NamedTemporaryFile("w", suffix=".yaml", encoding="utf-8") as copy:
        copy.write(source)
        copy.flush()
        try:
            return read_yaml(Path(copy.name), JobSpec).value
        except InputError as error:
            raise InputError(error.problem, remedy=error.remedy, line=error.line, field=error.field) from None


# One file, many jobs


class Element(NamedTuple):
    """One job of an array or a sweep."""

    position: int | None  # None: the file describes one job
    spec: JobSpec


def expand(spec: JobSpec) -> list[Element]:
    """The jobs of a file: one, or one per element of its array or per point of its sweep."""
    if spec.sweep is not None:
        if spec.array is not None:
            raise JobError("a job cannot be an array and a sweep", field="sweep", remedy="remove one of the two")
        return [Element(index, each) for index, each in enumerate(points(spec, spec.sweep))]
    if spec.array is None:
        return [Element(None, spec)]
    return [Element(index, _array_element(spec, index, spec.array)) for index in range(spec.array)]


def _array_element(spec: JobSpec, index: int, count: int) -> JobSpec:
    env = {"HORAE_ARRAY_INDEX": str(index), "HORAE_ARRAY_COUNT": str(count), **spec.env}
    return spec.model_copy(update={"env": env, "array": None})


# Conversion to the scheduler's jobs


def to_job(
    spec: JobSpec,
    job_id: str,
    submitted_by: str,
    setup: Setup,
    at: float,
    *,
    unix_offset: float = 0.0,
    speeds: Speeds = NO_SPEEDS,
    app: str = "",
) -> Job:
    """The job as the scheduler gets it; errors name the field of the file and the remedy.

    `unix_offset` is the Unix time of second 0 of the log; `speeds` has measured speeds of the job's model.
    """
    return Job(
        id=job_id,
        submitted_at=at,
        options=options_of(spec, setup.cluster, speeds),
        app=app or spec.app or "",
        tenant=spec.tenant or "default",
        user=spec.user or submitted_by,
        model=spec.model,
        priority=spec.priority if isinstance(spec.priority, int) else PRIORITIES[spec.priority],
        steps_total=spec.steps,
        deadline_at=deadline_at(spec.deadline, at, unix_offset),
        restart_seconds=setup.cluster.restart_seconds,
        min_runtime_seconds=spec.min_runtime,
        # A job that has not shown that it can resume would lose all its work.
        preemptions_max=inf if _is_preemptible(spec) else 0,
        borrows=spec.priority != "interactive",  # what is borrowed has to be given back
        grace_seconds=spec.grace,
        member_gpus=spec.member_gpus,
        members=tuple(spec.members),
        nodes=tuple(spec.nodes),
        pinned=spec.pinned or "",
        lazy=spec.lazy,
        retries_max=spec.retries,
        cpus_per_gpu=spec.cpus_per_gpu,
        memory_bytes_per_gpu=spec.memory_per_gpu,
        command=spec.run,
        workdir=spec.workdir,
        bids=spec.bids,
        limit_seconds=inf if spec.max_duration is None else spec.max_duration,
    )


def _is_preemptible(spec: JobSpec) -> bool:
    return spec.checkpoint is not None if spec.preemptible is None else spec.preemptible


def deadline_at(text: str | None, at: float, unix_offset: float) -> float:
    """A deadline in seconds of the log, from a date or a time from now such as `12h`."""
    return inf if text is None else moment(text, at + unix_offset, "deadline") - unix_offset


def moment(text: str, now: float, field: str) -> float:
    """A Unix time, from a date or a time from now such as `12h`; dates without a zone are local times."""
    try:
        return now + seconds(text)
    except ValueError:
        pass
    try:
        return max(0.0, datetime.fromisoformat(text).timestamp())
    except (ValueError, OverflowError, OSError):
        remedy = "give a time from now such as 12h, or a date such as 2030-12-01T08:00"
        raise JobError(f"is {shown(text)}", field=field, remedy=remedy) from None


def gpu_counts(gpus: int | GpuRange) -> list[int]:
    """The numbers of GPUs that a job accepts, the largest first."""
    if isinstance(gpus, int):
        return [gpus]
    if gpus.min > gpus.max:
        raise JobError(f"min is {gpus.min} and max {gpus.max}", field="gpus", remedy="give a min up to max")
    counts = [gpus.min]
    while counts[-1] * 2 <= gpus.max:
        counts.append(counts[-1] * 2)
    return counts[::-1]


def options_of(spec: JobSpec, cluster: Cluster, speeds: Speeds = NO_SPEEDS) -> tuple[Option, ...]:
    """The shapes that a job accepts, in order of preference, with their believed speeds."""
    types = _types(spec, cluster)
    measured = tuple(sorted(speeds.items())) if not spec.speed else ()
    declared = tuple(sorted(_declared(spec, cluster).items()))
    counts = tuple(gpu_counts(spec.gpus))
    key = counts, types, declared, measured, spec.locality.require, spec.locality.prefer
    known = _known_for(cluster)
    if key not in known:
        if len(known) >= KNOWN_MAX:
            known.clear()
        known[key] = _options(cluster, *key)
    return known[key]


# Jobs that are submitted together mostly ask for the same. The cache is of one cluster, the last one: hashing a cluster
# would take longer than computing the shapes.
KNOWN_MAX = 4096
_Known = dict[tuple[Any, ...], tuple[Option, ...]]
_last: tuple[Cluster, _Known] | None = None


def _known_for(cluster: Cluster) -> _Known:
    global _last  # noqa: PLW0603  replaced as a whole, so that threads need no lock
    last = _last
    if last is None or last[0] is not cluster:
        _last = last = cluster, {}
    return last[1]


def _options(
    cluster: Cluster,
    counts: tuple[int, ...],
    types: tuple[str, ...],
    declared: tuple[tuple[str, float], ...],
    measured: tuple[tuple[tuple[str, int], float], ...],
    require: str | None,
    prefer: str | None,
) -> tuple[Option, ...]:
    level = _level(cluster, require, "locality.require") or (CLUSTER if prefer else None)
    preferred = _level(cluster, prefer, "locality.prefer")
    wider = [] if preferred is None else cluster.levels[cluster.levels.index(preferred) + 1 :]
    slowdown = f"{wider[0]}={PREFERENCE}" if wider else None
    found: list[Option] = []
    for gpus in counts:
        accepted = types or tuple(name for name, _ in declared) or cluster.accelerators
        speed = _speeds(accepted, gpus, counts[-1], dict(declared), dict(measured))
        text = ";".join(f"{name}={value!r}" for name, value in speed.items())
        wish = RequestedShapes(gpus, "|".join(types) or None, text, level=level, slowdown=slowdown)
        try:
            found += shapes(wish, cluster, None, whole_nodes=False).believed
        except JobError as error:
            field = {"level": "locality.require", "slowdown": "locality.prefer"}.get(error.field, error.field)
            raise JobError(error.problem, field=field, remedy=error.remedy) from None
    return tuple(found)


def _speeds(
    types: Sequence[str],
    gpus: int,
    least: int,
    declared: Mapping[str, float],
    measured: Mapping[tuple[str, int], float],
) -> dict[str, float]:
    """By type: the believed speed of a gang of this size.

    Declared speeds are of the smallest gang that the job accepts. Speeds grow with the number of GPUs, until they are
    measured. A type of which nothing is known counts as the slowest that is known.
    """
    known = {name: declared[name] * gpus / least for name in types if name in declared}
    for name in types:
        sizes = [size for kind, size in measured if kind == name]
        if sizes and name not in known:
            nearest = min(sizes, key=lambda size: (abs(size - gpus), size))
            known[name] = measured[name, nearest] * gpus / nearest
    if declared:
        return known
    rest = min(known.values(), default=SPEED_DEFAULT * gpus / least)
    return {name: known.get(name, rest) for name in types}


def _types(spec: JobSpec, cluster: Cluster) -> tuple[str, ...]:
    found = [kind for name in spec.gpu_type for kind in _find(name, cluster, "gpu_type")]
    return tuple(dict.fromkeys(found))


def _declared(spec: JobSpec, cluster: Cluster) -> dict[str, float]:
    return {kind: speed for name, speed in spec.speed.items() for kind in _find(name, cluster, "speed")}


def _find(name: str, cluster: Cluster, field: str) -> tuple[str, ...]:
    found = find_types(name, cluster.accelerators)
    if found:
        return found
    by_case = {kind.casefold(): kind for kind in cluster.accelerators}
    close = [by_case[each] for each in get_close_matches(name.casefold(), by_case, n=1, cutoff=0.5)]
    meant = f"did you mean {close[0]}? " if close else ""
    remedy = f"{meant}use {', '.join(cluster.accelerators)}"
    raise JobError(f"GPU type {shown(name)} is not in the cluster", field=field, remedy=remedy)


def _level(cluster: Cluster, name: str | None, field: str) -> str | None:
    if name is None or name in cluster.levels:
        return name
    raise JobError(
        f"there is no level {shown(name)} in the cluster", field=field, remedy=f"use {', '.join(cluster.levels)}"
    )


# Checks that need the cluster or the machine


def check_fits(options: Sequence[Option], clusters: Sequence[Cluster]) -> None:
    """Raises unless one of the shapes exists in one of these clusters: the nodes of the job's pools."""
    largest: dict[tuple[str, str], int] = {}
    for cluster in clusters:
        for option in options:
            kind, gpus, level = option.shape
            if kind not in cluster.accelerators:
                continue
            there = cluster.largest_cell[cluster.levels.index(level) if level in cluster.levels else -1][kind]
            if there >= gpus:
                return
            largest[kind, level] = max(there, largest.get((kind, level), 0))
    asked = options[0].shape
    known = [f"{gpus} x {kind} in one {level}" for (kind, level), gpus in largest.items()]
    remedy = f"the largest gang is {', or '.join(known)}" if known else "its pool has no such GPUs: use other types"
    raise JobError(f"{asked} does not exist, even when the cluster is empty", field="gpus", remedy=remedy)


def check_processes(spec: JobSpec) -> None:
    """Raises if a job would start more processes than its GPUs can have a use for.

    Not a bound of the model: job files that were accepted before must stay readable.
    """
    most = min(PROCESSES_PER_GPU_MAX * gpu_counts(spec.gpus)[-1], PROCESSES_MAX)
    if spec.processes > most:
        remedy = f"ask for up to {most:,}: {PROCESSES_PER_GPU_MAX} per GPU, and never more than {PROCESSES_MAX:,}"
        raise JobError(f"{spec.processes:,} processes are too many", field="processes", remedy=remedy)


def check_workdir(workdir: str, *, is_own: bool = True) -> None:
    """Raises unless this is a whole path and, with `is_own`, a folder that the service can enter; "" is the job's own
    folder."""
    if not workdir:
        return
    if not workdir.startswith("/"):
        raise JobError(f"is {shown(workdir)}, a relative path", field="workdir", remedy="give the whole path")
    if "\0" in workdir or (is_own and not _can_enter(workdir)):
        raise JobError(
            f"{shown(workdir)} is not a folder that the service can enter",
            field="workdir",
            remedy="create it, or let the service's user read it (chmod o+rx)",
        )


def _can_enter(folder: str) -> bool:
    return Path(folder).is_dir() and os.access(folder, os.R_OK | os.X_OK)
