"""`horae tenants`: plans which cells to reserve for each tenant."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
import yaml
from rich.table import Table

from horae.cli.output import Output, OutputFormat, console, right
from horae.cli.text import examples, printable
from horae.cli.workload import read_workload
from horae.cli.workload_options import (
    BrokenMax,
    Map,
    Strict,
    TraceFormat,
    Types,
    Where,
    WholeNodes,
    WorkloadOptions,
)
from horae.experiments.capacity_planning import (
    PlanningSite,
    PlanOutcome,
    QueueingGoal,
    Share,
    WaitingCurve,
    curve_of,
    divide,
    in_proportion,
    outcome_of,
    split,
)
from horae.experiments.inputs import choose_policies, pairs, positive
from horae.model.errors import InputError
from horae.model.jobs import Arrival
from horae.model.setup import Cadence, PoolSpec
from horae.traces import BROKEN_MAX
from horae.traces.clusters.file import SPARE
from horae.traces.clusters.shorthand import parse_cluster

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Which cells to reserve for each tenant.",
    epilog=examples(
        "horae tenants plan jobs.csv --nodes 36x8:A100",
        "horae tenants plan jobs.csv --nodes 36x8 --goal 300 --write lab.yaml",
    ),
)
BUDGETS = (0.6, 0.7, 0.8, 0.9, 1.0)  # parts of the cluster, for the trade-off


@app.command(
    "plan",
    epilog=examples(
        "horae tenants plan jobs.csv --nodes 36x8:A100",
        "horae tenants plan jobs.csv --nodes 36x8 --goals nlp=300 --write lab.yaml",
    ),
)
def plan(
    file: Annotated[
        Path, typer.Argument(metavar="TRACE", help="A workload with tenants, of any format that is known.")
    ],
    nodes: Annotated[list[str], typer.Option(help="The cluster, nodes all alike: 144x8, or 36x8:A100.")],
    goal: Annotated[float, typer.Option(help="Mean queueing seconds that tenants should not exceed.")] = 600.0,
    goals: Annotated[str | None, typer.Option(help="The same for some of them: nlp=300,vision=3600.")] = None,
    weights: Annotated[str | None, typer.Option(help="How much tenants matter: nlp=3; 1 for those not named.")] = None,
    budget: Annotated[
        float | None, typer.Option(help="GPU-hours over the time of the trace that may be reserved.")
    ] = None,
    money: Annotated[float | None, typer.Option(help="The same in money, with --price of a GPU-hour.")] = None,
    price: Annotated[float, typer.Option(help="Of a GPU-hour.")] = 1.0,
    seen: Annotated[
        float, typer.Option(help="Part of the time to plan from; the rest tells how good the plan is.")
    ] = 0.6,
    caution: Annotated[float, typer.Option(help="Standard deviations over weeks to allow for.")] = 0.5,
    policy: Annotated[str, typer.Option(help="By which tenants schedule their cells.")] = "fifo",
    trace_format: TraceFormat = None,
    map_: Map = None,
    where: Where = None,
    types: Types = None,
    whole_nodes: WholeNodes = True,
    strict: Strict = False,
    broken_max: BrokenMax = BROKEN_MAX,
    write: Annotated[Path | None, typer.Option(help="Write the cluster file here instead of printing it.")] = None,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Propose cells for each tenant, show what more or less would change, and test it on weeks it has not seen."""
    site = _site(nodes)
    options = WorkloadOptions(
        format=trace_format,
        mapping=map_,
        where=where,
        types=types,
        whole_nodes=whole_nodes,
        strict=strict,
        broken_max=broken_max,
    )
    made = _jobs(file, site, options)
    pool = _pool(policy)
    if not 0 < seen < 1:
        raise InputError(f"is {seen}", field="--seen", remedy="give a part between 0 and 1")
    before, after = split(made, seen)
    if not before:
        raise InputError("no job is in the first part of the time", field="--seen", remedy="raise it")
    if SPARE in {history.tenant for history in before}:
        raise InputError(f"a tenant is called {SPARE!r}, as what is idle is", file=str(file), remedy="rename it")
    wanted = _goals([history.tenant for history in before], goal, goals, weights)
    gpus = _affordable(site, made, budget, money, price)
    if sum(history.largest_gang for history in before) > gpus:
        raise InputError(f"{gpus} GPUs do not hold the largest gang of every tenant", remedy="raise the budget")
    curves = []
    for history in before:
        print(printable(f"{history.tenant}: {len(history.arrivals):,} jobs"), file=sys.stderr)
        curves.append(curve_of(history, site, pool, caution))
    shares = divide(curves, wanted, gpus)
    if shares is None:
        raise InputError(f"{gpus} GPUs do not hold the largest gang of every tenant", remedy="raise the budget")
    after = [history for history in after if history.tenant in wanted]
    usual = in_proportion(curves, before, gpus)
    outcomes = [outcome_of(each, after, wanted, site, pool) for each in (shares, usual)]
    ways = _trade_off(curves, wanted, site, gpus)
    text = _cluster_file(site, shares, wanted, pool)
    if output is OutputFormat.JSON:
        plain = {
            "shares": [asdict(share) for share in shares],
            "in_proportion": [asdict(share) for share in usual],
            "trade_off": ways,
            "unseen": {"plan": asdict(outcomes[0]), "in_proportion": asdict(outcomes[1])},
            "cluster_file": text,
        }
        print(json.dumps(plain, indent=2))
    else:
        _print(shares, usual, wanted, outcomes, ways, gpus)
    if write is not None:
        write.write_text(text, encoding="utf-8")
    elif output is OutputFormat.TABLE:
        print(text, end="")


def _site(nodes: Sequence[str]) -> PlanningSite:
    if len(nodes) != 1:
        raise InputError("is given several times", field="--nodes", remedy="give one group: nodes are all alike")
    cluster = parse_cluster(nodes).cluster
    return PlanningSite(cluster.nodes[0], len(cluster.nodes))


def _jobs(file: Path, site: PlanningSite, options: WorkloadOptions) -> list[Arrival]:
    setup = parse_cluster([f"{site.nodes}x{site.node.gpus}:{site.node.accelerator}"])
    made = read_workload(str(file), setup, options, _tell).workload(0)
    fitting = [each for each in made if each.job.gpus <= site.gpus]
    if len(fitting) < len(made):
        _tell(f"{file}: {len(made) - len(fitting):,} jobs left out: they are larger than the cluster")
    if not fitting:
        raise InputError("has no job that fits the cluster", file=str(file), remedy="give a larger --nodes")
    return sorted(fitting, key=lambda each: each.job.submitted_at)


def _tell(line: str) -> None:
    print(printable(line), file=sys.stderr)


def _pool(policy: str) -> PoolSpec:
    (choice,) = choose_policies([policy]).values()
    events = choice.name in ("fifo", "sjf", "yarn-cs")
    return PoolSpec("all", choice.name, choice.options, Cadence.EVENTS if events else Cadence.ROUNDS)


def _goals(tenants: Sequence[str], goal: float, goals: str | None, weights: str | None) -> dict[str, QueueingGoal]:
    positive("--goal", goal)
    own, heavy = _numbers(goals, "--goals", tenants), _numbers(weights, "--weights", tenants)
    return {tenant: QueueingGoal(own.get(tenant, goal), heavy.get(tenant, 1.0)) for tenant in tenants}


def _numbers(text: str | None, field: str, tenants: Sequence[str]) -> dict[str, float]:
    found = {}
    for name, number in (pairs(text, field) or {}).items():
        if name not in tenants:
            raise InputError(f"there is no tenant {name!r}", field=field, remedy=f"use {', '.join(tenants[:8])}")
        try:
            found[name] = float(number)
        except ValueError:
            raise InputError(f"{name} has {number!r}", field=field, remedy="give a number") from None
        positive(field, found[name])
    return found


def _affordable(
    site: PlanningSite, made: Sequence[Arrival], budget: float | None, money: float | None, price: float
) -> int:
    """GPUs that can be reserved all the time within the budget."""
    positive("--price", price)
    hours = (made[-1].job.submitted_at - made[0].job.submitted_at) / 3600
    limits = [float(site.gpus)]
    for field, amount in (("--budget", budget), ("--money", None if money is None else money / price)):
        if amount is not None:
            positive(field, amount)
            limits.append(amount / max(hours, 1e-9))
    return int(min(limits))


def _trade_off(
    curves: Sequence[WaitingCurve], goals: Mapping[str, QueueingGoal], site: PlanningSite, gpus: int
) -> list[dict[str, float]]:
    """The effect of other budgets, as far as the history can tell."""
    ways = []
    for count in sorted({*(int(part * site.gpus) for part in BUDGETS), gpus}):
        shares = divide(curves, goals, count)
        if shares is None:
            continue
        jobs = sum(curve.jobs * goals[curve.tenant].weight for curve in curves)
        waits = sum(
            goals[share.tenant].weight * curve.jobs * share.expected_seconds
            for share, curve in zip(shares, curves, strict=True)
        )
        met = sum(share.expected_seconds <= goals[share.tenant].queueing_seconds for share in shares)
        ways.append({"gpus": count, "expected_seconds": waits / jobs, "goals_met": met})
    return ways


def _cluster_file(
    site: PlanningSite, shares: Sequence[Share], goals: Mapping[str, QueueingGoal], pool: PoolSpec
) -> str:
    accelerator = site.node.accelerator
    tenants = {}
    for share in shares:
        policy = {pool.policy: dict(pool.options)} if pool.options else pool.policy
        entry: dict[str, object] = {"policy": policy, "cadence": pool.cadence.value}
        entry["cells"] = {f"{accelerator}.{share.level}": share.cells}
        if goals[share.tenant].weight != 1:
            entry["weight"] = goals[share.tenant].weight
        tenants[share.tenant] = entry
    width = len(str(site.nodes - 1))
    name = f"n[{0:0{width}}-{site.nodes - 1:0{width}}]" if site.nodes > 1 else "n0"
    content = {
        "name": "planned",
        "nodes": [{"name": name, "gpu": accelerator, "gpus": site.node.gpus}],
        "tenants": tenants,
    }
    return yaml.safe_dump(content, sort_keys=False, default_flow_style=None)


def _print(
    shares: Sequence[Share],
    usual: Sequence[Share],
    goals: Mapping[str, QueueingGoal],
    outcomes: Sequence[PlanOutcome],
    ways: Sequence[Mapping[str, float]],
    gpus: int,
) -> None:
    table = Table("GPUs reserved", *right("expected queueing (s)", "goals met"))
    for way in ways:
        here = " (the budget)" if way["gpus"] == gpus else ""
        table.add_row(f"{way['gpus']:,.0f}{here}", f"{way['expected_seconds']:,.0f}", f"{way['goals_met']:.0f}")
    console().print(table)
    headings = ("goal (s)", "cells", "expected (s)", "unseen (s)", "in proportion", "unseen (s)")
    table = Table("tenant", "cell", *right(*headings))
    for share, other in zip(shares, usual, strict=True):
        waits = [f"{outcome.waiting_seconds.get(share.tenant, 0.0):,.0f}" for outcome in outcomes]
        table.add_row(
            share.tenant, share.level, f"{goals[share.tenant].queueing_seconds:,.0f}", str(share.cells),
            f"{share.expected_seconds:,.0f}", waits[0], str(other.cells), waits[1],
        )  # fmt: skip
    console().print(table)
    one, two = outcomes
    print(f"On weeks it has not seen: {one.mean_seconds:,.0f} s of queueing on average and {one.goals_met} goals met;")
    print(f"with cells in proportion to demand {two.mean_seconds:,.0f} s and {two.goals_met}.")
    if one.too_large or two.too_large:
        print(f"Not counted: {one.too_large} jobs ({two.too_large}) that are larger than any before and do not fit.")
