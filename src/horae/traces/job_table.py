"""The job table: one job a row, in CSV or YAML. Times may carry a unit (10m, 2h).

| field          | meaning                                                                                |
|----------------|----------------------------------------------------------------------------------------|
| id             | a name of its own; row number if absent                                                |
| submit         | seconds since the start                                                                |
| gpus           | size of the gang                                                                       |
| duration       | run time in the first shape accepted; or `steps`                                       |
| steps          | amount of work; with `duration` absent                                                 |
| tenant, app    | whose it is                                                                            |
| gpu_type       | types accepted, in order of preference (`A100\\|V100`); any if absent, fastest first   |
| speed          | believed steps a second, one number or by type (`A100=3.1;V100=1.4`); 1 if absent      |
| true_speed     | the same as only the engine knows it; as believed if absent                            |
| level          | the largest cell that may hold the gang; `node` if one can, else `cluster`             |
| slowdown       | by level, how much slower the job is there (`rack=1.3;cluster=1.6`)                    |
| member_gpus    | where the gang may span nodes: GPUs that must share one                                |
| weight, priority, deadline, restart, min_runtime, grace, preemptions_max, retries_max, cpus_per_gpu, memory_per_gpu,
  command, workdir | as they say                                                                          |
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from math import inf
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from horae.model.cells import CLUSTER, NODE, Cluster
from horae.model.errors import InputError, JobError
from horae.model.jobs import Arrival, Job, Truth
from horae.model.shapes import Option, Shape
from horae.traces.units import memory_bytes, seconds
from horae.traces.yaml_lines import read_yaml


def _pairs(value: object) -> object:
    """`A100=3.1;V100=1.4` as a mapping; a plain number stays one."""
    if not isinstance(value, str) or "=" not in value:
        return value
    return dict(part.split("=", 1) for part in value.split(";") if part.strip())


def _names(value: object) -> object:
    return [part.strip() for part in value.split("|") if part.strip()] if isinstance(value, str) else value


Seconds = Annotated[float, BeforeValidator(seconds)]
Positive = Annotated[float, Field(gt=0)]
Numbers = Annotated[Positive | dict[str, Positive], BeforeValidator(_pairs)]


class JobRow(BaseModel):
    model_config = ConfigDict(extra="forbid")

    id: Annotated[str, BeforeValidator(str)] = ""
    submit: Seconds
    gpus: Annotated[int, Field(gt=0)]
    duration: Annotated[Seconds | None, Field(gt=0)] = None
    steps: Positive | None = None
    tenant: Annotated[str, BeforeValidator(str)] = "default"
    app: Annotated[str, BeforeValidator(str)] = ""
    gpu_type: Annotated[list[str], BeforeValidator(_names)] = []
    speed: Numbers = 1.0
    true_speed: Numbers | None = None
    level: str = ""
    slowdown: Annotated[dict[str, Annotated[float, Field(ge=1)]], BeforeValidator(_pairs)] = {}
    member_gpus: Annotated[int, Field(gt=0)] = 1
    weight: Positive = 1.0
    priority: int = 0
    deadline: Seconds = inf
    restart: Seconds | None = None
    min_runtime: Seconds = 0.0
    grace: Seconds = 0.0
    preemptions_max: Annotated[float, Field(ge=0)] = inf
    retries_max: Annotated[int, Field(ge=0)] = 0
    cpus_per_gpu: Annotated[float, Field(ge=0)] = 0.0
    memory_per_gpu: Annotated[float, BeforeValidator(memory_bytes)] = 0.0
    command: str = ""
    workdir: str = ""


class JobFile(BaseModel):
    model_config = ConfigDict(extra="forbid")

    jobs: list[JobRow]


def read_jobs(path: Path, cluster: Cluster) -> list[Arrival]:
    """All jobs of a file, in the order of submission. The first row that is wrong is an error."""
    if path.suffix in (".yaml", ".yml"):
        rows = [(0, row) for row in read_yaml(path, JobFile).jobs]
    else:
        rows = list(_csv_rows(path))
    arrivals: list[Arrival] = []
    lines: dict[str, int] = {}
    for index, (line, row) in enumerate(rows, start=1):
        row.id = row.id or str(index)
        try:
            if row.id in lines:
                where = f"line {lines[row.id]}" if lines[row.id] else "above"
                raise JobError(f"{row.id!r} is taken ({where})", field="id", remedy="give each job a name of its own")
            lines[row.id] = line
            arrivals.append(arrival(row, cluster))
        except InputError as error:
            raise error.located(file=str(path), line=line, field="" if line else f"jobs.{index - 1}") from None
    return sorted(arrivals, key=lambda item: item.job.submitted_at)


def _csv_rows(path: Path) -> Iterator[tuple[int, JobRow]]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, strict=True)
            for record in reader:
                yield reader.line_num, _row(record, path, reader.line_num)
    except OSError as error:
        raise JobError(str(error.strerror), file=str(path), remedy="name a readable CSV or YAML file") from None
    except UnicodeDecodeError:
        raise JobError("not UTF-8 text", file=str(path), remedy="save it as UTF-8") from None
    except csv.Error as error:
        raise JobError(f"not CSV: {error}", file=str(path), line=reader.line_num, remedy="mend the row") from None


def _row(record: dict[str | Any, Any], path: Path, line: int) -> JobRow:
    if None in record:
        raise JobError("more cells than the header has", file=str(path), line=line, remedy="quote cells with commas")
    given = {name: value for name, value in record.items() if value not in ("", None)}
    try:
        return JobRow.model_validate(given)
    except ValidationError as error:
        details = error.errors()[0]
        field = str(details["loc"][0])
        if details["type"] == "missing":
            problem, remedy = "is missing", f"add a column {field}"
        elif details["type"] == "extra_forbidden":
            problem, remedy = "is not a known column", f"use {', '.join(JobRow.model_fields)}"
        elif details["type"] == "value_error":
            problem, remedy = str(details["ctx"]["error"]), "mend it"
        else:
            problem, remedy = f"is {details['input']!r}", details["msg"][:1].lower() + details["msg"][1:]
        raise JobError(problem, file=str(path), line=line, field=field, remedy=remedy) from None


def arrival(row: JobRow, cluster: Cluster) -> Arrival:
    """A job with all the shapes that it accepts, and the truth about it."""
    if (row.duration is None) == (row.steps is None):
        raise JobError("needs either duration or steps", field="duration", remedy="give one of them")
    believed = _speeds(row.speed, cluster, "speed")
    true = believed if row.true_speed is None else _speeds(row.true_speed, cluster, "true_speed")
    types = _types(row, cluster, believed, true)
    options = tuple(option for name in types for option in _options(row, cluster, name, believed[name]))
    true_options = tuple(option for name in types for option in _options(row, cluster, name, true[name]))
    job = Job(
        id=row.id,
        submitted_at=row.submit,
        options=options,
        app=row.app,
        tenant=row.tenant,
        weight=row.weight,
        priority=row.priority,
        steps_total=_steps(row, options),
        deadline_at=row.deadline,
        restart_seconds=cluster.restart_seconds if row.restart is None else row.restart,
        min_runtime_seconds=row.min_runtime,
        preemptions_max=row.preemptions_max,
        grace_seconds=row.grace,
        retries_max=row.retries_max,
        member_gpus=row.member_gpus,
        cpus_per_gpu=row.cpus_per_gpu,
        memory_bytes_per_gpu=row.memory_per_gpu,
        command=row.command,
        workdir=row.workdir,
    )
    return Arrival(job, Truth(_steps(row, true_options), true_options))


def _steps(row: JobRow, options: tuple[Option, ...]) -> float:
    """A duration is meant in the reference shape."""
    return row.steps if row.steps is not None else (row.duration or 0.0) * options[0].steps_per_second


def _speeds(speed: float | dict[str, float], cluster: Cluster, field: str) -> dict[str, float]:
    if not isinstance(speed, dict):
        return dict.fromkeys(cluster.accelerators, speed)
    for name in speed:
        _check_type(name, cluster, field)
    return speed


def _check_type(name: str, cluster: Cluster, field: str) -> None:
    if name not in cluster.accelerators:
        known = ", ".join(cluster.accelerators)
        raise JobError(f"GPU type {name!r} is not in the cluster", field=field, remedy=f"use {known}")


def _types(row: JobRow, cluster: Cluster, believed: dict[str, float], true: dict[str, float]) -> list[str]:
    """The GPU types accepted, in order of preference: as the row says, else all with a speed, the fastest first."""
    for name in row.gpu_type:
        _check_type(name, cluster, "gpu_type")
    ranked = sorted(cluster.accelerators, key=lambda name: -believed.get(name, 0.0))
    types = row.gpu_type or [name for name in ranked if name in believed]
    for field, speeds in (("speed", believed), ("true_speed", true)):
        for name in types:
            if name not in speeds:
                raise JobError(f"is missing for GPU type {name!r}", field=field, remedy="add it, or drop the type")
    return types


def _options(row: JobRow, cluster: Cluster, accelerator: str, speed: float) -> list[Option]:
    """The shapes accepted of one type, finest first: several only where the job is slower in a larger cell."""
    for field, levels in (("level", [row.level] if row.level else []), ("slowdown", list(row.slowdown))):
        for level in levels:
            if level not in cluster.levels:
                known = ", ".join(cluster.levels)
                raise JobError(f"there is no level {level!r} in the cluster", field=field, remedy=f"use {known}")
    fits_node = row.gpus <= cluster.largest_cell[cluster.node_level][accelerator]
    widest = cluster.levels.index(row.level or (NODE if fits_node else CLUSTER))
    slowdown, slowdowns = 1.0, []
    for name in cluster.levels[: widest + 1]:
        slowdown = max(slowdown, row.slowdown.get(name, 1.0))
        slowdowns.append(slowdown)
    return [
        Option(Shape(accelerator, row.gpus, cluster.levels[level]), speed / slowdowns[level])
        for level in range(widest + 1)
        if level == widest or slowdowns[level] != slowdowns[level + 1]
    ]
