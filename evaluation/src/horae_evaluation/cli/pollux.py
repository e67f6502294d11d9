"""`horae reproduce pollux`: Tiresias and Optimus on Pollux's workloads, beside the published completion times."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.table import Table

from horae.cli.output import Data, Output, OutputFormat, console, need_data, right
from horae_evaluation.pollux.experiment import PolluxCase, read_source
from horae_evaluation.pollux.rows import PolluxRow, as_plain, rows


def pollux_command(
    data: Data = None,
    policy: Annotated[list[str], typer.Option(help="tiresias or optimus; again for both.")] = [  # noqa: B006
        "tiresias",
        "optimus",
    ],
    set_name: Annotated[str, typer.Option("--set", help="0.5x, 1.0x, 1.5x, 2.0x or realistic.")] = "1.0x",
    workload: Annotated[int, typer.Option(min=1, help="Which of the set's workloads.")] = 6,
    variants: Annotated[bool, typer.Option(help="One change at a time, too.")] = True,
    quiet: Annotated[bool, typer.Option("--quiet", help="Tell nothing on the way.")] = False,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Tiresias and Optimus on 16 nodes of 4 T4, beside the published mean completion times."""
    source = read_source(need_data(data))
    base = PolluxCase("", set_name=set_name, workload=workload)
    found = rows(source, policy, base, with_variants=variants, told=_silent if quiet else _told)
    if output is OutputFormat.JSON:
        print(json.dumps(as_plain(found), indent=2))
    else:
        _print(found)


def _told(policy: str, change: str) -> None:
    print(f"{policy}: {change}", file=sys.stderr)


def _silent(policy: str, change: str) -> None: ...


def _print(found: Sequence[PolluxRow]) -> None:
    headings = ("jobs", "mean (s)", "published", "difference", "median", "published", "p99", "published", "starts")
    table = Table("policy", "change", *right(*headings, "wait (s)", "GPU-hours"))
    for row in found:
        ours, theirs = row.result, row.published
        cells = [f"{ours.jobs:,}"]
        for name in ("mean_seconds", "p50_seconds", "p99_seconds"):
            cells.append(f"{getattr(ours, name):,.0f}")
            cells.append("-" if theirs is None else f"{getattr(theirs, name):,.0f}")
            if name == "mean_seconds":
                cells.append("-" if row.difference is None else f"{row.difference:+.1%}")
        cells += [f"{ours.starts_mean:.2f}", f"{ours.queueing_mean_seconds:,.0f}", f"{ours.gpu_hours:,.0f}"]
        table.add_row(row.policy, row.change, *cells)
    console().print(table)
    print("Completion from submission to end. Starts: of a job, on average. Wait: until the first of them.")
