"""`horae report`: runs as one page that can be sent, printed and read without anything else."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from horae.cli.compare import ByOption
from horae.cli.text import examples

app = typer.Typer(add_completion=False)


@app.command(
    epilog=examples(
        "horae report run.jsonl -o report.html",
        "horae report before=fifo.jsonl after=tiresias.jsonl -o report.html",
    )
)
def report_command(
    runs: Annotated[
        list[str],
        typer.Argument(metavar="RUN...", help="Journals (simulate --journal, horae journal), as FILE or NAME=FILE."),
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="The page.")] = Path("report.html"),
    by: ByOption = None,
) -> None:
    """Write a page about one run, or about several of the same jobs; the first is the one to compare with.

    `horae compare --report` does the same for a comparison.
    """
    from horae.experiments.compare.report import report, write_report  # noqa: PLC0415  (matplotlib: a second)
    from horae.experiments.compare.report_file import check_report_file  # noqa: PLC0415
    from horae.experiments.run_files import compare_files  # noqa: PLC0415

    check_report_file(output, "--output")
    comparison, facts = compare_files(runs, f"{by.value}s" if by else "")
    write_report(output, report(comparison, facts))
    print(f"{output}: {output.stat().st_size:,} bytes")
