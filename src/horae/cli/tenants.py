"""`horae tenants plan`: plans which cells to reserve for each tenant."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import ceil
from pathlib import Path
from typing import Annotated, Any

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
    WEEK_SECONDS,
    History,
    PlanningSite,
    PlanOutcome,
    QueueingGoal,
    Share,
    WaitingCurve,
    cell_for,
    curve_of,
    divide,
    in_proportion,
    outcome_of,
    split,
)
from horae.experiments.inputs import choose_policies, choose_setup, pairs, positive
from horae.model.cluster import NODE, Cluster, Node
from horae.model.errors import InputError
from horae.model.jobs import Arrival
from horae.model.safe_text import counted
from horae.model.serialization import Plain
from horae.model.setup import Cadence, PoolSpec, Setup
from horae.traces import BROKEN_MAX
from horae.traces.clusters.file import SPARE

plan_app = typer.Typer(add_completion=False)
HALVES = {4: (("pair", 2),), 8: (("pair", 2), ("half", 4))}  # by GPUs of a quick node: its cells
DEFAULT_TENANT = "default"
BUDGETS = (0.6, 0.7, 0.8, 0.9, 1.0)  # parts of the cluster, for the trade-off


@plan_app.command(
    epilog=examples(
        "horae tenants plan jobs.csv --nodes 36x8:A100",
        "horae tenants plan jobs.csv --nodes 36x8 --goals nlp=300 --write lab.yaml",
    ),
)
def plan(
    file: Annotated[
        Path, typer.Argument(metavar="TRACE", help="A workload with tenants, of any format that is known.")
    ],
    nodes: Annotated[
        list[str] | None,
        typer.Option(help="The cluster: 144x8, or 36x8:A100. Repeat for other GPU types; each is planned by itself."),
    ] = None,
    cluster: Annotated[
        Path | None, typer.Option(help="A cluster file instead, whose levels inside nodes may be reserved too.")
    ] = None,
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
    hardware = choose_setup(cluster, nodes or (), None, None).cluster
    sites = _sites(hardware)
    options = WorkloadOptions(
        format=trace_format,
        mapping=map_,
        where=where,
        types=types,
        whole_nodes=whole_nodes,
        strict=strict,
        broken_max=broken_max,
    )
    made = _jobs(file, hardware, sites, options)
    if cluster is None:
        sites = [_halved(site, made) for site in sites]
    pool = _pool(policy)
    if not 0 < seen < 1:
        raise InputError(f"is {seen}", field="--seen", remedy="give a part between 0 and 1")
    tenants = sorted({each.job.tenant for each in made})
    if SPARE in tenants:
        raise InputError(f"a tenant is called {SPARE!r}, as what is idle is", file=str(file), remedy="rename it")
    wanted = _goals(tenants, goal, goals, weights)
    part = _affordable(sites, made, budget, money, price)
    plans = [
        _planned(
            site, [each for each in made if _kind(each) == site.node.accelerator], wanted, part, seen, caution, pool
        )
        for site in sites
    ]
    found = [each for each in plans if each is not None]
    if not found:
        raise InputError("no job is in the first part of the time", field="--seen", remedy="raise it")
    for site, each in zip(sites, plans, strict=True):
        if each is None:
            _tell(f"{site.node.accelerator}: no jobs to plan from, so no cells are reserved")
    text = _cluster_file(hardware if cluster else None, sites, found, wanted, pool)
    if output is OutputFormat.JSON:
        print(json.dumps({"types": {each.name: each.plain() for each in found}, "cluster_file": text}, indent=2))
    else:
        for each in found:
            _print(each, wanted)
    if write is not None:
        write.write_text(text, encoding="utf-8")
    elif output is OutputFormat.TABLE:
        print(text, end="")


@dataclass(frozen=True)
class TypePlan:
    """The cells of one GPU type."""

    site: PlanningSite
    gpus: int  # that may be reserved
    shares: Sequence[Share]
    usual: Sequence[Share]  # in proportion to demand
    outcomes: Sequence[PlanOutcome]  # of both, on weeks that were not used
    ways: Sequence[Mapping[str, float]]
    unseen_seconds: float  # the time of these weeks

    @property
    def name(self) -> str:
        return self.site.node.accelerator

    def plain(self) -> dict[str, Plain]:
        return {
            "shares": [asdict(share) for share in self.shares],
            "in_proportion": [asdict(share) for share in self.usual],
            "trade_off": [dict(way) for way in self.ways],
            "unseen": {"plan": asdict(self.outcomes[0]), "in_proportion": asdict(self.outcomes[1])},
        }


def _planned(
    site: PlanningSite,
    made: Sequence[Arrival],
    goals: Mapping[str, QueueingGoal],
    part: float,
    seen: float,
    caution: float,
    pool: PoolSpec,
) -> TypePlan | None:
    """The plan for one GPU type, or None where no job of the first part of the time uses it."""
    before, after = split(made, seen) if made else ([], [])
    if not before:
        return None
    gpus = int(part * site.gpus)
    if sum(history.largest_gang for history in before) > gpus:
        raise _too_few(site, gpus, before)
    curves = []
    for history in before:
        _tell(f"{history.tenant}: {counted(len(history.arrivals), 'job')} on {site.node.accelerator}")
        curves.append(curve_of(history, site, pool, caution))
    shares = divide(curves, goals, gpus)
    if shares is None:
        raise _too_few(site, gpus, before)
    planned = {history.tenant for history in before}
    after = [history for history in after if history.tenant in planned]
    usual = in_proportion(curves, before, gpus)
    outcomes = [outcome_of(each, after, goals, site, pool) for each in (shares, usual)]
    unseen_seconds = max((history.ends_at - history.begins_at for history in after), default=0.0)
    return TypePlan(site, gpus, shares, usual, outcomes, _trade_off(curves, goals, site, gpus), unseen_seconds)


def _too_few(site: PlanningSite, gpus: int, histories: Sequence[History]) -> InputError:
    """Names the cells that the largest gangs need, which may be larger than the gangs."""
    cells: dict[str, int] = {}
    needed, wasteful = 0, ""
    for history in histories:
        level, size = cell_for(history, site)
        count = ceil(history.largest_gang / size)
        cells[level] = cells.get(level, 0) + count
        needed += count * size
        if level == NODE and history.largest_gang <= size // 2:
            wasteful = f"; a gang of {history.largest_gang} takes a whole node, because nodes have no smaller cells"
    told = ", ".join(f"{counted(count, level)}" for level, count in cells.items())
    there = f"{counted(site.nodes, 'node')} ({counted(site.gpus, 'GPU')}) of {site.node.accelerator} are there"
    if gpus < site.gpus:
        there = f"{gpus} may be reserved"
    remedy = "plan with more nodes, or without the largest jobs"
    if gpus < site.gpus:
        remedy = "raise the budget"
    elif wasteful:
        remedy = "give --cluster with levels inside its nodes, or more nodes"
    return InputError(
        f"the largest gangs of {counted(len(histories), 'tenant')} need {told}, that is {counted(needed, 'GPU')}, and "
        f"{there}{wasteful}",
        remedy=remedy,
    )


def _halved(site: PlanningSite, made: Sequence[Arrival]) -> PlanningSite:
    """Quick nodes of 4 and 8 GPUs with halves and pairs, if a tenant's largest gang fits one."""
    largest: dict[str, int] = {}
    for each in made:
        if _kind(each) == site.node.accelerator:
            largest[each.job.tenant] = max(largest.get(each.job.tenant, 0), each.job.gpus)
    if not any(1 < gang <= site.node.gpus // 2 for gang in largest.values()):
        return site
    return replace(site, node=replace(site.node, levels=HALVES.get(site.node.gpus, ())))


def _sites(hardware: Cluster) -> list[PlanningSite]:
    """The hardware by GPU type; the nodes of one type must be alike."""
    by_type: dict[str, list[Node]] = {}
    for node in hardware.nodes:
        by_type.setdefault(node.accelerator, []).append(node)
    for name, alike in by_type.items():
        if len({(node.gpus, node.levels) for node in alike}) > 1:
            problem = f"nodes of {name} have different numbers of GPUs, or different cells"
            raise InputError(problem, field="--nodes", remedy="give one group a type, or types of different names")
    return [PlanningSite(alike[0], len(alike)) for alike in by_type.values()]


def _jobs(file: Path, hardware: Cluster, sites: Sequence[PlanningSite], options: WorkloadOptions) -> list[Arrival]:
    made = read_workload(str(file), Setup(hardware, (PoolSpec("all"),)), options, _tell).workload(0)
    if {each.job.tenant for each in made} == {DEFAULT_TENANT} and any(each.job.user for each in made):
        _tell(f"all jobs are of tenant {DEFAULT_TENANT!r}; use --map tenant=COLUMN, or add a column tenant")
    room = {site.node.accelerator: site.gpus for site in sites}
    fitting = [each for each in made if each.job.gpus <= room[_kind(each)]]
    if len(fitting) < len(made):
        _tell(f"{file}: {counted(len(made) - len(fitting), 'job')} left out: larger than the cluster")
    if not fitting:
        raise InputError("has no job that fits the cluster", file=str(file), remedy="give a larger cluster")
    several = sum(len({option.shape.accelerator for option in each.job.options}) > 1 for each in fitting)
    if several:
        what = f"{counted(several, 'job')} {'accepts' if several == 1 else 'accept'} several GPU types"
        _tell(f"{what}, and {'counts' if several == 1 else 'count'} for the first: name it in a column gpu_type")
    return sorted(fitting, key=lambda each: each.job.submitted_at)


def _kind(arrival: Arrival) -> str:
    """The GPU type for which a job is planned: the one that it prefers."""
    return arrival.job.options[0].shape.accelerator


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
    sites: Sequence[PlanningSite], made: Sequence[Arrival], budget: float | None, money: float | None, price: float
) -> float:
    """The part of the GPUs that can be reserved all the time within the budget."""
    positive("--price", price)
    hours = (made[-1].job.submitted_at - made[0].job.submitted_at) / 3600
    gpus = sum(site.gpus for site in sites)
    parts = [1.0]
    for field, amount in (("--budget", budget), ("--money", None if money is None else money / price)):
        if amount is not None:
            positive(field, amount)
            parts.append(amount / max(hours, 1e-9) / gpus)
    return min(parts)


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
    hardware: Cluster | None,
    sites: Sequence[PlanningSite],
    plans: Sequence[TypePlan],
    goals: Mapping[str, QueueingGoal],
    pool: PoolSpec,
) -> str:
    """The plan as a cluster file; the nodes are those of the hardware by name, or groups of numbered ones."""
    policy = {pool.policy: dict(pool.options)} if pool.options else pool.policy
    tenants: dict[str, dict[str, Any]] = {}
    for plan in plans:
        for share in plan.shares:
            entry = tenants.setdefault(share.tenant, {"policy": policy, "cadence": pool.cadence.value, "cells": {}})
            entry["cells"][f"{plan.name}.{share.level}"] = share.cells
            if goals[share.tenant].weight != 1:
                entry["weight"] = goals[share.tenant].weight
    groups = [_group(site, len(sites) > 1) for site in sites]
    if hardware is not None:
        groups = [_node(node, node.name) for node in hardware.nodes]
    content = {"name": hardware.name if hardware else "planned", "nodes": groups, "tenants": tenants}
    return yaml.safe_dump(content, sort_keys=False, default_flow_style=None)


def _group(site: PlanningSite, several: bool) -> dict[str, object]:
    accelerator, width = site.node.accelerator, len(str(site.nodes - 1))
    stem = f"{accelerator}-" if several else "n"
    name = f"{stem}[{0:0{width}}-{site.nodes - 1:0{width}}]" if site.nodes > 1 else f"{stem}0"
    return _node(site.node, name)


def _node(node: Node, name: str) -> dict[str, object]:
    levels: dict[str, object] = {"levels": dict(node.levels)} if node.levels else {}
    rack: dict[str, object] = {"rack": node.rack} if node.rack else {}
    return {"name": name, "gpu": node.accelerator, "gpus": node.gpus, **rack, **levels}


def _print(plan: TypePlan, goals: Mapping[str, QueueingGoal]) -> None:
    table = Table(f"{plan.name}: GPUs reserved", *right("expected queueing (s)", "goals met"))
    for way in plan.ways:
        here = " (the budget)" if way["gpus"] == plan.gpus else ""
        table.add_row(f"{way['gpus']:,.0f}{here}", f"{way['expected_seconds']:,.0f}", f"{way['goals_met']:.0f}")
    console().print(table)
    headings = ("goal (s)", "cells", "expected (s)", "unseen (s)", "in proportion", "unseen (s)")
    table = Table("tenant", "cell", *right(*headings))
    for share, other in zip(plan.shares, plan.usual, strict=True):
        waits = [f"{outcome.waiting_seconds.get(share.tenant, 0.0):,.0f}" for outcome in plan.outcomes]
        table.add_row(
            share.tenant, share.level, f"{goals[share.tenant].queueing_seconds:,.0f}", str(share.cells),
            f"{share.expected_seconds:,.0f}", waits[0], str(other.cells), waits[1],
        )  # fmt: skip
    console().print(table)
    one, two = plan.outcomes
    unseen = "On weeks it has not seen"
    if plan.unseen_seconds < WEEK_SECONDS:
        unseen = f"On the last {plan.unseen_seconds / 86400:.1f} days, unseen and begun on an empty cluster"
    print(f"{unseen}: {one.mean_seconds:,.0f} s of queueing on average and {counted(one.goals_met, 'goal')} met;")
    print(f"with cells in proportion to demand {two.mean_seconds:,.0f} s and {two.goals_met}.")
    if one.too_large or two.too_large:
        print(
            f"Not counted: {counted(one.too_large, 'job')} ({two.too_large}) larger than any before, which do not fit."
        )
