"""Results as tables: lines for people, plain values for everything else."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite, isinf, isnan
from typing import Any

from horae.model.serialization import Plain
from horae_evaluation.gavel.ablation import Rung
from horae_evaluation.gavel.rows import GavelRow, Spread, swaps, too_slow, verdict
from horae_evaluation.gavel.sweeps import ESTIMATES_WITHIN, Step, Sweep, too_costly


@dataclass(frozen=True)
class Sheet:
    headings: tuple[str, ...]
    left: tuple[int, ...]  # text columns
    lines: tuple[tuple[str, ...], ...]
    plain: tuple[dict[str, Plain], ...]  # one per line
    notes: tuple[str, ...] = ()  # printed below the table
    failures: tuple[str, ...] = ()  # verdicts that do not hold


def sheet_of_rows(rows: Sequence[GavelRow], measured: str) -> Sheet:
    """A table of rows; `measured` says what the hours are."""
    headings = (
        "workload", "jobs/h", "policy", "ours", "seeds", f"{measured} (h)", "+-2 s.e.", "published (h)", "difference",
        "verdict",
    )  # fmt: skip
    lines = tuple(
        (
            row.workload,
            _rate(row.jobs_per_hour),
            row.policy,
            row.ours,
            str(row.hours.seeds),
            f"{row.hours.mean:,.2f}",
            _number(row.hours.two_standard_errors),
            _number(row.published_hours),
            f"{row.difference:+.1%}" if row.is_published else "-",
            verdict(row, rows),
        )
        for row in rows
    )
    plain = tuple(
        {
            "workload": row.workload,
            "jobs_per_hour": _finite(row.jobs_per_hour),
            "policy": row.policy,
            "ours": row.ours,
            **_plain_hours(row.hours),
            "published_hours": _finite(row.published_hours),
            "difference": _finite(row.difference),
            "verdict": verdict(row, rows),
        }
        for row in rows
    )
    return Sheet(headings, (0, 2, 3, 9), lines, plain, _notes_of_rows(rows), _failures(rows))


def _notes_of_rows(rows: Sequence[GavelRow]) -> tuple[str, ...]:
    notes = ["Published figures are one draw (seed 0) of the authors' own generator; ours are means over other draws."]
    notes += [
        f"{row.workload}, {_rate(row.jobs_per_hour)} jobs/h, {row.policy}: jobs stopped coming before all that are "
        "measured had ended, so the true mean is larger."
        for row in rows
        if not row.is_loaded
    ]
    return tuple(notes)


def _failures(rows: Sequence[GavelRow]) -> tuple[str, ...]:
    slow = [
        f"{row.workload}, {_rate(row.jobs_per_hour)} jobs/h: {row.policy} takes {row.hours.mean:.2f} h, beyond two "
        f"standard errors above the published {row.published_hours:.2f} h"
        for row in too_slow(rows)
    ]
    return (*slow, *map(str, swaps(rows)))


def sheet_of_ladder(rungs: Sequence[Rung]) -> Sheet:
    headings = ("workload", "jobs/h", "rules", "seeds", "mean completion (h)", "+-2 s.e.", "change", "+-2 s.e.")
    lines = tuple(
        (
            rung.workload,
            _rate(rung.jobs_per_hour),
            rung.rules,
            str(rung.hours.seeds),
            f"{rung.hours.mean:,.2f}",
            _number(rung.hours.two_standard_errors),
            *_change(rung.change),
        )
        for rung in rungs
    )
    plain = tuple(
        {
            "workload": rung.workload,
            "jobs_per_hour": _finite(rung.jobs_per_hour),
            "rules": rung.rules,
            **_plain_hours(rung.hours),
            **_plain_change(rung.change),
        }
        for rung in rungs
    )
    return Sheet(
        headings, (0, 2), lines, plain, ("Changes are against the first line of the same load, seed by seed.",)
    )


def sheet_of_sweep(steps: Sequence[Step], sweep: Sweep) -> Sheet:
    headings = (
        "workload", "jobs/h", sweep.axis, "seeds", "mean completion (h)", "+-2 s.e.", "change", "+-2 s.e.",
        "restarts a job", "GPU time lost",
    )  # fmt: skip
    lines = tuple(
        (
            step.workload,
            _rate(step.jobs_per_hour),
            f"{step.value:g}",
            str(step.hours.seeds),
            f"{step.hours.mean:,.2f}",
            _number(step.hours.two_standard_errors),
            *_change(step.change),
            f"{step.restarts_per_job:,.1f}",
            f"{step.restart_share:.2%}",
        )
        for step in steps
    )
    plain = tuple(
        {
            "sweep": step.sweep,
            "value": step.value,
            "workload": step.workload,
            "jobs_per_hour": _finite(step.jobs_per_hour),
            **_plain_hours(step.hours),
            **_plain_change(step.change),
            "restarts_per_job": step.restarts_per_job,
            "restart_share": step.restart_share,
        }
        for step in steps
    )
    failures = tuple(
        f"{step.workload}, {_rate(step.jobs_per_hour)} jobs/h: estimated speeds cost {step.change.mean:.1%}, more than "
        f"{ESTIMATES_WITHIN:.0%} of the mean completion time with known speeds"
        for step in too_costly(steps)
    )
    return Sheet(headings, (0,), lines, plain, (f"Changes are against {sweep.compared_with}, seed by seed.",), failures)


def _change(change: Spread) -> tuple[str, str]:
    error = change.two_standard_errors
    return f"{change.mean:+.1%}", "-" if isnan(error) else f"{error:.1%}"


def _plain_change(change: Spread) -> dict[str, Plain]:
    return {"change": change.mean, "change_two_standard_errors": _finite(change.two_standard_errors)}


def _plain_hours(hours: Spread) -> dict[str, Plain]:
    return {
        "seeds": hours.seeds,
        "mean_hours": hours.mean,
        "two_standard_errors_hours": _finite(hours.two_standard_errors),
    }


def _finite(value: float) -> float | None:
    """A value for JSON, which has no infinite and no missing numbers."""
    return value if isfinite(value) else None


def _rate(jobs_per_hour: float) -> str:
    return "at once" if isinf(jobs_per_hour) else f"{jobs_per_hour:g}"


def _number(value: float) -> str:
    return "-" if isnan(value) else f"{value:,.2f}"


def as_csv(sheet: Sheet) -> str:
    page = io.StringIO()
    writer = csv.DictWriter(page, list(sheet.plain[0]) if sheet.plain else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(sheet.plain)
    return page.getvalue()


def as_json(sheet: Sheet, parameters: dict[str, Any]) -> str:
    found = {"parameters": parameters, "rows": list(sheet.plain), "failures": list(sheet.failures)}
    return json.dumps(found, indent=2) + "\n"
