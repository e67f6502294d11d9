"""`horae simulate` and `horae demo --simulated`: one workload through the scheduler, in virtual time."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from horae import samples
from horae.cli.output import Data, Output, OutputFormat
from horae.cli.sharing import SharingOption, tell_of_sharing, with_sharing
from horae.cli.text import examples, printable
from horae.cli.workload import read_workload
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
from horae.engines.random_failures import fault_plan
from horae.engines.search.engine import first_jobs
from horae.experiments.compare.formats import runs_page
from horae.experiments.compare.run_spec import with_policy
from horae.experiments.compare.table import numbers
from horae.experiments.compare.terminal import KNOWS, RHO, assumptions, print_pages
from horae.experiments.compare.workload import has_limits
from horae.experiments.inputs import check_failures, choose_policies, choose_setup
from horae.experiments.simulate import Run, simulate
from horae.model.errors import InputError
from horae.model.jobs import Arrival
from horae.model.safe_text import counted
from horae.model.searches import Method, Search, searches_of
from horae.model.setup import Cadence, Setup
from horae.policies.registry import uses_lengths
from horae.reports.cluster_tree import draw
from horae.reports.metrics import Metrics, measure
from horae.traces import BROKEN_MAX
from horae.traces.jobs import read_jobs

simulate_app = typer.Typer(add_completion=False)
REASONS_MAX = 10  # reported after a run
# Preemptive policies act at the end of a round, the others on every event.
DEMO = (("fifo", Cadence.EVENTS), ("sjf", Cadence.EVENTS), ("las", Cadence.ROUNDS), ("tiresias", Cadence.ROUNDS))


@simulate_app.command(
    epilog=examples(
        "horae simulate --policy fifo --policy tiresias",
        "horae simulate --nodes 20x8:V100 --jobs 'poisson={jobs: 500}' --policy las",
    )
)
def simulate_command(
    file: Annotated[
        str | None, typer.Argument(metavar="[JOBS]", help="The same as --jobs.", show_default=False)
    ] = None,
    cluster: Annotated[Path | None, typer.Option(help="A cluster file; the sample if nothing is said.")] = None,
    nodes: Annotated[list[str] | None, typer.Option(help="A quick cluster instead: 20x8, 20x8:V100, nlp=20x8.")] = None,
    jobs: Annotated[
        str | None,
        typer.Option(help="A trace, or a generator: 'poisson={jobs: 500}'.", show_default="the sample"),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(help="A policy, with options as YAML: 'tiresias={limits: [1, 3]}'. Repeat for more."),
    ] = None,
    cadence: Annotated[
        Cadence | None, typer.Option(help="When policies are asked; else as the cluster file says.")
    ] = None,
    round_seconds: Annotated[float | None, typer.Option(help="Length of a round.")] = None,
    seed: Annotated[int, typer.Option(help="For failures, and policies that draw lots.")] = 0,
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
    days_between_failures: Annotated[
        float | None, typer.Option(help="Let every node fail at random, on average once in so many days.")
    ] = None,
    repair_seconds: Annotated[float, typer.Option(help="How long a failed node is away.")] = 3600.0,
    checkpoint_seconds: Annotated[
        float, typer.Option(help="A failed node takes with it what was done since the last checkpoint; 0: nothing.")
    ] = 0.0,
    search: Annotated[
        Method | None,
        typer.Option(help="Let every app with several jobs search among them; curves are drawn by --seed."),
    ] = None,
    journal: Annotated[Path | None, typer.Option(help="Write every event, decision and command here.")] = None,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Run a workload through the scheduler in virtual time."""
    if file is not None and jobs is not None:
        raise InputError(f"there are {file} and --jobs {jobs}", field="JOBS", remedy="give one of the two")
    if cluster is None and not nodes:
        cluster = samples.CLUSTER
    setup = with_sharing(choose_setup(cluster, nodes or (), cadence, round_seconds, seed=seed), sharing)
    setups = {_policies(setup): setup}
    if policy:
        setups = {text: with_policy(setup, choice) for text, choice in choose_policies(policy).items()}
    if journal is not None and len(setups) > 1:
        raise InputError("one journal cannot hold several runs", field="--journal", remedy="give one --policy")
    check_failures(days_between_failures, repair_seconds, checkpoint_seconds)
    tell_of_sharing(setup, choose_policies(policy or ()).values(), _tell)
    options = WorkloadOptions(
        format=trace_format,
        mapping=map_,
        where=where,
        types=types,
        whole_nodes=whole_nodes,
        speeds=tuple(speeds or ()),
        data=data,
        strict=strict,
        broken_max=broken_max,
    )
    trace = read_workload(file or jobs or str(samples.JOBS), setup, options, _tell)
    arrivals = trace.workload(seed)
    searches: tuple[Search, ...] = ()
    if search is not None:
        searches, arrivals = _searched(arrivals, search, seed)
    faults = []
    if days_between_failures is not None:
        until = 2 * arrivals[-1].job.submitted_at
        faults = fault_plan(setup.cluster, seed, days_between_failures, repair_seconds, until)
    results = {
        name: _result(
            simulate(
                each,
                arrivals,
                faults,
                checkpoint_seconds=checkpoint_seconds,
                journal=journal,
                origin=trace.origin,
                searches=searches,
            ),
            each,
            has_limits=has_limits(arrivals),
        )
        for name, each in setups.items()
    }
    _print_results(results, setup, output)
    if all(result.metrics.refused == result.metrics.jobs for result in results.values()):
        raise typer.Exit(1)


def _searched(arrivals: Sequence[Arrival], method: Method, seed: int) -> tuple[tuple[Search, ...], list[Arrival]]:
    """The searches among the jobs of each app, and the jobs with which they begin."""
    searches = searches_of(arrivals, method, seed)
    if all(len(each.trials) == 1 for each in searches):
        raise InputError("no app of the workload has several jobs", field="--search", remedy="add a column app")
    firsts = (first for each in searches for first in first_jobs(each))
    return tuple(searches), sorted(firsts, key=lambda each: each.job.submitted_at)


def _tell(line: str) -> None:
    print(printable(line), file=sys.stderr)


def simulated_demo() -> None:
    """Four policies on the sample cluster and workload."""
    setup = choose_setup(samples.CLUSTER, (), None, None)
    arrivals = read_jobs(samples.JOBS, setup.cluster)
    print(draw(setup.cluster))
    print(f"\n{counted(len(arrivals), 'job')} over {arrivals[-1].job.submitted_at / 3600:.0f} hours\n")
    results = {}
    for name, cadence in DEMO:
        choice = choose_policies([name])[name]
        setup = with_policy(choose_setup(samples.CLUSTER, (), cadence, None), choice)
        results[name] = _result(simulate(setup, arrivals), setup, has_limits=has_limits(arrivals))
    _print_results(results, setup, OutputFormat.TABLE)


def _policies(setup: Setup) -> str:
    return "+".join(dict.fromkeys(pool.policy for pool in setup.pools))


class _Result(NamedTuple):
    metrics: Metrics
    left_over: list[str]  # the jobs that did not end, each with the reason
    knows_lengths: bool  # the policy knows run times in advance


def _result(run: Run, setup: Setup, *, has_limits: bool) -> _Result:
    left_over = [f"refused {job_id}: {reason}" for job_id, reason in run.refused.items()]
    left_over += [f"unfinished {job_id}: {reason}" for job_id, reason in run.unfinished.items()]
    knows = any(uses_lengths(pool.policy, has_limits=has_limits) for pool in setup.pools)
    return _Result(measure(run.log), left_over, knows)


def _print_results(results: dict[str, _Result], setup: Setup, output: OutputFormat) -> None:
    if output is OutputFormat.JSON:
        print(json.dumps({name: result.metrics.plain() for name, result in results.items()}, indent=2))
    else:
        knowing = [name for name, result in results.items() if result.knows_lengths]
        page = runs_page({name: numbers(result.metrics) for name, result in results.items()}, knowing)
        print_pages([page], [RHO, *([KNOWS] if knowing else []), *assumptions([setup])], "-o json")
    # A rejection is the same under every policy, and reported once. JSON stays JSON: this is for people.
    lines = list(dict.fromkeys(line for result in results.values() for line in result.left_over))
    if len(lines) > REASONS_MAX:
        lines[REASONS_MAX:] = [f"and {len(lines) - REASONS_MAX:,} more"]
    for line in lines:
        print(printable(line), file=sys.stderr if output is OutputFormat.JSON else sys.stdout)
