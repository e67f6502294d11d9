"""A made-up accounting file, as `sacct -a -X -P` prints it, of any size."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

COLUMNS = "JobID|User|Account|Partition|Submit|Start|End|State|AllocTRES|ReqTRES|ElapsedRaw|Timelimit"
GANGS = (1, 2, 4, 8, 16)


def write_sacct(path: Path, rows: int, seed: int) -> None:
    """One job a row; a tenth asks for no GPU, some never ran, some still run."""
    random = np.random.default_rng(seed)
    submit = 1_700_000_000 + np.cumsum(random.integers(0, 60, rows))
    wait, elapsed = random.integers(0, 5000, rows), random.lognormal(7.5, 1.5, rows).astype(np.int64) + 1
    gpus, cpus = random.choice(GANGS, rows), random.integers(1, 65, rows)
    kind = random.random(rows)
    table = pl.DataFrame({"submit": submit, "start": submit + wait, "end": submit + wait + elapsed, "gpus": gpus})
    table = table.with_columns(
        pl.from_epoch("submit", "s").dt.strftime("%Y-%m-%dT%H:%M:%S"),
        pl.from_epoch("start", "s").dt.strftime("%Y-%m-%dT%H:%M:%S"),
        pl.from_epoch("end", "s").dt.strftime("%Y-%m-%dT%H:%M:%S"),
        id=pl.int_range(1_000_000, 1_000_000 + rows),
        user=pl.Series(random.integers(0, 400, rows)),
        account=pl.Series(random.integers(0, 30, rows)),
        cpus=pl.Series(cpus),
        elapsed=pl.Series(elapsed),
        kind=pl.Series(kind),
    ).with_columns(_tres())
    with path.open("w", encoding="utf-8") as file:
        file.write(COLUMNS + "\n")
        table.select(pl.concat_str(*_cells(), separator="|")).write_csv(file, include_header=False, quote_style="never")


def _tres() -> pl.Expr:
    gpu = pl.format(",gres/gpu:a100={},gres/gpu={}", "gpus", "gpus")
    gpu = pl.when(pl.col("kind") < 0.1).then(pl.lit("")).otherwise(gpu)
    return pl.format("billing={},cpu={}{},mem=200G,node=1", "cpus", "cpus", gpu).alias("tres")


def _cells() -> list[pl.Expr]:
    never, running = pl.col("kind").is_between(0.1, 0.12), pl.col("kind").is_between(0.12, 0.13)
    return [
        pl.col("id").cast(pl.String),
        pl.format("user{}", "user"),
        pl.format("team{}", "account"),
        pl.lit("gpu"),
        pl.col("submit"),
        pl.when(never).then(pl.lit("None")).otherwise("start"),
        pl.when(never | running).then(pl.lit("Unknown")).otherwise("end"),
        pl.when(never)
        .then(pl.lit("CANCELLED by 1000"))
        .when(running)
        .then(pl.lit("RUNNING"))
        .otherwise(pl.lit("COMPLETED")),
        pl.when(never).then(pl.lit("")).otherwise("tres"),
        pl.col("tres"),
        pl.when(never).then(pl.lit("0")).otherwise(pl.col("elapsed").cast(pl.String)),
        pl.lit("1-00:00:00"),
    ]
