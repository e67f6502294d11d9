"""`horae reproduce hived`: tenants on private clusters, by quota and with cells."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from horae.cli.output import Data, Output, OutputFormat, console, need_data, right
from horae.experiments.workers import Tell, Work, WorkerSpec, WorkerTask, run_in_processes
from horae.model.errors import InputError
from horae_evaluation.cli.gavel import PLOT_ENDINGS, PLOT_ENDINGS_TEXT
from horae_evaluation.hived.experiment import (
    POLICIES,
    Affinity,
    HivedCase,
    HivedResult,
    HivedWorkload,
    read_workloads,
    run_case,
)
from horae_evaluation.hived.rows import (
    GuestRow,
    LoanRow,
    TenantRow,
    as_plain,
    failures,
    guest_rows,
    loan_rows,
    tenant_rows,
)


class QuotaPlacement(Enum):
    PACK = "pack"
    SPREAD = "spread"


WORKLOADS = ("philly", "small", "itp")


def hived_command(
    data: Data = None,
    workload: Annotated[list[str], typer.Option(help="philly, itp, or small (24 nodes of 4 GPUs); again for more.")] = [  # noqa: B006
        "philly",
        "small",
    ],
    policy: Annotated[list[str], typer.Option(help="yarn-cs, tiresias or gandiva; again for more.")] = [  # noqa: B006
        "yarn-cs",
        "tiresias",
    ],
    affinity: Annotated[list[Affinity], typer.Option(help="hard or soft; again for both.")] = [Affinity.HARD],  # noqa: B006
    opportunistic: Annotated[
        float, typer.Option(help="Part of the jobs that have no guarantee; 0: leave that out.")
    ] = 0.5,
    placement: Annotated[
        list[QuotaPlacement],
        typer.Option(help="By quota: pack jobs on the fullest nodes, or spread them; again for both."),
    ] = [QuotaPlacement.PACK, QuotaPlacement.SPREAD],  # noqa: B006
    borrow: Annotated[bool, typer.Option(help="Also with jobs that borrow spare GPUs.")] = False,
    workers: Annotated[int, typer.Option(min=0, help="Processes at a time; 0: as many as there are processors.")] = 0,
    plot: Annotated[Path | None, typer.Option(help="Draw the waiting times into this PDF, SVG or PNG file.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Tell nothing on the way.")] = False,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Queueing of tenants on private clusters, by quotas of GPUs and with cells, also beside opportunistic work."""
    folder = need_data(data)
    _check(workload, policy, opportunistic, plot)
    workloads = read_workloads(folder, workload)
    crew = _Crew(workloads, workers or len(os.sched_getaffinity(0)), quiet=quiet)
    rows: list[TenantRow] = []
    guests: list[GuestRow] = []
    loans: list[LoanRow] = []
    for name in workloads:
        for each in policy:
            for kind in affinity:
                for how in placement:
                    rows += tenant_rows(name, each, kind, how is QuotaPlacement.SPREAD, crew)
            if opportunistic:
                guests += guest_rows(name, each, opportunistic, crew)
            if borrow:
                loans += loan_rows(name, each, crew)
    wrong = failures(rows)
    if output is OutputFormat.JSON:
        found = {"tenants": as_plain(rows), "guests": as_plain(guests), "loans": as_plain(loans), "failures": wrong}
        print(json.dumps(found, indent=2))
    else:
        _print(rows, guests, opportunistic)
        if loans:
            _print_loans(loans)
        for line in wrong:
            print(f"FAILS: {line}")
    if plot is not None:
        from horae_evaluation.hived.figures import draw  # noqa: PLC0415  (matplotlib takes a second to import)

        draw(rows, plot)
    if wrong:
        raise typer.Exit(1)


def _check(workloads: Sequence[str], policies: Sequence[str], opportunistic: float, plot: Path | None) -> None:
    for name in workloads:
        if name not in WORKLOADS:
            raise InputError(f"is {name!r}", field="--workload", remedy=f"use {', '.join(WORKLOADS)}")
    for name in policies:
        if name not in POLICIES:
            raise InputError(f"is {name!r}", field="--policy", remedy=f"use {', '.join(POLICIES)}")
    if not 0 <= opportunistic <= 0.5:
        raise InputError(f"is {opportunistic}", field="--opportunistic", remedy="give 0 to 0.5")
    if plot is not None and plot.suffix not in PLOT_ENDINGS:
        raise InputError(f"is {str(plot)!r}", field="--plot", remedy=f"name a file that ends in {PLOT_ENDINGS_TEXT}")


def open_shop(workloads: Mapping[str, HivedWorkload]) -> Work[HivedCase, HivedResult]:
    def work(case: HivedCase, tell: Tell) -> HivedResult:
        return run_case(case, workloads[case.workload])

    return work


class _Crew:
    """Runs the requested cases, each once, and reports progress."""

    def __init__(self, workloads: Mapping[str, HivedWorkload], workers: int, *, quiet: bool) -> None:
        self._trade = WorkerSpec(open_shop, workloads)
        self._workers = workers
        self._quiet = quiet
        self._known: dict[HivedCase, HivedResult] = {}

    def __call__(self, cases: Sequence[HivedCase]) -> Mapping[HivedCase, HivedResult]:
        missing = [case for case in cases if case not in self._known]
        errands = [WorkerTask(number, case) for number, case in enumerate(missing)]
        for number, result in run_in_processes(errands, self._trade, self._workers, self):
            self._known[missing[number]] = result
            if not self._quiet:
                print(f"{missing[number]}: {result.processor_seconds:.0f} s of processor time", file=sys.stderr)
        return self._known

    def started(self, number: int) -> None: ...

    def advanced(self, number: int, amount: float) -> None: ...


def _print(rows: Sequence[TenantRow], guests: Sequence[GuestRow], part: float) -> None:
    headings = ("jobs", "private", "p99", "quota", "p99", "cells", "p99", "later by quota", "at most")
    table = Table("workload", "policy", "affinity", "quota", "tenant", *right(*headings), "cells as private")
    for row in rows:
        waits = [
            _minutes(seconds)
            for each in (row.private, row.quota, row.cells)
            for seconds in (each.queueing_mean_seconds, each.queueing_p99_seconds)
        ]
        later = f"{row.delayed_by_quota:.1%}", _minutes(row.worst_by_quota_seconds)
        verdict = "identical" if row.is_identical else "DIFFERS"
        table.add_row(
            row.workload,
            row.policy,
            row.affinity,
            row.placement,
            row.tenant,
            f"{row.private.jobs:,}",
            *waits,
            *later,
            verdict,
        )
    console().print(table)
    print("Queueing in minutes, mean and 99th percentile. Later by quota: jobs that wait over a minute more than on a")
    print("private cluster, and the longest of these delays.")
    if not guests:
        return
    table = Table(
        "workload", "policy", "binding", *right("preemptions", "fragmentation", "later, mean (s)", "p99 (s)", "max (s)")
    )
    for guest in guests:
        table.add_row(
            guest.workload, guest.policy, guest.binding, f"{guest.preemptions:,}", f"{guest.fragmentation:.1%}",
            f"{guest.later_mean_seconds:,.1f}", f"{guest.later_p99_seconds:,.0f}", f"{guest.later_max_seconds:,.0f}",
        )  # fmt: skip
    console().print(table)
    print(f"{part:.0%} of the jobs have no guarantee and leave within half a minute when told to. Later: the start of")
    print("jobs with a guarantee, than on private clusters. Fragmentation: of idle GPUs, those on nodes partly in use.")


def _print_loans(rows: Sequence[LoanRow]) -> None:
    headings = ("private", "borrowing", "private", "borrowing", "start later", "at most", "end later", "at most")
    table = Table("workload", "policy", "tenant", *right(*headings))
    for row in rows:
        means = [
            _minutes(getattr(each, name))
            for name in ("queueing_mean_seconds", "completion_mean_seconds")
            for each in (row.private, row.borrowing)
        ]
        starts = f"{row.later_starts:.1%}", _minutes(row.latest_start_seconds)
        ends = f"{row.later_ends:.1%}", _minutes(row.latest_end_seconds)
        table.add_row(row.workload, row.policy, row.tenant, *means, *starts, *ends)
    console().print(table)
    print("Mean queueing, then mean completion time, in minutes, on private clusters and with borrowing; the part of")
    print("the jobs that start and end later than in private, and by how much at most.")


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:,.1f}"
