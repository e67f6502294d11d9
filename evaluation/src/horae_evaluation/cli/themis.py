"""`horae reproduce themis`: the claims of its evaluation, one by one."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from horae.cli.output import Data, Output, OutputFormat, console, need_data, right
from horae.experiments.workers import Tell, Work, WorkerSpec, WorkerTask, run_in_processes
from horae.model.errors import InputError
from horae.model.serialization import to_plain
from horae_evaluation.gavel.results import results_folder
from horae_evaluation.hived.experiment import HivedWorkload
from horae_evaluation.themis.claims import Chapter, chapters
from horae_evaluation.themis.page import COLUMNS, PHILLY, page, philly_page, philly_values, values
from horae_evaluation.themis.philly import POLICIES, PhillyCase, PhillyRow, read, run_case
from horae_evaluation.themis.results import Answers

CHAPTERS = range(1, 11)


def themis_command(
    claim: Annotated[list[int], typer.Option(help="1 to 8; 9 and 10 go beyond; again for more. None: all.")] = [],  # noqa: B006
    seeds: Annotated[int, typer.Option(min=1, help="Workloads, each run under all that is compared.")] = 10,
    workers: Annotated[int, typer.Option(min=0, help="Processes at a time; 0: as many as there are processors.")] = 0,
    cache: Annotated[Path | None, typer.Option(help="The folder in which results are kept.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write the tables into this file, too.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw a figure for each claim into this folder.")] = None,
    philly: Annotated[bool, typer.Option("--philly", help="The four Philly clusters in one pool instead.")] = False,
    data: Data = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Tell nothing on the way.")] = False,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Fairness by auction beside Tiresias, Optimus, Gandiva and SLAQ, on W1 and W2. Exits with 1 if a claim fails."""
    tell = _silence if quiet else _tell
    if philly:
        rows = _philly(need_data(data), workers or len(os.sched_getaffinity(0)), tell, output)
        _write(markdown, philly_page(rows))
        return
    chosen = sorted(set(claim)) or list(CHAPTERS)
    if not set(chosen) <= set(CHAPTERS):
        raise InputError(f"is {chosen}", field="--claim", remedy="give numbers from 1 to 10")
    if plot is not None and plot.exists() and not plot.is_dir():
        raise InputError(f"is {str(plot)!r}", field="--plot", remedy="name a folder")
    answers = Answers(cache or results_folder(), workers or len(os.sched_getaffinity(0)), tell)
    try:
        made = chapters(answers, range(seeds), chosen)
    except KeyboardInterrupt:
        _tell(f"interrupted; finished runs are kept in {answers.store.folder}, and the same command goes on from there")
        raise typer.Exit(130) from None
    if output is OutputFormat.JSON:
        print(json.dumps(to_plain(made), indent=1))
    else:
        _print(made, seeds)
    _write(markdown, page(made))
    if plot is not None:
        from horae_evaluation.themis.figures import draw  # noqa: PLC0415  (matplotlib takes a second to import)

        draw(made, plot)
    if any(finding.holds is False for chapter in made for finding in chapter.findings):
        raise typer.Exit(1)


def _philly(folder: Path, workers: int, tell: Callable[[str], None], output: OutputFormat) -> list[PhillyRow]:
    cases = [PhillyCase(name) for name in POLICIES]
    errands = [WorkerTask(number, case) for number, case in enumerate(cases)]
    rows: dict[int, PhillyRow] = {}
    for number, row in run_in_processes(errands, WorkerSpec(open_philly, read(folder)), workers, _Watcher()):
        rows[number] = row
        tell(f"{row.policy}: {row.processor_seconds:.0f} s of processor time")
    ordered = [rows[number] for number in sorted(rows)]
    if output is OutputFormat.JSON:
        print(json.dumps(to_plain(ordered), indent=1))
        return ordered
    table = Table("policy", *right(*PHILLY))
    for row in ordered:
        table.add_row(row.policy, *philly_values(row))
    console().print(table)
    print(f"{ordered[0].jobs:,} jobs, each an app, on one pool of 144 nodes of 8 GPUs. Max rho: by the paper's T_id;")
    print(
        "private: T_id on the GPUs to which the app is entitled; Jain's index and the part over 1 are of that. Rho is"
    )
    print("that of jobs of ten minutes and more; completion is of all.")
    return ordered


def _write(file: Path | None, text: str) -> None:
    if file is None:
        return
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(
            f"cannot be written: {error.strerror}", file=str(file), remedy="name another file with --markdown"
        ) from None


def open_philly(workload: HivedWorkload) -> Work[PhillyCase, PhillyRow]:
    def work(case: PhillyCase, tell: Tell) -> PhillyRow:
        return run_case(case, workload)

    return work


class _Watcher:
    def started(self, number: int) -> None: ...

    def advanced(self, number: int, amount: float) -> None: ...


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _silence(line: str) -> None: ...


def _print(made: Sequence[Chapter], seeds: int) -> None:
    for chapter in made:
        table = Table("", chapter.axis, *right(*(heading for heading, *_ in COLUMNS)), title=chapter.title)
        for name, points in chapter.lines.items():
            for point in points:
                table.add_row(name, point.label, *values(point))
        console().print(table)
        for finding in chapter.findings:
            verdict = {True: "holds", False: "DOES NOT HOLD", None: "measured"}[finding.holds]
            print(f"{verdict}: {finding.claim}: {finding.measured}")
        print()
    print(f"Medians over {seeds} seeds. Max rho: by the paper's T_id; at least: what no schedule can go below for that")
    print("app, as its longest chain of jobs takes so long. Measured: T_id by running the app alone on its share.")
