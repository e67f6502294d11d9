"""`horae reproduce live`: real jobs under a real service, beside the same trace in the simulator."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from horae.cli.output import Output, OutputFormat, console, right
from horae.model.errors import InputError
from horae_evaluation.live.comparison import OTHER_DRAWS, SIMULATIONS, TOLERANCE, Comparison, compare
from horae_evaluation.live.service_run import ServiceRun, run_service
from horae_evaluation.live.workload import POLICIES, cluster_file, draw_jobs

STAGGER_SECONDS = 3.7  # between two runs, which would otherwise start the same jobs at the same moments


def live_command(
    policy: Annotated[list[str], typer.Option(help="tiresias, max-min or themis; again for more.")] = list(POLICIES),  # noqa: B006
    jobs: Annotated[int, typer.Option(min=1, help="How many jobs are run.")] = 60,
    runs: Annotated[int, typer.Option(min=1, max=20, help="Real runs of the same jobs, all at the same time.")] = 4,
    seed: Annotated[int, typer.Option(min=0, help="Of the jobs; each run draws its own speeds.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Write all results, job by job, into this JSON file.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Tell nothing on the way.")] = False,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Real jobs on emulated GPUs, preempted and resumed, beside the same jobs in the simulator."""
    for name in policy:
        if name not in POLICIES:
            raise InputError(f"is {name!r}", field="--policy", remedy=f"use {', '.join(POLICIES)}")
    if out is not None and not out.absolute().parent.is_dir():
        raise InputError(f"{out} cannot be written", field="--out", remedy="name a file in a folder that exists")
    found = [_run(name, jobs, runs, seed, quiet=quiet) for name in policy]
    plain = {"seed": seed, "results": [each.plain() for each in found]}
    if out is not None:
        out.write_text(json.dumps(plain, indent=2) + "\n")
    if output is OutputFormat.JSON:
        print(json.dumps(plain, indent=2))
    else:
        _print(found)
    if not all(each.holds for each in found):
        raise typer.Exit(1)


def _run(policy: str, jobs: int, runs: int, seed: int, *, quiet: bool) -> Comparison:
    """The jobs spend their time sleeping, so that several services run beside each other on few processors."""
    with ProcessPoolExecutor(runs, get_context("spawn")) as pool:
        tasks = [pool.submit(_run_once, policy, jobs, seed, number, quiet=quiet) for number in range(runs)]
        return compare(policy, [task.result() for task in tasks])


def _run_once(policy: str, jobs: int, seed: int, number: int, *, quiet: bool) -> ServiceRun:
    noise = seed + number
    time.sleep(number * STAGGER_SECONDS)

    def tell(text: str) -> None:
        if not quiet:
            load = os.getloadavg()[0]
            print(f"{policy}, run {noise}: {text}; load {load:.1f}", file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory(prefix="horae-live-") as folder:
        return run_service(cluster_file(policy), draw_jobs(jobs, seed), noise, Path(folder), tell)


def _print(found: Sequence[Comparison]) -> None:
    headings = (
        "runs",
        "jobs",
        "mean completion (s)",
        "simulated",
        "difference",
        "of single runs",
        "90% of jobs within",
    )
    more = ("preemptions", "simulated", "makespan (s)", "simulated", "other draws (s)")
    table = Table("policy", *right(*headings, *more), "")
    for each in found:
        single = sorted(each.run_differences)
        table.add_row(
            each.policy,
            str(len(each.real)),
            str(len(each.real[0])),
            *(f"{seconds:,.1f}" for seconds in each.completion_mean_seconds),
            f"{each.completion_difference:+.1%}",
            f"{single[0]:+.0%} to {single[-1]:+.0%}",
            f"{each.job_error_p90:.0%}",
            *(f"{count:.0f}" for count in each.preemptions),
            *(f"{seconds:,.0f}" for seconds in each.makespan_seconds),
            f"{each.other_draws_mean_seconds:,.1f} ± {each.chance[1]:.0%}",
            f"within {TOLERANCE:.0%}" if each.holds else "DIFFERS",
        )
    console().print(table)
    print(
        f"Simulated: {SIMULATIONS} simulations of each run, with its speeds and start-ups. Other draws: {OTHER_DRAWS} "
        "simulations with other speeds and start-ups. ±: the standard deviation of a single one."
    )
    for each in found:
        starting, leaving, closing = each.overheads.means
        print(
            f"{each.policy}: simulations of the same run vary by ± {each.chance[0]:.1%}; the machine added "
            f"{starting:.2f} s to a start, {leaving:.2f} s to a stop and {closing:.2f} s to an end"
        )
