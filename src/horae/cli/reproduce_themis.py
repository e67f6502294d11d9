"""`horae reproduce themis`: the claims of its evaluation, one by one."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from horae.cli.output import Format, Output, console, right
from horae.model.errors import InputError
from horae.model.plain import to_plain
from horae.reproduction.results import results_folder
from horae.reproduction.themis_claims import Chapter, chapters
from horae.reproduction.themis_results import Answers

CHAPTERS = range(1, 10)
COLUMNS = (
    ("max rho", "rho_paper_max", 1.0, ".2f"),
    ("at least", "rho_floor_max", 1.0, ".2f"),
    ("measured", "rho_measured_max", 1.0, ".2f"),
    ("mean", "rho_measured_mean", 1.0, ".2f"),
    ("Jain", "rho_measured_jain", 1.0, ".3f"),
    ("over 1", "over_share", 1.0, ".1%"),
    ("completion (h)", "completion_mean_seconds", 1 / 3600, ".2f"),
    ("GPU-hours", "gpu_hours", 1.0, ",.0f"),
    ("starts", "starts", 1.0, ",.0f"),
)


def themis_command(
    claim: Annotated[
        list[int], typer.Option(help="1 to 8, or 9 for what goes beyond; again for more. None: all.")
    ] = [],  # noqa: B006
    seeds: Annotated[int, typer.Option(min=1, help="Workloads, each run under all that is compared.")] = 10,
    workers: Annotated[int, typer.Option(min=0, help="Processes at a time; 0: as many as there are processors.")] = 0,
    cache: Annotated[Path | None, typer.Option(help="The folder in which results are kept.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw a figure for each claim into this folder.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Tell nothing on the way.")] = False,
    output: Output = Format.TABLE,
) -> None:
    """Fairness by auction beside Tiresias, Optimus, Gandiva and SLAQ, on W1 and W2. Exits with 1 if a claim fails."""
    chosen = sorted(set(claim)) or list(CHAPTERS)
    if not set(chosen) <= set(CHAPTERS):
        raise InputError(f"is {chosen}", field="--claim", remedy="give numbers from 1 to 9")
    if plot is not None and plot.exists() and not plot.is_dir():
        raise InputError(f"is {str(plot)!r}", field="--plot", remedy="name a folder")
    answers = Answers(cache or results_folder(), workers or len(os.sched_getaffinity(0)), _silence if quiet else _tell)
    try:
        made = chapters(answers, range(seeds), chosen)
    except KeyboardInterrupt:
        _tell(f"interrupted; finished runs are kept in {answers.folder}, and the same command goes on from there")
        raise typer.Exit(130) from None
    if output is Format.JSON:
        print(json.dumps(to_plain(made), indent=1))
    else:
        _print(made, seeds)
    if plot is not None:
        from horae.reproduction.themis_figures import draw  # noqa: PLC0415  (matplotlib takes a second to import)

        draw(made, plot)
    if any(finding.holds is False for chapter in made for finding in chapter.findings):
        raise typer.Exit(1)


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _silence(line: str) -> None: ...


def _print(made: Sequence[Chapter], seeds: int) -> None:
    for chapter in made:
        table = Table("", chapter.axis, *right(*(heading for heading, *_ in COLUMNS)), title=chapter.title)
        for name, points in chapter.lines.items():
            for point in points:
                values = [f"{point.median(field) * unit:{form}}" for _, field, unit, form in COLUMNS]
                table.add_row(name, point.label, *values)
        console().print(table)
        for finding in chapter.findings:
            verdict = {True: "holds", False: "DOES NOT HOLD", None: "measured"}[finding.holds]
            print(f"{verdict}: {finding.claim}: {finding.measured}")
        print()
    print(f"Medians over {seeds} seeds. Max rho: by the paper's T_id; at least: what no schedule can go below for that")
    print("app, as its longest chain of jobs takes so long. Measured: T_id by running the app alone on its share.")
