"""Sweeps: one job file, many trials, and the way in which some of them are stopped.

sweep:
  lr: {log_uniform: [0.0001, 0.1]}   # a range, or a list of values
  units: [64, 128]
  random: 16                         # so many points, drawn; without it, the grid of all values
  stop: hyperband                    # or successive-halving, or all: every trial runs to its end
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from math import exp, isfinite, log
from random import Random
from typing import Any

from horae.model.errors import JobError
from horae.model.safe_text import shown
from horae.model.searches import Method, Rungs, bracket_sizes
from horae.service.models import ARRAY_MAX, RANDOM, STOP, JobSpec

METHODS = {"all": Method.GRID, "successive-halving": Method.HALVING, "hyperband": Method.HYPERBAND}
RANGES = ("uniform", "log_uniform", "integer")


def points(spec: JobSpec, sweep: Mapping[str, Any]) -> Iterator[JobSpec]:
    """One job file per point: parameters replace `{name}` in its command, and are in its environment."""
    stop = sweep.get(STOP, next(iter(METHODS)))
    if not isinstance(stop, str) or stop not in METHODS:
        raise JobError(f"is {shown(stop)}", field="sweep.stop", remedy=f"use {', '.join(METHODS)}")
    if METHODS[stop] is not Method.GRID and spec.steps is None:
        problem = f"are missing: {stop} compares trials after a part of their steps"
        raise JobError(problem, field="steps", remedy="give the number of steps of a whole trial, steps: 10000")
    values = {name: _checked(name, value) for name, value in sweep.items() if name not in (STOP, RANDOM)}
    if not values:
        raise JobError("names no parameter", field="sweep", remedy="give values: sweep: {lr: [0.1, 0.01]}")
    for chosen in _grid(values) if RANDOM not in sweep else _drawn(values, sweep[RANDOM]):
        yield _point(spec, chosen, stop)


def _grid(values: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    count = 1
    for name, given in values.items():
        if isinstance(given, dict):
            raise JobError("is a range", field=f"sweep.{name}", remedy="give a list, or draw points: random: 16")
        count *= len(given)
    if count > ARRAY_MAX:
        raise JobError(f"has {count:,} points", field="sweep", remedy=f"use at most {ARRAY_MAX:,}")
    for chosen in product(*values.values()):
        yield dict(zip(values, chosen, strict=True))


def _drawn(values: Mapping[str, Any], wanted: Any) -> Iterator[dict[str, Any]]:
    """Points drawn at random: the same for the same sweep, and the first ones also if more are wanted."""
    asked = wanted if isinstance(wanted, dict) else {"trials": wanted}
    trials, seed = asked.get("trials"), asked.get("seed", 0)
    are_known = type(seed) is int and not set(asked) - {"trials", "seed"}
    if not (isinstance(trials, int) and 1 <= trials <= ARRAY_MAX and are_known):
        remedy = f"give a number of points up to {ARRAY_MAX:,}, or {{trials: 16, seed: 1}}"
        raise JobError(f"is {shown(wanted)}", field="sweep.random", remedy=remedy)
    for number in range(trials):
        yield {name: _draw(given, Random(f"{seed} {number} {name}")) for name, given in values.items()}


def _draw(given: Any, random: Random) -> Any:
    if isinstance(given, list):
        return given[int(random.random() * len(given))]
    ((kind, (low, high)),) = given.items()
    if kind == "integer":
        return low + int(random.random() * (high - low + 1))
    if kind == "log_uniform":
        return float(f"{exp(log(low) + random.random() * (log(high) - log(low))):.6g}")
    return float(f"{low + random.random() * (high - low):.6g}")


def _checked(name: str, value: Any) -> Any:
    """A list of values, or a range."""
    if not name.isidentifier():
        raise JobError(f"{shown(name)} is no name of a parameter", field="sweep", remedy="use letters, digits and _")
    if isinstance(value, dict):
        return _range(name, value)
    values = value if isinstance(value, list) else [value]
    is_text = all(isinstance(each, str | int | float) and str(each).isprintable() for each in values)
    if not values or not is_text:
        raise JobError(f"is {shown(value)}", field=f"sweep.{name}", remedy="give a list of numbers or texts")
    return values


def _range(name: str, value: dict[str, Any]) -> dict[str, Any]:
    remedy = "give a range such as {uniform: [0, 1]}, {log_uniform: [0.001, 0.1]} or {integer: [1, 8]}"
    kind, ends = next(iter(value.items()), ("", None))
    numbers = [end for end in ends if type(end) in (int, float) and isfinite(end)] if isinstance(ends, list) else []
    is_pair = len(value) == 1 and kind in RANGES and len(numbers) == len(ends or ()) == 2
    if not is_pair or numbers[0] > numbers[1] or (kind == "log_uniform" and numbers[0] <= 0):
        raise JobError(f"is {shown(value)}", field=f"sweep.{name}", remedy=remedy)
    if kind == "integer" and not all(isinstance(each, int) for each in numbers):
        raise JobError(f"is {shown(value)}", field=f"sweep.{name}", remedy=remedy)
    return value


def _point(spec: JobSpec, chosen: Mapping[str, Any], stop: str) -> JobSpec:
    run, env = spec.run, dict(spec.env)
    for name, value in chosen.items():
        run = run.replace("{" + name + "}", str(value))
        env.setdefault(f"HORAE_PARAM_{name}", str(value))
    return spec.model_copy(update={"run": run, "env": env, "sweep": {**chosen, STOP: stop}})


# Trials


def parameters(spec: JobSpec) -> dict[str, Any]:
    """The values of one trial."""
    return {name: value for name, value in (spec.sweep or {}).items() if name != STOP}


def trial_rows(search: int, job_ids: list[str], spec: JobSpec) -> list[dict[str, Any]]:
    """The rows of the trials of a search that stops some of them; none for other jobs. `spec`: of any of them."""
    method = METHODS[(spec.sweep or {}).get(STOP, "all")]
    if method is Method.GRID:
        return []
    sizes = bracket_sizes(method, len(job_ids))
    brackets = [(bracket, size) for bracket, size in enumerate(sizes) for _ in range(size)]
    new = {"search": search, "rung": 0, "state": "running", "steps": 0.0, "loss": None, "reached": False}
    return [
        {**new, "job_id": job_id, "bracket": bracket, "size": size, "position": position}
        for position, (job_id, (bracket, size)) in enumerate(zip(job_ids, brackets, strict=True))
    ]


def milestone(size: int, rung: int, steps_total: float) -> float:
    """The number of steps at the end of a rung, in a bracket of this size."""
    return Rungs(size).part_until(rung) * steps_total


def milestones_reached(size: int, steps_total: float, steps: float) -> int:
    """How many rungs end at or before this step."""
    return sum(milestone(size, rung, steps_total) <= steps for rung in range(Rungs(size).number))
