"""`horae compare`: policies side by side on one workload. This module has the options; `compare_run` does the work."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from horae.cli.output import Data
from horae.cli.sharing import SharingOption
from horae.cli.text import examples
from horae.cli.workload_options import (
    BrokenMax,
    Map,
    Speeds,
    Strict,
    TraceFormat,
    Types,
    Where,
    WholeNodes,
    WorkloadOptions,
)
from horae.model.setup import Cadence
from horae.reports import UNFAIR_ABOVE
from horae.traces import BROKEN_MAX

app = typer.Typer(add_completion=False)


class CompareFormat(Enum):
    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    MARKDOWN = "md"


class By(Enum):
    TENANT = "tenant"
    USER = "user"


@dataclass(frozen=True, kw_only=True)
class Request:
    """The request as written; None and empty values stand for omitted options."""

    jobs: str  # a file, or a generator with its options
    cluster: Path | None = None
    nodes: tuple[str, ...] = ()
    others: tuple[str, ...] = ()  # clusters on which everything is run as well
    policies: tuple[str, ...] = ()
    baseline: str | None = None
    cadence: Cadence | None = None
    round_seconds: float | None = None
    seeds: int = 1
    restart_seconds: float | None = None
    days_between_failures: float | None = None
    repair_seconds: float = 3600.0
    checkpoint_seconds: float = 0.0
    workload: WorkloadOptions = field(default_factory=WorkloadOptions)
    sharing: Path | None = None  # a table of pairs; none: no jobs share GPUs
    workers: int | None = None
    cache: Path | None = None
    no_cache: bool = False
    output: CompareFormat = CompareFormat.TABLE
    by: By | None = None
    unfair_above: float = UNFAIR_ABOVE
    jobs_out: Path | None = None
    plots: Path | None = None
    report: Path | None = None
    verbose: bool = False
    quiet: bool = False


Jobs = Annotated[
    str, typer.Argument(help="A trace: a job table, a published trace, or a generator: 'poisson={jobs: 500}'.")
]
ClusterOption = Annotated[Path | None, typer.Option("--cluster", help="A cluster file. Or give --nodes.")]
Nodes = Annotated[
    list[str] | None,
    typer.Option(help="A quick cluster: 20x8, 20x8:V100, or nlp=20x8 for nodes that a tenant owns. Repeat for more."),
]
Policy = Annotated[
    list[str] | None,
    typer.Option(
        help="A policy, with options as YAML: 'tiresias={limits: [1, 3]}'. Repeat for more; seven by default."
    ),
]
Baseline = Annotated[
    str | None, typer.Option(help="The policy that others are compared with; slurm by default, or the first.")
]
CadenceOption = Annotated[
    Cadence | None, typer.Option("--cadence", help="When policies are asked; else as the cluster file says.")
]
RoundSeconds = Annotated[float | None, typer.Option(help="Length of a round.")]
Seeds = Annotated[
    int, typer.Option(min=1, max=10_000, help="Draws. 0 is the trace as it is, others draw whole days of it anew.")
]
RestartSeconds = Annotated[float | None, typer.Option(help="Time to resume, for jobs that say nothing of it.")]
DaysBetweenFailures = Annotated[
    float | None, typer.Option(help="Let every node fail at random, on average once in so many days.")
]
RepairSeconds = Annotated[float, typer.Option(help="How long a failed node is away.")]
CheckpointSeconds = Annotated[
    float, typer.Option(help="A failed node takes with it what was done since the last checkpoint; 0: nothing.")
]
Workers = Annotated[int | None, typer.Option(min=1, max=1024, help="Processes; as many as there are cores by default.")]
CacheOption = Annotated[Path | None, typer.Option("--cache", help="Where results are kept; ~/.cache/horae by default.")]
NoCache = Annotated[bool, typer.Option("--no-cache", help="Run everything anew, and keep nothing.")]
Output = Annotated[CompareFormat, typer.Option("-o", "--output", help="How to print the result.")]
ByOption = Annotated[By | None, typer.Option("--by", help="The numbers of each tenant or user as well.")]
UnfairAbove = Annotated[float, typer.Option(min=0.0, help="Apps with a larger rho count as treated unfairly.")]
Vs = Annotated[
    list[str] | None,
    typer.Option("--vs", help="Another cluster, a file or 1x12:A100: the same on it. Repeat for more."),
]
JobsOut = Annotated[
    Path | None, typer.Option("--jobs-out", help="Write the result of every job here: .csv or .parquet.")
]
Plots = Annotated[Path | None, typer.Option(help="Draw the table and its runs into this folder (PDF, SVG, PNG).")]
Report = Annotated[
    Path | None, typer.Option(help="Write one page with the answer in words, tables and plots here: report.html.")
]
Verbose = Annotated[bool, typer.Option(help="A line for each finished run.")]
Quiet = Annotated[bool, typer.Option(help="No notes and no progress, but broken rows and jobs that cannot run.")]


@app.command(
    epilog=examples(
        "horae compare jobs.csv --nodes 6x8 --plots plots --report report.html",
        "horae compare sacct.txt --nodes 6x8 --policy fifo --policy las --seeds 5",
    )
)
def compare_command(
    jobs: Jobs,
    cluster: ClusterOption = None,
    nodes: Nodes = None,
    vs: Vs = None,
    policy: Policy = None,
    baseline: Baseline = None,
    cadence: CadenceOption = None,
    round_seconds: RoundSeconds = None,
    seeds: Seeds = 1,
    restart_seconds: RestartSeconds = None,
    days_between_failures: DaysBetweenFailures = None,
    repair_seconds: RepairSeconds = 3600.0,
    checkpoint_seconds: CheckpointSeconds = 0.0,
    trace_format: TraceFormat = None,
    map_: Map = None,
    where: Where = None,
    types: Types = None,
    whole_nodes: WholeNodes = True,
    speeds: Speeds = None,
    sharing: SharingOption = None,
    data: Data = None,
    strict: Strict = False,
    broken_max: BrokenMax = BROKEN_MAX,
    workers: Workers = None,
    cache: CacheOption = None,
    no_cache: NoCache = False,
    output: Output = CompareFormat.TABLE,
    by: ByOption = None,
    unfair_above: UnfairAbove = UNFAIR_ABOVE,
    jobs_out: JobsOut = None,
    plots: Plots = None,
    report: Report = None,
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> None:
    """Policies side by side on one workload, with intervals and a lower bound.

    Runs execute in parallel. Finished results are kept, so that the same command, or one with an additional policy,
    runs only what is missing.
    """
    from horae.cli.compare_run import run_comparison  # noqa: PLC0415  (statistics take a second to import)

    code = run_comparison(
        Request(
            jobs=jobs,
            cluster=cluster,
            nodes=tuple(nodes or ()),
            others=tuple(vs or ()),
            policies=tuple(policy or ()),
            baseline=baseline,
            cadence=cadence,
            round_seconds=round_seconds,
            seeds=seeds,
            restart_seconds=restart_seconds,
            days_between_failures=days_between_failures,
            repair_seconds=repair_seconds,
            checkpoint_seconds=checkpoint_seconds,
            workload=WorkloadOptions(
                format=trace_format,
                mapping=map_,
                where=where,
                types=types,
                whole_nodes=whole_nodes,
                speeds=tuple(speeds or ()),
                data=data,
                strict=strict,
                broken_max=broken_max,
            ),
            sharing=sharing,
            workers=workers,
            cache=cache,
            no_cache=no_cache,
            output=output,
            by=by,
            unfair_above=unfair_above,
            jobs_out=jobs_out,
            plots=plots,
            report=report,
            verbose=verbose,
            quiet=quiet,
        )
    )
    if code:
        raise typer.Exit(code)
