"""The answer of `horae whatif` as text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from horae.cli.live.tables import Column, table, terminal_width
from horae.cli.live.times import NONE, duration, local
from horae.model.safe_text import counted, printable
from horae.service.whatif_models import WhatIfJob, WhatIfSide, WhatIfTenant, WhatIfTenantSide, WhatIfView

SHOWN = 5  # jobs that end sooner, and as many that end later
_SIDES = ("recorded", "same", "changed")


class _Figure(NamedTuple):
    """One row of the comparison."""

    name: str
    cells: tuple[str, ...]


def describe(item: WhatIfView) -> list[str]:
    when = _when(item)
    what = "; ".join(item.change) or "nothing is changed: the recorded events were decided again"
    lines = [f"since {when(item.since)}: {what}", _counts(item), ""]
    lines += table(_figures(item), _columns(item), terminal_width())
    if item.tenants:
        lines += ["", *table(item.tenants, _tenant_columns(item), terminal_width())]
    for heading, jobs in (("sooner", item.sooner_jobs), ("later", item.later_jobs)):
        if jobs:
            lines += ["", f"{heading}:", *(f"  {_job(each, when)}" for each in jobs[:SHOWN])]
    return [printable(line) for line in [*lines, *_notes(item, when)]]


def _when(item: WhatIfView) -> Callable[[float], str]:
    return local if item.is_dated else lambda at: f"{at / 3600:,.2f} h"


def _counts(item: WhatIfView) -> str:
    text = f"{counted(item.jobs, 'job')}: {item.sooner:,} sooner, {item.later:,} later, {item.unchanged:,} the same"
    return f"{text}; {item.never:,} would not have ended" if item.never else text


def _shown(item: WhatIfView) -> Sequence[str]:
    """The schedules to show: the one that was simulated unchanged only where it differs from the record."""
    if item.is_replay:
        return ("recorded", "changed")
    differs = any(
        abs((each.same.completion_mean_seconds or 0) - (each.recorded.completion_mean_seconds or 0)) >= 1
        for each in item.tenants
    )
    return _SIDES if differs else ("recorded", "changed")


def _heading(name: str, item: WhatIfView) -> str:
    if name == "changed":
        return "decided again" if item.is_replay else "changed"
    return "same setup, simulated" if name == "same" else "recorded"


def _columns(item: WhatIfView) -> list[Column[_Figure]]:
    return [
        Column("", lambda row: row.name),
        *(
            Column(_heading(name, item), lambda row, number=number: row.cells[number], is_number=True)  # type: ignore[misc]
            for number, name in enumerate(_shown(item))
        ),
    ]


def _figures(item: WhatIfView) -> list[_Figure]:
    sides: list[WhatIfSide] = [getattr(item, name) for name in _shown(item)]
    rows = [
        _Figure("mean completion", tuple(duration(each.completion_mean_seconds) for each in sides)),
        _Figure("median completion", tuple(duration(each.completion_median_seconds) for each in sides)),
    ]
    if all(each.utilisation is not None for each in sides):
        rows.append(_Figure("utilisation", tuple(f"{each.utilisation:.1%}" for each in sides)))
    if all(each.preemptions is not None for each in sides):
        rows.append(_Figure("preemptions", tuple(f"{each.preemptions:,}" for each in sides)))
    return rows


def _tenant_columns(item: WhatIfView) -> list[Column[WhatIfTenant]]:
    baseline = "recorded" if item.is_replay else "same"
    columns: list[Column[WhatIfTenant]] = [
        Column("TENANT", lambda each: each.tenant, is_cut=True),
        Column("JOBS", lambda each: f"{each.jobs:,}", is_number=True),
        Column("SOONER", lambda each: f"{each.sooner:,}", is_number=True),
        Column("LATER", lambda each: f"{each.later:,}", is_number=True),
        _pair("MEAN COMPLETION", baseline, lambda side: duration(side.completion_mean_seconds)),
        _pair("MEAN RHO", baseline, lambda side: _number(side.rho_mean)),
        _pair("MAX RHO", baseline, lambda side: _number(side.rho_max)),
    ]
    if any(side.guarantee for each in item.tenants for side in (each.same, each.changed)):
        columns.append(_pair("GUARANTEE", baseline, lambda side: side.guarantee or NONE))
        columns.append(_pair("WAITED FOR OWN CELLS", baseline, _waited))
    return columns


def _pair(heading: str, baseline: str, text: Callable[[WhatIfTenantSide], str]) -> Column[WhatIfTenant]:
    return Column(heading, lambda each: f"{text(getattr(each, baseline))} -> {text(each.changed)}", is_number=True)


def _number(value: float | None) -> str:
    return NONE if value is None else f"{value:.2f}"


def _waited(side: WhatIfTenantSide) -> str:
    return NONE if side.waited_for_own_cells_seconds is None else duration(side.waited_for_own_cells_seconds)


def _job(item: WhatIfJob, when: Callable[[float], str]) -> str:
    change = f"{duration(abs(item.seconds))} {'later' if item.seconds > 0 else 'sooner'}"
    return f"{item.job_id} ({item.tenant}) {change}: {when(item.same_ends_at)} -> {when(item.changed_ends_at)}"


def _notes(item: WhatIfView, when: Callable[[float], str]) -> list[str]:
    lines = []
    if item.believed:
        text = "had not ended by themselves: their lengths are drawn from those of others, and they are not compared"
        lines.append(f"{counted(item.believed, 'job')} {text}")
    if item.cut_off_at is not None:
        lines.append(f"cut off by the time budget at {when(item.cut_off_at)}; --seconds allows more")
    return ["", *lines] if lines else []
