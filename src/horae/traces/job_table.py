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
import io
from collections.abc import Iterator
from math import inf
from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from horae.model.cells import CLUSTER, NODE, Cluster
from horae.model.errors import InputError, JobError
from horae.model.jobs import Arrival, Job, Truth
from horae.model.shapes import Option, Shape
from horae.traces.units import memory_bytes, seconds
from horae.traces.yaml_lines import first_complaint, read_text, read_yaml

ANY = ""  # stands for every GPU type, where a speed is one number
SECONDS_MAX = 1e10  # three centuries: with more, a second would get lost in the roundings
GPUS_MAX = PRIORITY_MAX = 1_000_000  # what is beyond is a slip of the finger


def _pairs(value: object) -> object:
    """`A100=3.1;V100=1.4` as a mapping."""
    if not isinstance(value, str):
        return value
    pairs: dict[str, str] = {}
    for part in filter(str.strip, value.split(";")):
        name, equals, number = (word.strip() for word in part.partition("="))
        if not equals:
            raise ValueError(f"{name!r} has no value; write {name}=1.5")
        if name in pairs:
            raise ValueError(f"{name!r} is given twice; give it once")
        pairs[name] = number
    return pairs


def _numbers(value: object) -> object:
    """One number, or one for each GPU type."""
    by_type = isinstance(value, dict) or (isinstance(value, str) and "=" in value)
    return _pairs(value) if by_type else {ANY: value}


def _names(value: object) -> object:
    return [part.strip() for part in value.split("|") if part.strip()] if isinstance(value, str) else value


Seconds = Annotated[float, BeforeValidator(seconds), Field(le=SECONDS_MAX)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Positive = Annotated[Finite, Field(gt=0)]
Gpus = Annotated[int, Field(gt=0, le=GPUS_MAX)]
Numbers = Annotated[dict[str, Positive], BeforeValidator(_numbers)]


class JobRow(BaseModel):
    model_config = ConfigDict(extra="forbid", coerce_numbers_to_str=True)

    id: str = ""
    submit: Seconds
    gpus: Gpus
    duration: Annotated[Seconds, Field(gt=0)] | None = None
    steps: Positive | None = None
    tenant: str = "default"
    app: str = ""
    gpu_type: Annotated[list[str], BeforeValidator(_names)] = []
    speed: Numbers = {ANY: 1.0}
    true_speed: Numbers | None = None
    level: str = ""
    slowdown: Annotated[dict[str, Annotated[Finite, Field(ge=1)]], BeforeValidator(_pairs)] = {}
    member_gpus: Gpus = 1
    weight: Positive = 1.0
    priority: Annotated[int, Field(ge=-PRIORITY_MAX, le=PRIORITY_MAX)] = 0
    deadline: Seconds = inf
    restart: Seconds | None = None
    min_runtime: Seconds = 0.0
    grace: Seconds = 0.0
    preemptions_max: Annotated[float, Field(ge=0)] = inf
    retries_max: Annotated[int, Field(ge=0)] = 0
    cpus_per_gpu: Annotated[Finite, Field(ge=0)] = 0.0
    memory_per_gpu: Annotated[float, BeforeValidator(memory_bytes)] = 0.0
    command: str = ""
    workdir: str = ""


class JobFile(BaseModel):
    model_config = ConfigDict(extra="forbid")

    jobs: list[JobRow]


class _Placed(NamedTuple):
    """A row, the line on which it begins, and those of its fields that may be elsewhere."""

    line: int
    row: JobRow
    lines: dict[str, int]


def read_jobs(path: Path, cluster: Cluster) -> list[Arrival]:
    """All jobs of a file, in the order of submission. The first row that is wrong is an error."""
    rows = _yaml_rows(path) if path.suffix in (".yaml", ".yml") else _csv_rows(path)
    arrivals: list[Arrival] = []
    lines: dict[str, int] = {}
    for number, (line, row, field_lines) in enumerate(rows, start=1):
        row.id = row.id or str(number)
        try:
            if row.id in lines:
                raise JobError(
                    f"{row.id!r} is taken (line {lines[row.id]})", field="id", remedy="give each job a name of its own"
                )
            lines[row.id] = line
            arrivals.append(arrival(row, cluster))
        except InputError as error:
            raise error.located(file=str(path), line=field_lines.get(error.field, line)) from None
    if not arrivals:
        raise JobError("has no jobs", file=str(path), remedy="add one row a job")
    return sorted(arrivals, key=lambda item: item.job.submitted_at)


def _yaml_rows(path: Path) -> Iterator[_Placed]:
    file = read_yaml(path, JobFile)
    for index, row in enumerate(file.value.jobs):
        lines = {name: file.line("jobs", index, name) for name in row.model_fields_set}
        yield _Placed(file.line("jobs", index), row, lines)


def _csv_rows(path: Path) -> Iterator[_Placed]:
    reader = csv.reader(io.StringIO(read_text(path, "name a CSV or YAML file in UTF-8"), newline=""), strict=True)
    line, columns = 1, list[str]()
    try:
        for cells in reader:
            if cells and not columns:
                columns = _columns(cells, path, line)
            elif cells:
                yield _Placed(line, _row(columns, cells, path, line), {})
            line = reader.line_num + 1  # a cell in quotes may go over several lines
    except csv.Error as error:
        raise JobError(f"not CSV: {error}", file=str(path), line=line, remedy="mend the quotes of this row") from None


def _columns(cells: list[str], path: Path, line: int) -> list[str]:
    """The header, if it has all that is needed and nothing else."""
    columns = [cell.strip() for cell in cells]
    known = ", ".join(JobRow.model_fields)
    for number, name in enumerate(columns, start=1):
        field = name or f"column {number}"
        if name not in JobRow.model_fields:
            raise JobError("is not a known column", file=str(path), line=line, field=field, remedy=f"use {known}")
        if name in columns[: number - 1]:
            raise JobError("is a column twice", file=str(path), line=line, field=field, remedy="keep one of them")
    for name, field_info in JobRow.model_fields.items():
        if field_info.is_required() and name not in columns:
            raise JobError("is missing", file=str(path), line=line, field=name, remedy=f"add a column {name}")
    return columns


def _row(columns: list[str], cells: list[str], path: Path, line: int) -> JobRow:
    if len(cells) > len(columns):
        raise JobError(
            f"{len(cells)} cells under {len(columns)} columns",
            file=str(path),
            line=line,
            field=columns[-1],
            remedy="put a cell that has commas in quotes",
        )
    given = {name: cell.strip() for name, cell in zip(columns, cells, strict=False) if cell.strip()}
    try:
        return JobRow.model_validate(given)
    except ValidationError as error:
        details, problem, remedy = first_complaint(error)
        raise JobError(problem, file=str(path), line=line, field=str(details["loc"][0]), remedy=remedy) from None


def arrival(row: JobRow, cluster: Cluster) -> Arrival:
    """A job with all the shapes that it accepts, and the truth about it."""
    if (row.duration is None) == (row.steps is None):
        both = "there are both a duration and steps" if row.steps else "there is neither a duration nor steps"
        raise JobError(both, field="duration", remedy="give one of the two")
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


def _speeds(speed: dict[str, float], cluster: Cluster, field: str) -> dict[str, float]:
    if list(speed) == [ANY]:
        return dict.fromkeys(cluster.accelerators, speed[ANY])
    if not speed:
        raise JobError("names no GPU type", field=field, remedy=f"use {', '.join(cluster.accelerators)}")
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
    types = list(dict.fromkeys(row.gpu_type)) or [name for name in ranked if name in believed]
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
