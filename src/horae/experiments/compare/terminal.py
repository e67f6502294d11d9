"""The tables of a comparison on a terminal, with as many columns as fit, and the legend below."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from horae.experiments.compare.baseline_difference import CONFIDENCE
from horae.experiments.compare.formats import MARK, Page, group_page, page
from horae.experiments.compare.table import Comparison
from horae.model.setup import Setup
from horae.reports.labels import short_labels

RHO = (
    "rho: time over that with an equal share of time on all GPUs (rho_paper, as in Themis) or of the GPUs (rho_private)"
)
KNOWS = f"{MARK} knows run times in advance"
NAME_MIN = 18  # characters left of a name before a column is dropped
HEADING_MIN = 20  # our own headings are shorter; the baseline's name may not be
PIPED_WIDTH = 10_000  # not a terminal: a table that goes into a file is as wide as it needs to be


def print_tables(comparison: Comparison, setups: Sequence[Setup] = (), console: Console | None = None) -> None:
    pages = [page(comparison), *([group_page(comparison)] if comparison.by else [])]
    print_pages(pages, [*_legend(comparison), *assumptions(setups)], "-o md, csv or json", console)


def assumptions(setups: Sequence[Setup]) -> list[str]:
    """The assumptions that the numbers depend on and that a user may not have made."""
    costs = dict.fromkeys(f"{setup.cluster.restart_seconds:g} s" for setup in setups)
    return [f"resuming takes {' or '.join(costs)} unless a job says otherwise"] if costs else []


def print_pages(pages: Sequence[Page], legend: Sequence[str], instead: str, console: Console | None = None) -> None:
    """Prints tables with as many columns as fit, and says which did not and where they can be had `instead`."""
    shown = console or Console()
    if not shown.is_terminal:
        shown = Console(width=PIPED_WIDTH, file=shown.file)
    for sheet in pages:
        table, left_out = _fitting(sheet, shown)
        shown.print(table)
        if left_out:
            _note(shown, f"no room for {', '.join(left_out)}: use a wider terminal, or {instead}")
    _note(shown, "; ".join(legend))


def _note(console: Console, text: str) -> None:
    console.print(escape(text), soft_wrap=True, highlight=False)


def _legend(comparison: Comparison) -> list[str]:
    found = next((row.versus for row in comparison.rows if row.versus is not None), None)
    over = f", {CONFIDENCE:.0%} interval over {found.seconds.samples} {found.over}" if found else ""
    seeds = len(comparison.rows[0].by_seed)
    shown = "all numbers are of the trace as it is, seed 0" if comparison.is_recorded else f"means over {seeds} seeds"
    parts = [f"vs {comparison.baseline}: mean completion time of the same jobs{over}", RHO]
    if any(row.uses_lengths for row in comparison.rows):
        parts.append(KNOWS)
    return [*parts, shown] if seeds > 1 else parts


def _fitting(sheet: Page, console: Console) -> tuple[Table, list[str]]:
    """The table with as many columns as fit; names are shortened first,
    then the least important columns are dropped."""
    kept = list(range(len(sheet.headings)))
    left_out: list[str] = []
    length = max((len(line[index]) for line in sheet.lines for index in range(sheet.left)), default=0)
    while (table := _table(sheet, kept, length)) and (excess := _width(table, console) - console.width) > 0:
        if length > NAME_MIN:
            length = max(NAME_MIN, length - excess)
            continue
        last = max(kept, key=lambda index: (sheet.ranks[index], index))
        if not sheet.ranks[last]:
            break
        kept.remove(last)
        left_out.insert(0, sheet.headings[last])
    return table, left_out


def _width(table: Table, console: Console) -> int:
    return console.measure(table, options=console.options.update(width=PIPED_WIDTH)).maximum


def _table(sheet: Page, kept: Sequence[int], length: int) -> Table:
    """The table with names of at most this many characters."""
    columns = [
        Column(escape(heading), justify="left" if index < sheet.left else "right", no_wrap=True)
        for index, heading in enumerate(short_labels(sheet.headings, max(length, HEADING_MIN)))
        if index in kept
    ]
    table = Table(*columns)
    names = [short_labels([line[index] for line in sheet.lines], length) for index in range(sheet.left)]
    for row, line in enumerate(sheet.lines):
        cells = [*(column[row] for column in names), *line[sheet.left :]]
        table.add_row(*(escape(cells[index]) for index in kept))
    return table
