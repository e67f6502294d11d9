"""`horae trace`: shows, converts, generates and plots workloads."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from math import isnan
from pathlib import Path
from typing import Annotated

import typer

from horae.cli.output import Data, Output, OutputFormat, need_data
from horae.cli.rows import tell_rows
from horae.cli.text import examples, printable
from horae.experiments.inputs import named_options, pairs
from horae.model.errors import InputError
from horae.model.safe_text import counted
from horae.traces import speed_tables
from horae.traces.formats import FORMATS, detect, read_trace, write_trace
from horae.traces.generators import GavelWorkload, Generator, make_generator
from horae.traces.generators.gavel import reference_speeds
from horae.traces.summary import TraceSummary, run_seconds, summarise
from horae.traces.trace import Trace, no_jobs

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Look at a workload, convert it, make one up, draw it.",
    epilog=examples("horae trace info jobs.csv", "horae trace generate 'poisson={jobs: 100}' jobs.csv"),
)

File = Annotated[Path, typer.Argument(help="A workload, of any format that is known.")]
FormatName = Annotated[str | None, typer.Option("--format", help=f"Its format: {', '.join(FORMATS)}; else by content.")]
Mapping = Annotated[
    str | None,
    typer.Option(
        "--map",
        help="For any CSV: submit=COLUMN,gpus=COLUMN,duration=COLUMN:h (or s, m, d), also user, tenant, model …",
    ),
]
Where = Annotated[str | None, typer.Option(help="Take only rows with these cells: set=1.0x,workload=6.")]
Strict = Annotated[bool, typer.Option("--strict", help="Stop at the first broken row.")]

NAMES_MAX = 8  # that are listed


def read(file: Path, format_name: str | None, mapping: str | None, where: str | None, strict: bool) -> Trace:
    trace = read_trace(file, format_name, pairs(mapping, "--map"), pairs(where, "--where"))
    if strict or not len(trace.table):
        trace.strict()
    tell_rows(trace, _tell, _tell)
    if not len(trace.table):
        raise no_jobs(str(file))
    return trace


def _tell(line: str) -> None:
    print(printable(line), file=sys.stderr)


@app.command(
    "info",
    epilog=examples(
        "horae trace info jobs.csv", "horae trace info usage.csv --map submit=SubmitTime,gpus=n_gpu,duration=secs"
    ),
)
def info(
    file: File,
    format_name: FormatName = None,
    mapping: Mapping = None,
    where: Where = None,
    strict: Strict = False,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Tell how many jobs there are, how long and how large, and what is wrong with the file."""
    trace = read(file, format_name, mapping, where, strict)
    summary = summarise(trace)
    if output is OutputFormat.JSON:
        print(json.dumps(_plain(trace, summary), indent=2))
        return
    known_as = "by its mapping" if mapping else format_name or detect(file)
    print(
        f"{file}: {known_as}; {counted(summary.jobs, 'job')}"
        + (f", second 0 is {trace.origin}" if trace.origin else "")
    )
    print("\n".join(map(printable, describe(summary))))


def describe(summary: TraceSummary) -> list[str]:
    lines = [f"  work       {summary.gpu_hours:,.0f} GPU-h"]
    if summary.span_seconds:
        lines = [
            f"  span       {_span(summary.span_seconds)}, {summary.jobs_per_hour:,.3g} jobs/h",
            f"{lines[0]}, {summary.demand_gpus:,.1f} GPUs busy if nothing ever waited",
        ]
    if summary.unknown_run_times:
        lines.append(f"  unknown    run time of {counted(summary.unknown_run_times, 'job')}: their steps are known")
    for label, quantiles in (("run time", summary.run_seconds), ("GPU-time", summary.gpu_seconds)):
        if quantiles:
            told = ", ".join(f"{name} {value:,.0f}" for name, value in quantiles.items())
            lines.append(f"  {label:10} {told} s")
    gangs = ", ".join(f"{gang.gpus}: {gang.jobs:.1%}/{gang.gpu_hours:.1%}" for gang in summary.gangs[:12])
    more = f" and {len(summary.gangs) - 12} more sizes" if len(summary.gangs) > 12 else ""
    lines.append(f"  gangs      {gangs}{more} (size: share of jobs/of GPU-h)")
    for label, names in (
        ("tenants", summary.tenants),
        ("users", summary.users),
        ("models", summary.models),
        ("GPU types", summary.gpu_types),
    ):
        if names:
            told = ", ".join(f"{name[:40]} {count:,}" for name, count in list(names.items())[:NAMES_MAX])
            lines.append(f"  {label:10} {len(names):,}: {told}" + (" …" if len(names) > NAMES_MAX else ""))
    return lines


def _span(seconds: float) -> str:
    return f"{seconds / 86400:,.1f} days" if seconds >= 2 * 86400 else f"{seconds / 3600:,.2f} hours"


def _plain(trace: Trace, summary: TraceSummary) -> dict[str, object]:
    plain = {
        key: None if isinstance(value, float) and isnan(value) else value for key, value in asdict(summary).items()
    }
    return {
        "source": trace.source,
        "origin": trace.origin,
        **plain,
        "broken": trace.fault_count,
        "faults": [fault._asdict() for fault in trace.faults],
        "left_out": dict(trace.left_out),
        "changed": dict(trace.changed),
    }


@app.command(
    "convert",
    epilog=examples(
        "horae trace convert sacct.txt jobs.csv", "horae trace convert cluster_log.csv jobs.parquet --format helios"
    ),
)
def convert(
    file: File,
    target: Annotated[Path, typer.Argument(help="A file that ends in .csv, .csv.gz or .parquet.")],
    format_name: FormatName = None,
    mapping: Mapping = None,
    where: Where = None,
    strict: Strict = False,
) -> None:
    """Write a workload in our own format."""
    trace = read(file, format_name, mapping, where, strict)
    write_trace(trace, target)
    print(f"{target}: {counted(len(trace.table), 'job')}")


@app.command(
    "generate",
    epilog=examples(
        "horae trace generate poisson jobs.csv", "horae trace generate 'diurnal={jobs: 100}' jobs.csv --seed 7"
    ),
)
def generate(
    kind: Annotated[str, typer.Argument(help="poisson, gavel, themis, diurnal or heavy-tail; 'poisson={jobs: 100}'.")],
    target: Annotated[Path, typer.Argument(help="A file that ends in .csv, .csv.gz or .parquet.")],
    seed: Annotated[int, typer.Option(help="The same seed gives the same jobs.")] = 0,
    data: Data = None,
) -> None:
    """Make up a workload. Gavel's takes its job types from the throughput table in the data folder."""
    trace = generator_of(kind, data).trace(seed)
    write_trace(trace, target)
    print(f"{target}: {counted(len(trace.table), 'job')}")


def generator_of(text: str, data: Path | None, field: str = "KIND") -> Generator:
    """The generator of `name={options}`."""
    name, options = named_options(text, field)
    if name == GavelWorkload.name and "reference" not in options:
        measured = speed_tables.read_gavel_csv(need_data(data))
        options = {**options, "reference": reference_speeds(measured, "v100")}
    return make_generator(name, options)


@app.command("plot", epilog=examples("horae trace plot jobs.csv plots", "horae trace plot jobs.csv plots --gpus 160"))
def plot(
    file: File,
    directory: Annotated[Path, typer.Argument(help="The folder for the pictures.")],
    format_name: FormatName = None,
    mapping: Mapping = None,
    where: Where = None,
    strict: Strict = False,
    gpus: Annotated[int | None, typer.Option(help="GPUs of a cluster, to draw demand beside supply.")] = None,
) -> None:
    """Draw arrivals, run times, gangs and demand over time, each as PDF, SVG and PNG."""
    if gpus is not None and gpus < 1:
        raise InputError(f"is {gpus}", field="--gpus", remedy="give a positive number")
    trace = read(file, format_name, mapping, where, strict)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(str(error.strerror), file=str(directory), remedy="name a folder of yours") from None
    from horae.reports.plots.trace import PlottedTrace, plot_trace  # noqa: PLC0415  (half a second, only here)

    submitted_at, gangs = trace.table["submit"].to_numpy(), trace.table["gpus"].to_numpy()
    drawn = plot_trace(PlottedTrace(submitted_at, run_seconds(trace), gangs, trace.origin, gpus), directory)
    print("\n".join(str(path) for path in drawn))
