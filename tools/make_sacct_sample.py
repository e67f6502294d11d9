"""Writes `src/horae/samples/sacct.txt`: the accounting of a made-up cluster, in the form in which Slurm prints it.

It has what real files have: arrays, steps, requeued and cancelled jobs, jobs without GPUs, jobs that wait or run at the
time of the query, allocations that name no type, types in lower case. The starts are those of first in, first out with
backfill on two nodes of 8 H100 and two of 8 A100.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

import horae

TARGET = Path(__file__).parents[1] / "src" / "horae" / "samples" / "sacct.txt"
COLUMNS = "JobID|User|Account|Submit|Start|End|State|AllocTRES|ReqTRES|ElapsedRaw|Timelimit"
CLUSTER = 'nodes: [{name: "h[0-1]", gpu: H100, gpus: 8}, {name: "a[0-1]", gpu: A100, gpus: 8}]\n'
BEGIN = datetime(2026, 9, 7, 7, 30)
HOURS, JOBS = 96, 260
TEAMS = (("nlp", "ada"), ("nlp", "bob"), ("vision", "cyd"), ("vision", "dan"), ("speech", "eve"))
LIMITS_HOURS = (1, 4, 12, 24, 48)
Row = dict[str, Any]


def main() -> None:
    rows = list(with_starts(list(draw(np.random.default_rng(7)))))
    lines = [COLUMNS, *(line for row in rows for line in written(row)), *others()]
    TARGET.write_text("\n".join(lines) + "\n", encoding="utf-8")


def draw(random: np.random.Generator) -> Iterator[Row]:
    """Jobs by day, more of them in working hours; some come as arrays of four."""
    times = np.sort(random.choice(HOURS, JOBS, p=weights()) * 3600 + random.integers(0, 3600, JOBS))
    number = 4100
    for index, at in enumerate(times.tolist()):
        account, user = TEAMS[int(random.choice(len(TEAMS), p=(0.3, 0.2, 0.2, 0.2, 0.1)))]
        seconds = int(np.clip(random.lognormal(8.4, 1.3), 40, 36 * 3600))
        limit = next((hours for hours in LIMITS_HOURS if hours * 3600 > seconds * random.uniform(1.0, 4.0)), 48)
        common = {
            "user": user,
            "tenant": account,
            "gpus": int(random.choice((1, 2, 4, 8, 16), p=(0.5, 0.15, 0.15, 0.15, 0.05))),
            "gpu_type": str(random.choice(("", "H100", "A100"), p=(0.5, 0.3, 0.2))),
            "limit": max(limit * 3600, seconds),
        }
        number += 1
        tasks = range(4) if index % 40 == 9 else [None]
        for task in tasks:
            name = str(number) if task is None else f"{number}_{task}"
            yield {"id": name, "submit": at, "duration": seconds, **common, **({} if task is None else {"gpus": 1})}


def weights() -> np.ndarray[Any, Any]:
    hours = np.arange(HOURS) % 24
    weight = np.where((hours >= 1) & (hours < 11), 4.0, 1.0)  # the trace begins at half past seven
    return weight / weight.sum()


def with_starts(jobs: list[Row]) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        cluster, table = Path(folder) / "lab.yaml", Path(folder) / "jobs.csv"
        cluster.write_text(CLUSTER)
        columns = ("id", "submit", "duration", "gpus", "gpu_type", "tenant", "user")
        text = "\n".join(",".join(str(job[name]) for name in columns) for job in jobs)
        table.write_text(f"{','.join(columns)}\n{text}\n")
        setup = horae.load_cluster(cluster)
        result = horae.simulate(setup, horae.load_jobs(table, setup), "fifo={backfill: true}")
    started = dict(result.jobs.select("id", "started_at").iter_rows())
    kinds = dict(result.leases.select("job", "accelerator").iter_rows())
    for job in jobs:
        yield {**job, "start": started[job["id"]], "kind": kinds[job["id"]]}


def written(job: Row) -> Iterator[str]:
    """The rows of one job: earlier runs, the job, its steps."""
    number = int(job["id"].partition("_")[0])
    start, end = job["start"], job["start"] + job["duration"]
    gpus, kind = job["gpus"], job["kind"].lower()
    asked = f"billing={8 * gpus},cpu={8 * gpus},gres/gpu{':' + kind if job['gpu_type'] else ''}={gpus},node=1"
    given = f"billing={8 * gpus},cpu={8 * gpus},gres/gpu={gpus},gres/gpu:{kind}={gpus},mem={64 * gpus}G,node=1"
    if number % 29 == 0:
        given = ""  # accounting lost it
    state = "COMPLETED"
    if job["duration"] >= job["limit"]:
        state = "TIMEOUT"
    elif number % 11 == 0:
        state = "FAILED"
    elif number % 13 == 0:
        state = "CANCELLED by 1004"
    person, limit = f"{job['user']}|{job['tenant']}", clock(job["limit"])
    if number % 47 == 0 and start - job["submit"] > 600:  # it had begun before, and its node failed
        first = job["submit"] + 60
        yield (
            f"{job['id']}|{person}|{date(job['submit'])}|{date(first)}|{date(first + 300)}|NODE_FAIL|{given}|{asked}|"
            f"300|{limit}"
        )
    times = f"{date(job['submit'])}|{date(start)}|{date(end)}"
    yield f"{job['id']}|{person}|{times}|{state}|{given}|{asked}|{job['duration']}|{limit}"
    steps = f"{date(start)}|{date(start)}|{date(end)}|{state.split()[0]}|{given}||{job['duration']}|"
    for step in ("batch", "extern"):
        yield f"{job['id']}.{step}||{job['tenant']}|{steps}"


def others() -> Iterator[str]:
    """Jobs without GPUs, one cancelled while it waited, and those that run or wait at the time of the query."""
    cpus = "billing=16,cpu=16,mem=64G,node=1"
    for number in range(6):
        at = 40_000 * number
        times = f"{date(at)}|{date(at + 5)}|{date(at + 905)}"
        yield f"{5001 + number}|cyd|vision|{times}|COMPLETED|{cpus}|{cpus}|900|01:00:00"
    end, asked = HOURS * 3600 + 7 * 86_400, "billing=8,cpu=8,gres/gpu=1,node=1"
    yield f"5101|eve|speech|{date(90_000)}|Unknown|{date(93_000)}|CANCELLED by 1005||{asked}|0|12:00:00"
    yield f"5102|ada|nlp|{date(end)}|{date(end + 60)}|Unknown|RUNNING|{asked}|{asked}|7200|1-00:00:00"
    yield f"5103|bob|nlp|{date(end + 3600)}|Unknown|Unknown|PENDING||{asked}|0|04:00:00"


def date(seconds: float) -> str:
    return (BEGIN + timedelta(seconds=int(seconds))).isoformat()


def clock(seconds: int) -> str:
    days, rest = divmod(seconds, 86_400)
    return (f"{days}-" if days else "") + f"{rest // 3600:02}:{rest % 3600 // 60:02}:{rest % 60:02}"


if __name__ == "__main__":
    main()
