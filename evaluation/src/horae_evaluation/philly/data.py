"""The four Philly virtual clusters with published results (Jeon et al., ATC'19; results: Hu et al., SC'21).

Files in the data folder, under `philly/`: `philly_4vc.csv.gz` (job_id, vc, submit_s, num_gpu, duration_s),
`vc_nodes.csv` (vc, nodes_8gpu) and `published_vc_results.csv` (vc, policy, avg_jct_s).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import polars as pl

from horae.model.errors import InputError
from horae.traces.trace import Trace

ACCELERATOR = "gpu"  # not specified for Philly
GPUS_PER_NODE = 8
WINDOW = (3_724_782, 8_995_122)  # 2017-10-01 00:00 to 2017-11-30 23:59, in seconds of the file


def read_table(data: Path, name: str, *, infer_schema: bool = True) -> pl.DataFrame:
    """A table of the data folder; raises a clear error if it is missing."""
    path = data / name
    if not path.is_file():
        raise InputError(
            "is not in the data folder",
            file=str(path),
            remedy="name the folder that holds it with --data or HORAE_DATA",
        )
    try:
        return pl.read_csv(path, infer_schema=infer_schema)
    except (OSError, pl.exceptions.PolarsError) as error:
        problem = str(error).strip().partition("\n")[0]
        raise InputError(f"not CSV: {problem}", file=str(path), remedy="fetch the file again") from None


def read_columns(data: Path, name: str, columns: Mapping[str, int | None]) -> pl.DataFrame:
    """These columns of a table: integers with a minimum, or text where the minimum is None."""
    table = read_table(data, name, infer_schema=False)
    for column, least in columns.items():
        if column not in table.columns:
            raise InputError("is missing", file=str(data / name), line=1, field=column, remedy="fetch the file again")
        if least is not None:
            table = table.with_columns(_numbers(table[column], least, data / name))
    return table.select(*columns)


def _numbers(texts: pl.Series, least: int, path: Path) -> pl.Series:
    numbers = texts.cast(pl.Int64, strict=False)
    wrong = (numbers.fill_null(least - 1) < least).arg_true()
    if len(wrong):
        row = int(wrong[0])
        raise InputError(
            f"is {texts[row]!r}",
            file=str(path),
            line=row + 2,  # below the header
            field=texts.name,
            remedy=f"give a whole number of at least {least}",
        )
    return numbers


def philly_jobs(data: Path) -> pl.DataFrame:
    columns = {"job_id": None, "vc": None, "submit_s": 0, "num_gpu": 1, "duration_s": 1}
    return read_columns(data, "philly/philly_4vc.csv.gz", columns).sort("submit_s", maintain_order=True)


def philly_nodes(data: Path) -> dict[str, int]:
    return dict(read_columns(data, "philly/vc_nodes.csv", {"vc": None, "nodes_8gpu": 1}).iter_rows())


def published_completion(data: Path) -> dict[tuple[str, str], float]:
    """By virtual cluster and policy: the published mean completion time in seconds."""
    table = read_columns(data, "philly/published_vc_results.csv", {"vc": None, "policy": None, "avg_jct_s": 1})
    return {(vc, policy): float(seconds) for vc, policy, seconds in table.iter_rows()}


def as_trace(jobs: pl.DataFrame, tenant: str = "vc") -> Trace:
    """A table of jobs as a trace; `tenant` names the column with the owner, which differs between tables."""
    table = jobs.select(
        pl.col("job_id").cast(pl.String).alias("id"),
        pl.col("submit_s").cast(pl.Float64).alias("submit"),
        pl.col("num_gpu").alias("gpus"),
        pl.col("duration_s").cast(pl.Float64).alias("duration"),
        pl.col(tenant).alias("tenant"),
        pl.int_range(2, pl.len() + 2).alias("line"),
    )
    return Trace("published jobs", table)
