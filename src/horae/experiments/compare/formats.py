"""A comparison as a table, Markdown, JSON or CSV. Tables are rounded for people; JSON and CSV have every digit."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping
from math import isfinite, isnan
from typing import Any, NamedTuple

from horae.experiments.compare.baseline_difference import CONFIDENCE, Versus
from horae.experiments.compare.table import Comparison, ComparisonRow, Numbers
from horae.model.safe_text import printable
from horae.model.serialization import Plain
from horae.reports.statistics import Difference

NOTHING = "-"
MARK = "*"  # of a policy that knows run times in advance, which a real cluster does not


class TableColumn(NamedTuple):
    heading: str
    rank: int  # columns of the highest rank are dropped first where there is no room
    text: Callable[[Numbers], str]


def _hours(name: str) -> Callable[[Numbers], str]:
    return lambda numbers: _known(numbers, name, lambda seconds: f"{seconds / 3600:,.2f} h")


def _percent(name: str) -> Callable[[Numbers], str]:
    return lambda numbers: _known(numbers, name, lambda share: f"{share:.1%}")


def _number_column(name: str, form: str) -> Callable[[Numbers], str]:
    return lambda numbers: _known(numbers, name, lambda value: format(value, form))


def _known(numbers: Numbers, name: str, text: Callable[[float], str]) -> str:
    value = numbers.get(name)
    return NOTHING if value is None or isnan(value) else text(value)


def _finished(numbers: Numbers) -> str:
    return f"{numbers['finished']:,.0f}/{numbers['jobs']:,.0f}" if "jobs" in numbers else NOTHING


GROUP_COLUMNS = (
    TableColumn("finished", 0, _finished),
    TableColumn("completion: mean", 0, _hours("completion_mean_seconds")),
    TableColumn("median", 2, _hours("completion_median_seconds")),
    TableColumn("p99", 1, _hours("completion_p99_seconds")),
    TableColumn("waiting: mean", 3, _hours("waiting_mean_seconds")),
    TableColumn("preemptions", 4, _number_column("preemptions", ",.0f")),
    TableColumn("rho max", 3, _number_column("rho_paper.max", ",.2f")),
    TableColumn("rho > 1", 3, _percent("rho_paper.unfair_share")),
)
COLUMNS = (
    *GROUP_COLUMNS[:5],
    TableColumn("makespan", 4, _hours("makespan_seconds")),
    TableColumn("utilisation", 2, _percent("utilisation")),
    *GROUP_COLUMNS[5:],
    TableColumn("Jain", 5, _number_column("rho_paper.jain", ".3f")),
)
VERSUS_AFTER = 2  # the comparison with the baseline follows the mean that it refers to


class Page(NamedTuple):
    """A table as text."""

    headings: tuple[str, ...]
    ranks: tuple[int, ...]
    lines: tuple[tuple[str, ...], ...]
    left: int  # the number of left-aligned columns, which are names


def page(comparison: Comparison) -> Page:
    headings = [column.heading for column in COLUMNS]
    ranks = [column.rank for column in COLUMNS]
    headings.insert(VERSUS_AFTER, f"vs {comparison.baseline}")
    ranks.insert(VERSUS_AFTER, 1)
    lines = [(marked(row), *_line(row.estimate, _versus_text(row))) for row in comparison.rows]
    lines.append(("lower bound", *_line(comparison.lower_bound, "")))
    return Page(("policy", *headings), (0, *ranks), tuple(lines), left=1)


def group_page(comparison: Comparison) -> Page:
    """A table with one row per policy and tenant or user."""
    headings = ("policy", comparison.by.removesuffix("s"), *(column.heading for column in GROUP_COLUMNS))
    return Page(headings, (0, 0, *(column.rank for column in GROUP_COLUMNS)), tuple(_group_lines(comparison)), left=2)


def marked(row: ComparisonRow) -> str:
    """The label of a policy, with a mark if it knows run times in advance."""
    label = _one_line(row.label)
    return f"{label} {MARK}" if row.uses_lengths else label


def _one_line(name: str) -> str:
    """A name on one line, with control characters escaped."""
    return printable(" ".join(name.splitlines()))


def _line(numbers: Numbers, versus: str) -> list[str]:
    cells = [column.text(numbers) for column in COLUMNS]
    cells.insert(VERSUS_AFTER, versus)
    return cells


def _group_lines(comparison: Comparison) -> Iterator[tuple[str, ...]]:
    for row in comparison.rows:
        for name, numbers in row.groups.items():
            yield (marked(row), _one_line(name), *(column.text(numbers) for column in GROUP_COLUMNS))


def _versus_text(row: ComparisonRow) -> str:
    return "" if row.versus is None else difference_text(row.versus)


def difference_text(versus: Versus) -> str:
    middle, low, high, _ = versus.relative
    if isnan(middle):
        return NOTHING
    among = f" on {versus.jobs:,} of {versus.jobs + versus.unpaired:,} jobs" if versus.unpaired else ""
    if not (isfinite(low) and isfinite(high)):
        return f"{middle:+.1%}{among}"  # one sample has no interval
    return f"{middle:+.1%} ({low:+.1%} to {high:+.1%}){among}"


# A comparison for other programs and for papers: equal input gives equal bytes, however many processes ran it


def as_json(comparison: Comparison, parameters: Mapping[str, Plain]) -> str:
    """Everything with full precision, and all parameters needed to reproduce it."""
    value = {
        "parameters": {**parameters, "baseline": comparison.baseline, "confidence": CONFIDENCE},
        "estimates_are": "of seed 0" if comparison.is_recorded else "means over seeds",
        "policies": [_policy(row, comparison.by) for row in comparison.rows],
        "lower_bound": _plain(comparison.lower_bound),
    }
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def as_csv(comparison: Comparison) -> str:
    """One row per policy and seed; with groups, one for each of these as well."""
    text = io.StringIO()
    group = [comparison.by.removesuffix("s")] if comparison.by else []
    names = list(dict.fromkeys(name for row in comparison.rows for numbers in row.by_seed for name in numbers))
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["policy", "seed", *group, *names])
    for policy, seed, name, numbers in _records(comparison):
        cells = [_cell(numbers.get(each)) for each in names]
        writer.writerow([policy, seed, *([name] if group else []), *cells])
    return text.getvalue()


def as_markdown(comparison: Comparison) -> str:
    pages = [page(comparison), *([group_page(comparison)] if comparison.by else [])]
    return "\n".join(_markdown(each) for each in pages)


def _policy(row: ComparisonRow, by: str) -> dict[str, Plain]:
    seeds = []
    for seed, (numbers, groups) in enumerate(zip(row.by_seed, row.groups_by_seed, strict=True)):
        inside = {by: {name: _plain(each) for name, each in groups.items()}} if by else {}
        seeds.append({"seed": seed, **_plain(numbers), **inside})
    return {
        "policy": row.label,
        "uses_lengths": row.uses_lengths,
        "estimate": _plain(row.estimate),
        "versus_baseline": None if row.versus is None else _versus(row.versus),
        "seeds": seeds,
    }


def _versus(versus: Versus) -> dict[str, Plain]:
    seconds, relative = versus.seconds, versus.relative
    return {
        "metric": "completion_mean_seconds",
        "jobs_paired": versus.jobs,
        "jobs_unpaired": versus.unpaired,
        "baseline_mean_seconds": _number(versus.baseline_mean_seconds),
        "difference_seconds": _interval(seconds),
        "difference_relative": _interval(relative),
        "interval_over": versus.over,
        "samples": seconds.samples,
    }


def _interval(found: Difference) -> dict[str, Plain]:
    return {"mean": _number(found.mean), "low": _number(found.low), "high": _number(found.high)}


def _plain(numbers: Numbers) -> dict[str, Plain]:
    return {name: _number(value) for name, value in numbers.items()}


def _number(value: float) -> float | None:
    """A number for JSON, which has none for the mean of nothing."""
    return value if isfinite(value) else None


def _records(comparison: Comparison) -> Iterator[tuple[str, int, str, Numbers]]:
    for row in comparison.rows:
        for seed, numbers in enumerate(row.by_seed):
            yield row.label, seed, "", numbers
            for name, group in row.groups_by_seed[seed].items():
                yield row.label, seed, name, group


def _cell(value: float | None) -> Any:
    return "" if value is None or not isfinite(value) else value


def _markdown(sheet: Page) -> str:
    rules = [":---" if index < sheet.left else "---:" for index in range(len(sheet.headings))]
    rows = [sheet.headings, tuple(rules), *sheet.lines]
    return "".join(f"| {' | '.join(_escaped(cell) for cell in row)} |\n" for row in rows)


def _escaped(cell: str) -> str:
    """A cell on one line, with characters that would end the cell, or the escape, escaped."""
    return " ".join(cell.splitlines()).replace("\\", "\\\\").replace("|", "\\|")
