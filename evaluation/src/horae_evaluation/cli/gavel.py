"""`horae reproduce gavel`: its options; the work is done in `reproduce_gavel_run`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from horae.cli.output import Data


class GavelFormat(Enum):
    TABLE = "table"
    JSON = "json"
    CSV = "csv"


class WorkloadName(Enum):
    SINGLE = "single"
    MULTI = "multi"


class SweepName(Enum):
    ROUNDS = "rounds"
    RESTART = "restart"
    NOISE = "noise"
    PROFILING = "profiling"
    ESTIMATES = "estimates"


@dataclass(frozen=True, kw_only=True)
class GavelRequest:
    """The request as written; None and empty values stand for omitted options."""

    data: Path | None
    workloads: tuple[str, ...] = ()
    rates: tuple[float, ...] = ()
    policies: tuple[str, ...] = ()
    seeds: int = 3
    measured: tuple[int, int] = (4000, 5000)
    compatible: bool = False
    makespan: bool = False
    ladder: bool = False
    sweep: str | None = None
    workers: int | None = None
    cache: Path | None = None
    plot: Path | None = None
    output: GavelFormat = GavelFormat.TABLE
    quiet: bool = False


Workloads = Annotated[
    list[WorkloadName] | None,
    typer.Option("--workload", help="Gangs of one GPU, or of 1, 2, 4 and 8. Repeat for both, which is the default."),
]
Rates = Annotated[
    list[float] | None,
    typer.Option("--rate", help="Jobs an hour, of one workload. Repeat for more; single 4.8 5.6, multi 2.4 2.6."),
]
Policies = Annotated[
    list[str] | None,
    typer.Option(
        "--policy",
        help="As the authors call it (max_min_fairness_perf) or as we do, with options as YAML: "
        "'max_min_fairness={fill: false}'. Repeat for more; by default all that were published.",
    ),
]
Seeds = Annotated[int, typer.Option(min=1, max=1000, help="Draws of the workload.")]
Measured = Annotated[
    tuple[int, int],
    typer.Option("--jobs-measured", metavar="FIRST LAST", help="By place in the order of arrival; fewer, to look."),
]
Compatible = Annotated[bool, typer.Option("--compatible", help="Rounds by the rules of the authors' mechanism.")]
Makespan = Annotated[bool, typer.Option("--makespan", help="500 jobs that are all there at the beginning.")]
Ladder = Annotated[bool, typer.Option("--ladder", help="From the authors' mechanism to ours, one rule at a time.")]
SweepOption = Annotated[
    SweepName | None, typer.Option("--sweep", help="Vary the length of rounds, restarts, or what is known of speeds.")
]
Workers = Annotated[int | None, typer.Option(min=1, max=1024, help="Processes; as many as there are cores by default.")]
CacheOption = Annotated[
    Path | None, typer.Option("--cache", help="Where finished runs are kept; ~/.cache/horae/reproduce by default.")
]
PLOT_ENDINGS, PLOT_ENDINGS_TEXT = (".pdf", ".svg", ".png"), ".pdf, .svg or .png"
Plot = Annotated[Path | None, typer.Option(help="Draw it into this file, and into those of the other two formats.")]
Output = Annotated[GavelFormat, typer.Option("-o", "--output", help="How to print the result.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Nothing on standard error but errors.")]


def gavel_command(
    data: Data = None,
    workload: Workloads = None,
    rate: Rates = None,
    policy: Policies = None,
    seeds: Seeds = 3,
    jobs_measured: Measured = (4000, 5000),
    compatible: Compatible = False,
    makespan: Makespan = False,
    ladder: Ladder = False,
    sweep: SweepOption = None,
    workers: Workers = None,
    cache: CacheOption = None,
    plot: Plot = None,
    output: Output = GavelFormat.TABLE,
    quiet: Quiet = False,
) -> None:
    """Gavel's simulations (OSDI'20) on 36 V100, 36 P100 and 36 K80, beside the authors' figures.

    Finished runs are kept: an interrupted command continues where it stopped. The exit code is 1 if heterogeneity-aware
    max-min is slower than published, or if two policies published more than 15% apart come out in the other order.
    """
    from horae_evaluation.cli.gavel_run import reproduce_gavel  # noqa: PLC0415  (polars and statistics take a second)

    code = reproduce_gavel(
        GavelRequest(
            data=data,
            workloads=tuple(each.value for each in workload or ()),
            rates=tuple(rate or ()),
            policies=tuple(policy or ()),
            seeds=seeds,
            measured=jobs_measured,
            compatible=compatible,
            makespan=makespan,
            ladder=ladder,
            sweep=sweep.value if sweep else None,
            workers=workers,
            cache=cache,
            plot=plot,
            output=output,
            quiet=quiet,
        )
    )
    if code:
        raise typer.Exit(code)
