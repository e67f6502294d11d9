"""One row of the job table, with the valid values of each field. Column readers accept only what this model accepts.

| field          | meaning                                                                                |
|----------------|----------------------------------------------------------------------------------------|
| id             | unique name; row number if absent, `row-7` where another job is called 7                |
| submit         | seconds since the start; readers convert dates                                         |
| gpus           | size of the gang                                                                       |
| duration       | run time in the first shape accepted; or `steps`                                       |
| steps          | amount of work; with `duration` absent                                                 |
| tenant, user   | owner of the job                                                                       |
| app            | jobs of one app belong together                                                        |
| model          | what it trains, as named in speed tables                                               |
| gpu_type       | types accepted, in order of preference (`A100\\|V100`); any if absent, fastest first   |
| speed          | estimated steps per second, a number or by type (`A100=3.1;V100=1.4`); 1 if absent     |
| true_speed     | the true speed, known only to the engine; as estimated if absent                       |
| level          | the largest cell that may hold the gang; `node` if one can, else `cluster`             |
| slowdown       | by level, how much slower the job is there (`rack=1.3;cluster=1.6`)                    |
| member_gpus    | where the gang may span nodes: GPUs that must share one                                |
| members        | the same where sizes differ: GPUs of each member (`8\\|4\\|4`)                         |
| nodes          | the names of nodes on which it may run (`a0\\|a1`); all if absent                      |
| pinned         | the pinned cell of its tenant in which it must run                                     |
| lazy           | it may be made preemptible where it runs, rather than be stopped at once               |
| start          | when it started where it was recorded; `compare` shows that run beside the others      |
| start_type     | the GPU type on which it ran where it was recorded, if it could have had others         |
| limit          | the run time that its user asked for at most; backfilling relies on it                 |
| weight, priority, deadline, restart, min_runtime, grace, preemptions_max, retries_max, cpus_per_gpu, memory_per_gpu,
  command, workdir | as they say                                                                          |
"""

from __future__ import annotations

import re
from math import inf
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from horae.model.safe_text import quoted
from horae.traces.units import memory_bytes, seconds

ANY = ""  # stands for every GPU type, where the speed is one number
SECONDS_MAX = 1e10  # three centuries: beyond, rounding would lose a second
GPUS_MAX = PRIORITY_MAX = RETRIES_MAX = 1_000_000  # larger values are typos
_FRACTION = re.compile(r"[+-]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))([eE][+-]?[0-9]+)?")


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
    """One number, or one per GPU type."""
    if value == {}:
        raise ValueError("names no GPU type; give one number, or one for each type")
    by_type = isinstance(value, dict) or (isinstance(value, str) and "=" in value)
    return _pairs(value) if by_type else {ANY: value}


def _names(value: object) -> object:
    return [part.strip() for part in value.split("|") if part.strip()] if isinstance(value, str) else value


def _sizes(value: object) -> object:
    """`8|4|4` as a list, and one number as a list of one element."""
    return [value] if type(value) is int else _names(value)


def _plain_number(value: object) -> object:
    if isinstance(value, str) and "_" in value:
        raise ValueError(f"is {quoted(value)}; give a number without underscores")
    return value


def _whole(value: object) -> object:
    """A whole number, also from `4.0` and `1e3`."""
    value = _plain_number(value)
    if isinstance(value, str) and _FRACTION.fullmatch(value) and float(value).is_integer():
        return int(float(value))
    return value


Seconds = Annotated[float, BeforeValidator(seconds), Field(le=SECONDS_MAX)]
Number = Annotated[float, BeforeValidator(_plain_number)]
Finite = Annotated[Number, Field(allow_inf_nan=False)]
Positive = Annotated[Finite, Field(gt=0)]
Whole = Annotated[int, BeforeValidator(_whole)]
Gpus = Annotated[Whole, Field(gt=0, le=GPUS_MAX)]
Numbers = Annotated[dict[str, Positive], BeforeValidator(_numbers)]


class JobRow(BaseModel):
    model_config = ConfigDict(extra="forbid", coerce_numbers_to_str=True)

    id: str = ""
    submit: Seconds
    gpus: Gpus
    duration: Annotated[Seconds, Field(gt=0)] | None = None
    steps: Positive | None = None
    user: str = ""
    tenant: str = "default"
    app: str = ""
    model: str = ""
    gpu_type: Annotated[list[str], BeforeValidator(_names)] = []
    speed: Numbers = {ANY: 1.0}
    true_speed: Numbers | None = None
    level: str = ""
    slowdown: Annotated[dict[str, Annotated[Finite, Field(ge=1)]], BeforeValidator(_pairs)] = {}
    member_gpus: Gpus = 1
    members: Annotated[list[Gpus], BeforeValidator(_sizes)] = []
    nodes: Annotated[list[str], BeforeValidator(_names)] = []
    pinned: str = ""
    lazy: bool = False
    weight: Positive = 1.0
    priority: Annotated[Whole, Field(ge=-PRIORITY_MAX, le=PRIORITY_MAX)] = 0
    deadline: Seconds = inf
    limit: Annotated[Seconds, Field(gt=0)] = inf
    start: Seconds | None = None
    start_type: str = ""
    restart: Seconds | None = None
    min_runtime: Seconds = 0.0
    grace: Seconds = 0.0
    preemptions_max: Annotated[Number, Field(ge=0)] = inf
    retries_max: Annotated[Whole, Field(ge=0, le=RETRIES_MAX)] = 0
    cpus_per_gpu: Annotated[Finite, Field(ge=0)] = 0.0
    memory_per_gpu: Annotated[float, BeforeValidator(memory_bytes)] = 0.0
    command: str = ""
    workdir: str = ""


class JobFile(BaseModel):
    """A file of job rows, which are validated one by one so that an invalid row does not affect the others."""

    model_config = ConfigDict(extra="forbid")

    jobs: list[object]
