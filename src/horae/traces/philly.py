"""The four Philly virtual clusters with published results (Jeon et al., ATC'19; results: Hu et al., SC'21).

Files in the data folder, under `philly/`: `philly_4vc.csv.gz` (job_id, vc, submit_s, num_gpu, duration_s),
`vc_nodes.csv` (vc, nodes_8gpu) and `published_vc_results.csv` (vc, policy, avg_jct_s).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl

from horae.model.cells import CLUSTER, NODE
from horae.model.errors import InputError
from horae.model.jobs import Arrival, Job, Truth
from horae.model.shapes import Option, Shape

ACCELERATOR = "gpu"  # Philly does not say which
GPUS_PER_NODE = 8
WINDOW = (3_724_782, 8_995_122)  # 2017-10-01 00:00 to 2017-11-30 23:59, in seconds of the file


def read_table(data: Path, name: str) -> pl.DataFrame:
    """A table of the data folder; a clear word if it is not there."""
    path = data / name
    if not path.is_file():
        raise InputError(
            "is not in the data folder",
            file=str(path),
            remedy="name the folder that holds it with --data or HORAE_DATA",
        )
    return pl.read_csv(path)


def philly_jobs(data: Path) -> pl.DataFrame:
    return read_table(data, "philly/philly_4vc.csv.gz").sort("submit_s", maintain_order=True)


def philly_nodes(data: Path) -> dict[str, int]:
    return dict(read_table(data, "philly/vc_nodes.csv").select("vc", "nodes_8gpu").iter_rows())


def published_completion(data: Path) -> dict[tuple[str, str], float]:
    """By virtual cluster and policy: the published mean completion time in seconds."""
    rows = read_table(data, "philly/published_vc_results.csv").select("vc", "policy", "avg_jct_s").iter_rows()
    return {(vc, policy): float(seconds) for vc, policy, seconds in rows}


def arrivals(jobs: pl.DataFrame, tenant: str = "vc", gpus_per_node: int = GPUS_PER_NODE) -> Iterator[Arrival]:
    """Gangs that fit a node stay in one; larger ones take whole nodes."""
    options: dict[int, tuple[Option, ...]] = {}
    for job_id, owner, submit, gpus, duration in jobs.select(
        "job_id", tenant, "submit_s", "num_gpu", "duration_s"
    ).iter_rows():
        if gpus not in options:
            shape = Shape(ACCELERATOR, gpus, NODE if gpus <= gpus_per_node else CLUSTER)
            options[gpus] = (Option(shape, 1.0),)
        steps = float(duration)
        job = Job(
            job_id,
            float(submit),
            options[gpus],
            tenant=owner,
            steps_total=steps,
            member_gpus=min(gpus, gpus_per_node),
        )
        yield Arrival(job, Truth(steps, options[gpus]))
