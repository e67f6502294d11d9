"""The command line. What a user did wrong is one line on standard error and exit code 2, never a traceback."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, replace
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from rich.console import Console
from rich.table import Column, Table

from horae import __version__, samples
from horae.cli import reproduce as reproductions
from horae.experiment import replay_file, simulate
from horae.model.errors import HoraeError, InputError, PolicyError
from horae.model.pools import Cadence, Setup
from horae.policies.registry import make_policy
from horae.reports.summary import Summary, summarise
from horae.reports.tree import draw
from horae.traces.cluster_file import read_cluster
from horae.traces.job_table import read_jobs

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Shares one GPU cluster between teams.")
cluster_app = typer.Typer(no_args_is_help=True, help="Look at a cluster file.")
reproduce_app = typer.Typer(no_args_is_help=True, help="Published results, run again.")
app.add_typer(cluster_app, name="cluster")
app.add_typer(reproduce_app, name="reproduce")

# Those that preempt do so at the end of a round, the others act on every event.
DEMO = (("fifo", Cadence.EVENTS), ("sjf", Cadence.EVENTS), ("las", Cadence.ROUNDS), ("tiresias", Cadence.ROUNDS))


class Format(Enum):
    TABLE = "table"
    JSON = "json"


Data = Annotated[Path | None, typer.Option("--data", envvar="HORAE_DATA", help="The folder with the published traces.")]
Output = Annotated[Format, typer.Option("-o", "--output", help="How to print the result.")]


@cluster_app.command("show")
def cluster_show(file: Annotated[Path, typer.Argument(help="A cluster file (YAML).")]) -> None:
    """Draw the tree of cells, and who owns what."""
    setup = read_cluster(file)
    print(draw(setup.cluster))
    for pool in setup.pools:
        owned = f"{len(pool.nodes)} nodes of its own" if pool.nodes else "all other nodes"
        print(f"pool {pool.name}: {pool.policy}, {owned}")


@app.command("simulate")
def simulate_command(
    cluster: Annotated[Path, typer.Option(help="A cluster file.")] = samples.CLUSTER,
    jobs: Annotated[Path, typer.Option(help="A job table (CSV or YAML).")] = samples.JOBS,
    policy: Annotated[
        list[str] | None,
        typer.Option(help="A policy, with options as YAML: 'tiresias={limits: [1, 3]}'. Repeat to compare."),
    ] = None,
    cadence: Annotated[
        Cadence | None, typer.Option(help="When policies are asked; else as the cluster file says.")
    ] = None,
    round_seconds: Annotated[float | None, typer.Option(help="Length of a round.")] = None,
    seed: Annotated[int, typer.Option(help="For policies that draw lots.")] = 0,
    journal: Annotated[Path | None, typer.Option(help="Write every event, decision and command here.")] = None,
    output: Output = Format.TABLE,
) -> None:
    """Run a workload through the scheduler in virtual time."""
    setup = _with_cadence(read_cluster(cluster, seed), cadence, round_seconds)
    setups = [_with_policy(setup, text) for text in policy] if policy else [setup]
    if journal is not None and len(setups) > 1:
        raise InputError("one journal cannot hold several runs", field="--journal", remedy="give one --policy")
    arrivals = read_jobs(jobs, setup.cluster)
    results = {}
    for each in setups:
        name = "+".join(dict.fromkeys(pool.policy for pool in each.pools))
        recorder = simulate(each, arrivals, journal=_writable(journal))
        results[name] = summarise(recorder, setup.cluster.gpu_count)
    _print_summaries(results, output)


@app.command()
def demo() -> None:
    """Four policies on the sample cluster and workload."""
    setup = read_cluster(samples.CLUSTER)
    arrivals = read_jobs(samples.JOBS, setup.cluster)
    print(draw(setup.cluster))
    results = {}
    for policy, cadence in DEMO:
        each = _with_cadence(_with_policy(setup, policy), cadence, None)
        results[policy] = summarise(simulate(each, arrivals), setup.cluster.gpu_count)
    print(f"\n{len(arrivals)} jobs over {arrivals[-1].job.submitted_at / 3600:.0f} hours\n")
    _print_summaries(results, Format.TABLE)


@app.command()
def replay(journal: Annotated[Path, typer.Argument(help="A file made with --journal.")]) -> None:
    """Feed a journal's events to a fresh scheduler; everything must come out the same, bit for bit."""
    replayed = replay_file(journal)
    if replayed.difference:
        print(f"{journal}: differs at {replayed.difference}")
        raise typer.Exit(1)
    print(f"{journal}: {replayed.events} events and {replayed.commands} commands, all the same")


@reproduce_app.command("philly")
def reproduce_philly(data: Data = None) -> None:
    """FIFO and SJF on four Philly virtual clusters, beside the published mean completion times."""
    comparisons = reproductions.reproduce_philly(_data(data))
    table = Table(
        "virtual cluster", "policy", *_right("jobs", "mean completion (s)", "published (s)", "difference"), ""
    )
    for item in comparisons:
        table.add_row(
            item.vc,
            item.policy,
            f"{item.jobs:,}",
            f"{item.completion_mean_seconds:,.0f}",
            f"{item.published_seconds:,.0f}",
            f"{item.difference:+.2%}",
            "within 0.5%" if item.holds else "DIFFERS",
        )
    _console().print(table)
    if not all(item.holds for item in comparisons):
        raise typer.Exit(1)


@app.command()
def version() -> None:
    """Print the version."""
    print(__version__)


def _with_policy(setup: Setup, text: str) -> Setup:
    """The same setup with one policy in every pool, given as `name` or `name={options}`."""
    name, _, options_text = text.partition("=")
    options: Any = {}
    if options_text:
        try:
            options = yaml.safe_load(options_text)
        except yaml.YAMLError:
            options = None
        if not isinstance(options, dict):
            raise PolicyError(f"{options_text!r} are no options", field="--policy", remedy="write {limits: [1, 3]}")
    make_policy(name, options)
    return replace(setup, pools=tuple(replace(pool, policy=name, options=options) for pool in setup.pools))


def _with_cadence(setup: Setup, cadence: Cadence | None, round_seconds: float | None) -> Setup:
    pools = setup.pools
    if cadence is not None:
        pools = tuple(replace(pool, cadence=cadence) for pool in pools)
    if round_seconds is not None:
        pools = tuple(replace(pool, round_seconds=round_seconds) for pool in pools)
    return replace(setup, pools=pools)


def _writable(journal: Path | None) -> Path | None:
    if journal is not None and not journal.parent.is_dir():
        raise InputError("its folder does not exist", file=str(journal), remedy="make the folder first")
    return journal


def _data(data: Path | None) -> Path:
    if data is None:
        raise InputError("no data folder was named", field="--data", remedy="use --data DIR or set HORAE_DATA")
    if not data.is_dir():
        raise InputError("is not a folder", file=str(data), field="--data", remedy="name the folder with the traces")
    return data


def _print_summaries(results: dict[str, Summary], output: Format) -> None:
    if output is Format.JSON:
        print(json.dumps({name: asdict(summary) for name, summary in results.items()}, indent=2))
        return
    headings = ("completion: mean", "median", "p99", "queueing: mean", "makespan", "utilisation", "restarts")
    table = Table("policy", *_right("finished", *headings))
    for name, item in results.items():
        table.add_row(
            name,
            f"{item.finished}/{item.jobs}",
            _hours(item.completion_mean_seconds),
            _hours(item.completion_median_seconds),
            _hours(item.completion_p99_seconds),
            _hours(item.queueing_mean_seconds),
            _hours(item.makespan_seconds),
            f"{item.utilisation:.1%}",
            f"{item.restarts:,}",
        )
    _console().print(table)


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:,.2f} h"


def _right(*headings: str) -> list[Column]:
    return [Column(heading, justify="right") for heading in headings]


def _console() -> Console:
    console = Console()
    # Piped into a file there is no width; a table must not be broken for that.
    return console if console.is_terminal else Console(width=140)


def run() -> None:
    try:
        app()
    except InputError as error:
        print(f"horae: {error}", file=sys.stderr)
        sys.exit(2)
    except HoraeError as error:
        print(f"horae: this is a bug in Horae: {error}", file=sys.stderr)
        sys.exit(70)


if __name__ == "__main__":
    run()
