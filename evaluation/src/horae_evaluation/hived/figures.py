"""Plots of the tenants' waiting times."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from horae.reports.plots import style
from horae.reports.plots.dots import Estimate
from horae.reports.plots.legends import add_legend
from horae_evaluation.hived.rows import TenantRow
from horae_evaluation.rows_of_dots import draw_rows, entries_of, height_of

KINDS = {"private": "private clusters", "quota": "quotas of GPUs", "cells": "cells"}
COLUMNS = 2


def queueing_figure(rows: Sequence[TenantRow]) -> Figure:
    """One panel per workload, policy, affinity and placement, with three dots per tenant."""
    panels: dict[str, list[TenantRow]] = {}
    for row in rows:
        title = f"{row.workload}, {row.policy}, {row.affinity} affinity, quotas {row.placement}"
        panels.setdefault(title, []).append(row)
    lines, tenants = -(-len(panels) // COLUMNS), max(map(len, panels.values()))
    figure, axes = style.panels(lines, COLUMNS, style.PAGE_INCHES, height_of(tenants, len(KINDS)) + 0.1)
    for each, (title, mine) in zip(axes, panels.items(), strict=False):
        waits = {
            name: [Estimate(getattr(row, kind).queueing_mean_seconds / 60) for row in mine]
            for kind, name in KINDS.items()
        }
        draw_rows(each, [row.tenant for row in mine], waits)
        style.title(each, style.shown(title))
        each.set_xlabel("mean queueing time (minutes)", fontsize=style.SMALL_POINTS)
    for each in axes[len(panels) :]:
        each.remove()
    add_legend(figure, entries_of(list(KINDS.values())))
    return figure


def draw(rows: Sequence[TenantRow], path: Path) -> list[Path]:
    return style.save(queueing_figure(rows), path.parent, path.stem)
