"""A comparison for other programs and for papers. Equal input makes equal bytes, however many processes ran it."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping
from math import isfinite
from typing import Any

from horae.comparison.columns import Page, group_page, page
from horae.comparison.table import Comparison, Numbers, Row
from horae.comparison.versus import CONFIDENCE, Versus
from horae.model.plain import Plain
from horae.reports.statistics import Difference


def as_json(comparison: Comparison, parameters: Mapping[str, Plain]) -> str:
    """Everything with full precision, and what it takes to do it again."""
    value = {
        "parameters": {**parameters, "baseline": comparison.baseline, "confidence": CONFIDENCE},
        "estimates_are": "of seed 0" if comparison.is_recorded else "means over seeds",
        "policies": [_policy(row, comparison.by) for row in comparison.rows],
        "lower_bound": _plain(comparison.lower_bound),
    }
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def as_csv(comparison: Comparison) -> str:
    """A row for each policy and seed; with groups, one for each of these as well."""
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


def _policy(row: Row, by: str) -> dict[str, Plain]:
    seeds = []
    for seed, (numbers, groups) in enumerate(zip(row.by_seed, row.groups_by_seed, strict=True)):
        inside = {by: {name: _plain(each) for name, each in groups.items()}} if by else {}
        seeds.append({"seed": seed, **_plain(numbers), **inside})
    return {
        "policy": row.label,
        "estimate": _plain(row.estimate),
        "versus_baseline": None if row.versus is None else _versus(row.versus),
        "seeds": seeds,
    }


def _versus(versus: Versus) -> dict[str, Plain]:
    seconds, relative = versus.seconds, versus.relative
    return {
        "metric": "completion_mean_seconds",
        "jobs_paired": versus.jobs,
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
    """JSON has no number for the mean of nothing."""
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
    """On one line, with what would end the cell, or the escape, escaped."""
    return " ".join(cell.splitlines()).replace("\\", "\\\\").replace("|", "\\|")
