"""The columns that people read: hours and percent, rounded. Whoever computes with them takes JSON or CSV."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import isfinite, isnan
from typing import NamedTuple

from horae.comparison.table import Comparison, Numbers, Row
from horae.comparison.versus import Versus

NOTHING = "-"


class Column(NamedTuple):
    heading: str
    rank: int  # the highest are the first to go where there is no room
    text: Callable[[Numbers], str]


def _hours(name: str) -> Callable[[Numbers], str]:
    return lambda numbers: _known(numbers, name, lambda seconds: f"{seconds / 3600:,.2f} h")


def _percent(name: str) -> Callable[[Numbers], str]:
    return lambda numbers: _known(numbers, name, lambda share: f"{share:.1%}")


def _plain(name: str, form: str) -> Callable[[Numbers], str]:
    return lambda numbers: _known(numbers, name, lambda value: format(value, form))


def _known(numbers: Numbers, name: str, text: Callable[[float], str]) -> str:
    value = numbers.get(name)
    return NOTHING if value is None or isnan(value) else text(value)


def _finished(numbers: Numbers) -> str:
    return f"{numbers['finished']:,.0f}/{numbers['jobs']:,.0f}" if "jobs" in numbers else NOTHING


GROUP_COLUMNS = (
    Column("finished", 0, _finished),
    Column("completion: mean", 0, _hours("completion_mean_seconds")),
    Column("median", 2, _hours("completion_median_seconds")),
    Column("p99", 1, _hours("completion_p99_seconds")),
    Column("queueing: mean", 3, _hours("queueing_mean_seconds")),
    Column("preemptions", 4, _plain("preemptions", ",.0f")),
    Column("rho max", 3, _plain("rho_paper.max", ",.2f")),
    Column("rho > 1", 3, _percent("rho_paper.unfair_share")),
)
COLUMNS = (
    *GROUP_COLUMNS[:5],
    Column("makespan", 4, _hours("makespan_seconds")),
    Column("utilisation", 2, _percent("utilisation")),
    *GROUP_COLUMNS[5:],
    Column("Jain", 5, _plain("rho_paper.jain", ".3f")),
)
VERSUS_AFTER = 2  # the comparison with the baseline stands beside the mean that it is of


class Page(NamedTuple):
    """A table as text."""

    headings: tuple[str, ...]
    ranks: tuple[int, ...]
    lines: tuple[tuple[str, ...], ...]
    left: int  # so many columns are names, and stand on the left


def page(comparison: Comparison) -> Page:
    headings = [column.heading for column in COLUMNS]
    ranks = [column.rank for column in COLUMNS]
    headings.insert(VERSUS_AFTER, f"vs {comparison.baseline}")
    ranks.insert(VERSUS_AFTER, 1)
    lines = [(row.label, *_line(row.estimate, _versus(row))) for row in comparison.rows]
    lines.append(("lower bound", *_line(comparison.lower_bound, "")))
    return Page(("policy", *headings), (0, *ranks), tuple(lines), left=1)


def group_page(comparison: Comparison) -> Page:
    """A row for each policy and tenant or user."""
    headings = ("policy", comparison.by.removesuffix("s"), *(column.heading for column in GROUP_COLUMNS))
    return Page(headings, (0, 0, *(column.rank for column in GROUP_COLUMNS)), tuple(_group_lines(comparison)), left=2)


def _line(numbers: Numbers, versus: str) -> list[str]:
    cells = [column.text(numbers) for column in COLUMNS]
    cells.insert(VERSUS_AFTER, versus)
    return cells


def _group_lines(comparison: Comparison) -> Iterator[tuple[str, ...]]:
    for row in comparison.rows:
        for name, numbers in row.groups.items():
            yield (row.label, name, *(column.text(numbers) for column in GROUP_COLUMNS))


def _versus(row: Row) -> str:
    return "" if row.versus is None else difference_text(row.versus)


def difference_text(versus: Versus) -> str:
    middle, low, high, _ = versus.relative
    if isnan(middle):
        return NOTHING
    if not (isfinite(low) and isfinite(high)):
        return f"{middle:+.1%}"  # of one sample there is no interval
    return f"{middle:+.1%} ({low:+.1%} to {high:+.1%})"
