"""The tables of `horae reproduce eta`, for the terminal and as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isfinite

from horae_evaluation.eta.calibration import HORIZONS, Answer, Errors, Horizons, by_horizon
from horae_evaluation.eta.delays import DelayErrors, PlanAnswer, by_policy

ETA_COLUMNS = (
    *("still waits", "questions", "answered", "median wait", "median error", "covered", "started early", "interval"),
    *("baseline: error", "covered"),
)
PLAN_COLUMNS = (
    *("history", "policy", "questions", "jobs", "delayed", "named of these", "named in all", "median delay"),
    *("median error", "right in sum"),
)
MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0
Row = tuple[str, ...]


def eta_rows(answers: Sequence[Answer], horizons: Horizons = HORIZONS) -> list[Row]:
    """By horizon, and the last of all."""
    return [(name, *_values(errors)) for name, errors in by_horizon(answers, horizons).items()]


def groups(answers: Iterable[Answer]) -> dict[tuple[str, str], list[Answer]]:
    """By history and policy, in the order in which they were asked."""
    found: dict[tuple[str, str], list[Answer]] = {}
    for each in answers:
        found.setdefault((each.history, each.policy), []).append(each)
    return found


def _values(errors: Errors) -> Row:
    counts = str(errors.questions), str(errors.answered)
    if not errors.answered:
        return (*counts, *[""] * 7)
    return (
        *counts,
        duration(errors.wait),
        duration(errors.error),
        f"{errors.covered:.0%}",
        f"{errors.below:.0%}",
        duration(errors.width),
        duration(errors.baseline_error),
        f"{errors.baseline_covered:.0%}",
    )


def plan_rows(answers: Iterable[PlanAnswer]) -> list[Row]:
    return [(*key, *_delays(errors)) for key, errors in by_policy(answers).items()]


def _delays(errors: DelayErrors) -> Row:
    counts = (errors.questions, errors.jobs, errors.delayed, errors.found, errors.named)
    return (
        *map(str, counts),
        duration(errors.delay),
        duration(errors.error),
        f"{errors.sign} of {errors.questions}",
    )


def duration(seconds: float) -> str:
    """With two digits or so; infinite: an interval without an end."""
    if not isfinite(seconds):
        return "open"
    for unit, length in (("d", DAY), ("h", HOUR), ("min", MINUTE)):
        if seconds >= length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.0f} s"


def markdown(columns: Sequence[str], rows: Iterable[Row], text_columns: int = 1) -> str:
    """A table; the first columns are texts."""
    rules = ["---"] * text_columns + ["---:"] * (len(columns) - text_columns)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (columns, rules, *rows)) + "\n"


def page(etas: Sequence[Answer], plans: Sequence[PlanAnswer], live: Sequence[Answer], horizons: Horizons) -> str:
    """All tables, under headings; parts that were not asked for are left out."""
    parts: list[str] = []
    if etas:
        parts += ["## Histories, by horizon\n", markdown(ETA_COLUMNS, eta_rows(etas))]
        parts += ["## By history and policy\n", _by_group(etas, HORIZONS)]
    if plans:
        parts += ["## Delays by a new job\n", markdown(PLAN_COLUMNS, plan_rows(plans), 2)]
    if live:
        parts += ["## The live run, by horizon\n", markdown(ETA_COLUMNS, eta_rows(live, horizons))]
        parts += ["## The live run, by policy\n", _by_group(live, horizons)]
    return "\n".join(parts)


def _by_group(answers: Iterable[Answer], horizons: Horizons) -> str:
    rows = [(*key, *row) for key, group in groups(answers).items() for row in eta_rows(group, horizons)]
    return markdown(("history", "policy", *ETA_COLUMNS), rows, 3)
