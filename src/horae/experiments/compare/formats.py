"""A comparison as a table, Markdown, JSON or CSV. Tables are rounded for people; JSON and CSV have every digit."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from math import isfinite, isnan, nan
from typing import NamedTuple

from horae.experiments.compare.baseline_difference import CONFIDENCE, Versus
from horae.experiments.compare.table import Comparison, ComparisonRow, Numbers
from horae.model.safe_text import printable
from horae.model.serialization import Plain
from horae.reports import UNFAIR_ABOVE
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


_TIMES = (
    TableColumn("finished", 0, _finished),
    TableColumn("completion: mean", 0, _hours("completion_mean_seconds")),
    TableColumn("median", 2, _hours("completion_median_seconds")),
    TableColumn("p99", 1, _hours("completion_p99_seconds")),
    TableColumn("waiting: mean", 3, _hours("waiting_mean_seconds")),
)
_PREEMPTIONS = TableColumn("preemptions", 4, _number_column("preemptions", ",.0f"))
_WHOLE_RUN = (
    TableColumn("makespan", 4, _hours("makespan_seconds")),
    TableColumn("utilisation", 2, _percent("utilisation")),
)
_GPU_HOURS = (
    TableColumn("GPU-hours", 2, _number_column("gpu_hours", ",.1f")),
    TableColumn("share", 1, _percent("gpu_hours_share")),
)
_WEIGHT = TableColumn("by weight", 1, _percent("weight_share"))
_JAIN = TableColumn("Jain of rho_paper", 6, _number_column("rho_paper.jain", ".3f"))
VERSUS_AFTER = 2  # the comparison with the baseline follows the mean that it refers to


def _rho(unfair_above: float) -> tuple[TableColumn, ...]:
    return tuple(
        column
        for name, rank in (("rho_paper", 3), ("rho_private", 5))
        for column in (
            TableColumn(f"{name} max", rank, _number_column(f"{name}.max", ",.2f")),
            TableColumn(f"{name} > {unfair_above:g}", rank, _percent(f"{name}.unfair_share")),
        )
    )


def _run_columns(unfair_above: float) -> tuple[TableColumn, ...]:
    return (*_TIMES, *_WHOLE_RUN, _PREEMPTIONS, *_rho(unfair_above), _JAIN)


def _group_columns(by: str, unfair_above: float) -> tuple[TableColumn, ...]:
    weight = (_WEIGHT,) if by == "tenants" else ()
    return (*_TIMES, *_GPU_HOURS, *weight, _PREEMPTIONS, *_rho(unfair_above))


class Page(NamedTuple):
    """A table as text."""

    headings: tuple[str, ...]
    ranks: tuple[int, ...]
    lines: tuple[tuple[str, ...], ...]
    left: int  # the number of left-aligned columns, which are names


def page(comparison: Comparison) -> Page:
    columns = _run_columns(comparison.unfair_above)
    rows = [(marked(row), row.estimate, _versus_text(row)) for row in comparison.rows]
    rows.append(("lower bound", comparison.lower_bound, ""))
    rows += [(f"lower bound on {_one_line(name)}", found, "") for name, found in comparison.other_bounds.items()]
    plain = _page("policy", [(label, estimate) for label, estimate, _ in rows], columns)
    before = 1 + VERSUS_AFTER
    return Page(
        (*plain.headings[:before], f"vs {comparison.baseline}", *plain.headings[before:]),
        (*plain.ranks[:before], 1, *plain.ranks[before:]),
        tuple((*line[:before], row[2], *line[before:]) for line, row in zip(plain.lines, rows, strict=True)),
        left=1,
    )


def runs_page(runs: Mapping[str, Numbers], knowing: Collection[str]) -> Page:
    """A table of runs that are not compared with each other; `knowing`: labels of policies that know run times."""
    rows = [(_marked(label, label in knowing), found) for label, found in runs.items()]
    return _page("policy", rows, _run_columns(UNFAIR_ABOVE))


def group_page(comparison: Comparison) -> Page:
    """A table with one row per policy and tenant or user."""
    columns = _group_columns(comparison.by, comparison.unfair_above)
    headings = ("policy", comparison.by.removesuffix("s"), *(column.heading for column in columns))
    lines = tuple(
        (marked(row), _one_line(name), *(column.text(found) for column in columns))
        for row in comparison.rows
        for name, found in row.groups.items()
    )
    return Page(headings, (0, 0, *(column.rank for column in columns)), lines, left=2)


def _page(name: str, rows: Sequence[tuple[str, Numbers]], columns: Sequence[TableColumn]) -> Page:
    return Page(
        (name, *(column.heading for column in columns)),
        (0, *(column.rank for column in columns)),
        tuple((label, *(column.text(found) for column in columns)) for label, found in rows),
        left=1,
    )


def marked(row: ComparisonRow) -> str:
    """The label of a policy, with a mark if it knows run times in advance."""
    return _marked(row.label, row.uses_lengths)


def _marked(label: str, is_marked: bool) -> str:
    return f"{_one_line(label)} {MARK}" if is_marked else _one_line(label)


def _one_line(name: str) -> str:
    """A name on one line, with control characters escaped."""
    return printable(" ".join(name.splitlines()))


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
        "unfair_above": comparison.unfair_above,
        "policies": [_policy(row, comparison.by) for row in comparison.rows],
        "lower_bound": _plain(comparison.lower_bound),
        "lower_bounds_elsewhere": {name: _plain(found) for name, found in comparison.other_bounds.items()},
    }
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def as_csv(comparison: Comparison) -> str:
    """One row per policy and seed; with groups, one for each of these as well."""
    text = io.StringIO()
    columns = as_columns(comparison)
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for row in zip(*columns.values(), strict=True):
        writer.writerow("" if cell is None else cell for cell in row)
    return text.getvalue()


def as_columns(comparison: Comparison) -> dict[str, list[str | float | None]]:
    """One row per policy and seed; with groups, one for each of these as well. None stands for the mean of nothing."""
    records = list(_records(comparison))
    columns: dict[str, list[str | float | None]] = {
        "policy": [policy for policy, _, _, _ in records],
        "seed": [seed for _, seed, _, _ in records],
    }
    if comparison.by:
        columns[comparison.by.removesuffix("s")] = [name or None for _, _, name, _ in records]
    for name in dict.fromkeys(name for _, _, _, numbers in records for name in numbers):
        columns[name] = [_number(numbers.get(name, nan)) for _, _, _, numbers in records]
    return columns


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


def _markdown(sheet: Page) -> str:
    rules = [":---" if index < sheet.left else "---:" for index in range(len(sheet.headings))]
    rows = [sheet.headings, tuple(rules), *sheet.lines]
    return "".join(f"| {' | '.join(_escaped(cell) for cell in row)} |\n" for row in rows)


def _escaped(cell: str) -> str:
    """A cell on one line, with characters that would end the cell, or the escape, escaped."""
    return " ".join(cell.splitlines()).replace("\\", "\\\\").replace("|", "\\|")
