"""What all generators share: random streams, parameter checks, and the table that they make.

Every column has its own random stream, made from the seed and the column's name, so that a generator that gains a
column draws all others as before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isclose, isfinite
from typing import ClassVar, Protocol

import numpy as np
import polars as pl

from horae.model.arrays import Floats, Ints
from horae.model.errors import InputError
from horae.model.safe_text import brief
from horae.traces.trace import SCHEMA, Trace

HOUR = 3600.0
COUNT_MAX = 100_000_000  # a bound, so that a typo does not fill the memory
SIGMA_MAX = 20.0  # beyond that, run times overflow
GANGS = (1, 2, 4, 8)
GANG_PROBABILITIES = (0.7, 0.1, 0.15, 0.05)


class Generator(Protocol):
    """A synthetic workload. Its fields are its parameters; the same seed gives the same jobs."""

    name: ClassVar[str]

    def trace(self, seed: int) -> Trace: ...


def stream(seed: int, column: str) -> np.random.Generator:
    require_seed(seed)
    return np.random.default_rng([seed, *column.encode()])


def arrivals_at(seed: int, jobs: int, interval_seconds: float) -> Floats:
    """Poisson arrivals: the gaps are exponential."""
    return np.cumsum(stream(seed, "submit").exponential(interval_seconds, jobs))


def gangs_of(seed: int, jobs: int, gangs: Sequence[int], probabilities: Sequence[float]) -> Ints:
    return stream(seed, "gpus").choice(np.array(gangs, dtype=np.int64), jobs, p=np.array(probabilities))


def made_trace(source: str, seed: int, columns: Mapping[str, object]) -> Trace:
    """The table in the order of the schema's columns; row numbers stand in for file lines."""
    table = pl.DataFrame({name: columns[name] for name in SCHEMA if name in columns}, schema_overrides=SCHEMA)
    line = pl.int_range(1, table.height + 1, dtype=pl.Int64).alias("line")
    return Trace(f"{source}, seed {seed}", table.with_columns(line))


def names(count: int) -> list[str]:
    return [str(index) for index in range(count)]


def require(is_met: bool, field: str, value: object, remedy: str) -> None:
    if not is_met:
        raise InputError(f"is {brief(value)}", field=field, remedy=remedy)


def require_seed(seed: int) -> None:
    require(seed >= 0, "seed", seed, "give a whole number of at least 0")


def require_positive(generator: object, *fields: str) -> None:
    for field in fields:
        value = getattr(generator, field)
        require(isfinite(value) and value > 0, field, value, "give a number above 0")
        require(field != "sigma" or value <= SIGMA_MAX, field, value, f"give at most {SIGMA_MAX:g}")


def require_count(generator: object, *fields: str) -> None:
    for field in fields:
        value = getattr(generator, field)
        require(1 <= value <= COUNT_MAX, field, value, f"give 1 to {COUNT_MAX:,}")


def require_share(generator: object, *fields: str) -> None:
    for field in fields:
        value = getattr(generator, field)
        require(0 <= value <= 1, field, value, "give a number from 0 to 1")


def require_gangs(gangs: Sequence[int], probabilities: Sequence[float]) -> None:
    require(len(gangs) > 0 and min(gangs, default=0) >= 1, "gangs", gangs, "give sizes of 1 or more")
    is_distribution = min(probabilities, default=-1) >= 0 and isclose(sum(probabilities), 1.0, abs_tol=1e-9)
    same_length = len(probabilities) == len(gangs)
    remedy = "give one probability a gang size; together they are 1"
    require(is_distribution and same_length, "gang_probabilities", probabilities, remedy)
