"""The command line. What a user did wrong is one line on standard error and exit code 2, never a traceback."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from enum import Enum
from math import inf, isnan
from pathlib import Path
from typing import Annotated, Any, NamedTuple, NoReturn

import typer
import yaml
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from horae import __version__, samples
from horae.cli import compare, policy, speed, trace, why
from horae.cli import reproduce as reproductions
from horae.engines.faults import fault_plan
from horae.experiment import Run, replay_file, simulate
from horae.model.errors import HoraeError, InputError, PolicyError
from horae.model.pools import Cadence, Setup
from horae.policies.registry import make_policy
from horae.reports.metrics import Metrics, measure
from horae.reports.tree import draw
from horae.traces.cluster_file import read_cluster
from horae.traces.job_table import read_jobs

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Shares one GPU cluster between teams.")
cluster_app = typer.Typer(no_args_is_help=True, help="Look at a cluster file.")
reproduce_app = typer.Typer(no_args_is_help=True, help="Published results, run again.")
app.add_typer(cluster_app, name="cluster")
app.add_typer(reproduce_app, name="reproduce")
app.add_typer(policy.app, name="policy")
app.add_typer(trace.app, name="trace")
app.add_typer(speed.app, name="speed")
app.command()(why.why)
app.command("compare")(compare.compare_command)

REASONS_MAX = 10  # that are told after a run
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
    setup = read_cluster(file, make_policy)
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
    seed: Annotated[int, typer.Option(help="For failures, and policies that draw lots.")] = 0,
    days_between_failures: Annotated[
        float | None, typer.Option(help="Let every node fail at random, on average once in so many days.")
    ] = None,
    repair_seconds: Annotated[float, typer.Option(help="How long a failed node is away.")] = 3600.0,
    checkpoint_seconds: Annotated[
        float, typer.Option(help="A failed node takes with it what was done since the last checkpoint; 0: nothing.")
    ] = 0.0,
    journal: Annotated[Path | None, typer.Option(help="Write every event, decision and command here.")] = None,
    output: Output = Format.TABLE,
) -> None:
    """Run a workload through the scheduler in virtual time."""
    setup = _with_cadence(read_cluster(cluster, make_policy, seed), cadence, round_seconds)
    setups = {_policies(setup): setup}
    if policy:
        setups = {text: _with_policy(setup, text) for text in policy}
    if journal is not None and len(setups) > 1:
        raise InputError("one journal cannot hold several runs", field="--journal", remedy="give one --policy")
    if not checkpoint_seconds >= 0:
        raise InputError(f"is {checkpoint_seconds}", field="checkpoint_seconds", remedy="give 0 or more")
    arrivals = read_jobs(jobs, setup.cluster)
    faults = []
    if days_between_failures is not None:
        until = 2 * arrivals[-1].job.submitted_at
        faults = fault_plan(setup.cluster, seed, days_between_failures, repair_seconds, until)
    results = {
        name: _result(simulate(each, arrivals, faults, checkpoint_seconds=checkpoint_seconds, journal=journal))
        for name, each in setups.items()
    }
    _print_results(results, output)


@app.command()
def demo() -> None:
    """Four policies on the sample cluster and workload."""
    setup = read_cluster(samples.CLUSTER, make_policy)
    arrivals = read_jobs(samples.JOBS, setup.cluster)
    print(draw(setup.cluster))
    print(f"\n{len(arrivals)} jobs over {arrivals[-1].job.submitted_at / 3600:.0f} hours\n")
    setups = {policy: _with_cadence(_with_policy(setup, policy), cadence, None) for policy, cadence in DEMO}
    _print_results({name: _result(simulate(each, arrivals)) for name, each in setups.items()}, Format.TABLE)


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
        except (yaml.YAMLError, ValueError):
            options = None
        if not isinstance(options, dict):
            raise PolicyError(f"{options_text!r} are no options", field="--policy", remedy="write {limits: [1, 3]}")
    try:
        make_policy(name, options)
    except InputError as error:
        raise PolicyError(error.problem, field="--policy", remedy=error.remedy) from None
    return replace(setup, pools=tuple(replace(pool, policy=name, options=options) for pool in setup.pools))


def _with_cadence(setup: Setup, cadence: Cadence | None, round_seconds: float | None) -> Setup:
    pools = setup.pools
    if cadence is not None:
        pools = tuple(replace(pool, cadence=cadence) for pool in pools)
    if round_seconds is not None:
        if not 0 < round_seconds < inf:
            raise InputError(f"is {round_seconds:g}", field="--round-seconds", remedy="give a positive number")
        pools = tuple(replace(pool, round_seconds=round_seconds) for pool in pools)
    return replace(setup, pools=pools)


def _policies(setup: Setup) -> str:
    return "+".join(dict.fromkeys(pool.policy for pool in setup.pools))


def _data(data: Path | None) -> Path:
    if data is None:
        raise InputError("no data folder was named", field="--data", remedy="use --data DIR or set HORAE_DATA")
    if not data.is_dir():
        raise InputError("is not a folder", file=str(data), field="--data", remedy="name the folder with the traces")
    return data


class _Result(NamedTuple):
    metrics: Metrics
    left_over: list[str]  # the jobs that did not end, each with the reason


def _result(run: Run) -> _Result:
    left_over = [f"refused {job_id}: {reason}" for job_id, reason in run.refused.items()]
    left_over += [f"unfinished {job_id}: {reason}" for job_id, reason in run.unfinished.items()]
    return _Result(measure(run.log), left_over)


def _print_results(results: dict[str, _Result], output: Format) -> None:
    if output is Format.JSON:
        print(json.dumps({name: result.metrics.plain() for name, result in results.items()}, indent=2))
    else:
        _console().print(_table(results))
    # A refusal is the same under every policy, and told once. JSON stays JSON: this is for people.
    lines = list(dict.fromkeys(line for result in results.values() for line in result.left_over))
    if len(lines) > REASONS_MAX:
        lines[REASONS_MAX:] = [f"and {len(lines) - REASONS_MAX:,} more"]
    for line in lines:
        print(line, file=sys.stderr if output is Format.JSON else sys.stdout)


def _table(results: dict[str, _Result]) -> Table:
    headings = ("completion: mean", "median", "p99", "queueing: mean", "makespan", "utilisation", "restarts")
    table = Table("policy", *_right("finished", "refused", *headings))
    for name, (item, _) in results.items():
        table.add_row(
            escape(name),
            f"{item.finished}/{item.jobs}",
            f"{item.refused:,}",
            _hours(item.completion_mean_seconds),
            _hours(item.completion_median_seconds),
            _hours(item.completion_p99_seconds),
            _hours(item.queueing_mean_seconds),
            _hours(item.makespan_seconds),
            f"{item.utilisation:.1%}",
            f"{item.restarts:,}",
        )
    return table


def _hours(seconds: float) -> str:
    return "-" if isnan(seconds) else f"{seconds / 3600:,.2f} h"


def _right(*headings: str) -> list[Column]:
    return [Column(heading, justify="right") for heading in headings]


def _console() -> Console:
    console = Console()
    # Piped into a file there is no width; a table must not be broken for that.
    return console if console.is_terminal else Console(width=200)


def run() -> None:
    try:
        sys.exit(app(prog_name="horae", standalone_mode=False))
    except typer.TyperException as error:
        # Without any argument the help was printed already, and there is nothing to say.
        problem = error.format_message().rstrip(".")
        _fail(f"{problem}; add --help to see what there is" if problem else "", error.exit_code)
    except InputError as error:
        _fail(str(error), 2)
    except HoraeError as error:
        _fail(f"this is a bug in Horae: {error}", 70)


def _fail(message: str, exit_code: int) -> NoReturn:
    """One line, whatever a file may have in its names."""
    if message:
        print("horae:", *message.splitlines(), file=sys.stderr)
    sys.exit(exit_code)


if __name__ == "__main__":
    run()
