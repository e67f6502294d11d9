"""Plots of the results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isnan, nan
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from horae.reports.plots import style
from horae.reports.plots.curves import plain_log
from horae.reports.plots.dots import DotPanel, DotRow, Estimate, dots_figure, scale_axis
from horae.reports.plots.legends import Entry, add_legend, add_note, point_entry
from horae.reports.plots.style import Look
from horae_evaluation.gavel.ablation import Rung
from horae_evaluation.gavel.published import Published
from horae_evaluation.gavel.rows import GavelRow, Spread
from horae_evaluation.gavel.sweeps import Step, Sweep

TITLES: Mapping[str, str] = {"single": "single-GPU jobs", "multi": "gangs of 1, 2, 4 and 8 GPUs"}
TOP_FACTOR = 8.0  # the axis ends at this multiple of the median: diverging values would hide all others
RATES_SHOWN = 0.6  # of the largest rate that was run: below, published curves are flat
FAMILIES = ("fifo", "max_min_fairness", "finish_time_fairness", "allox", "gandiva")  # one colour each
VARIANTS = ("", "_perf", "_packed")
# One marker for each, so that they differ without colours too.
POLICIES = (
    *(f"{family}{variant}" for family in FAMILIES[:3] for variant in VARIANTS), *FAMILIES[3:],
)  # fmt: skip


def look(policy: str) -> Look:
    """The colour and marker of a policy, the same in every figure; policies not in the paper are black."""
    if policy not in POLICIES:
        return Look(style.BLACK, "-", style.MARKERS[len(POLICIES)])
    number = next(place for place, family in enumerate(FAMILIES) if policy.startswith(family))
    return Look(style.COLOURS[number], "-", style.MARKERS[POLICIES.index(policy)])


def rates_figure(rows: Sequence[GavelRow], published: Published) -> Figure:
    """Mean completion time by rate. Filled and solid: ours. Hollow and dashed: published."""
    workloads = list(dict.fromkeys(row.workload for row in rows))
    policies = list(dict.fromkeys(row.policy for row in rows))
    figure, panels = style.panels(1, len(workloads), style.PAGE_INCHES, 2.9)
    for axes, workload in zip(panels, workloads, strict=True):
        chosen = [row for row in rows if row.workload == workload]
        axes.set_yscale("log")
        axes.set_ylim(*_limits(chosen))
        curves = {policy: _curve(published, workload, policy, chosen) for policy in policies}
        for place, policy in enumerate(policies):
            _draw_published(axes, curves[policy], policy)
            # Side by side, or the error bars would hide one another.
            aside = 0.0035 * (place - (len(policies) - 1) / 2) * max(row.jobs_per_hour for row in chosen)
            _draw_ours(axes, [row for row in chosen if row.policy == policy], aside)
        rates = {rate for curve in curves.values() for rate, _ in curve} | {row.jobs_per_hour for row in chosen}
        axes.set_xticks(sorted(rates))
        plain_log(axes, "y")
        style.title(axes, TITLES[workload])
        axes.set_xlabel("jobs submitted per hour")
        axes.set_ylabel("mean completion time (hours)")
    _legend(figure, policies)
    return figure


def _limits(rows: Sequence[GavelRow]) -> tuple[float, float]:
    values = [value for row in rows for value in (row.hours.mean, row.published_hours) if not isnan(value)]
    return 0.7 * min(values), 1.2 * min(max(values), TOP_FACTOR * float(np.median(values)))


def _draw_ours(axes: Axes, rows: Sequence[GavelRow], aside: float) -> None:
    if not rows:
        return
    drawn = look(rows[0].policy)
    ordered = sorted(rows, key=lambda row: row.jobs_per_hour)
    rates = [row.jobs_per_hour + aside for row in ordered]
    hours = [row.hours.mean for row in ordered]
    # An error bar that reaches below zero has no end on this axis.
    errors = [min(np.nan_to_num(row.hours.two_standard_errors), 0.99 * row.hours.mean) for row in ordered]
    axes.errorbar(
        rates, hours, yerr=errors, color=drawn.colour, marker=drawn.marker, markersize=3.8, linewidth=0.9, capsize=1.5,
        zorder=3,
    )  # fmt: skip
    top = axes.get_ylim()[1]
    for rate, value in zip(rates, hours, strict=True):
        if value > top:
            axes.annotate(
                f"{value:,.0f} h \u2191", (rate, top), xytext=(-2, -8), textcoords="offset points", ha="right",
                fontsize=style.SMALL_POINTS, color=drawn.colour,
            )  # fmt: skip


def _curve(published: Published, workload: str, policy: str, rows: Sequence[GavelRow]) -> list[tuple[float, float]]:
    fastest = max(row.jobs_per_hour for row in rows)
    return sorted(
        (point.jobs_per_hour, hours)
        for point, hours in published.items()
        if point[:2] == (workload, policy) and RATES_SHOWN * fastest <= point.jobs_per_hour <= fastest + 1e-9
    )


def _draw_published(axes: Axes, curve: Sequence[tuple[float, float]], policy: str) -> None:
    if curve:
        drawn = look(policy)
        axes.plot(
            *zip(*curve, strict=True), color=drawn.colour, linestyle="--", linewidth=0.6, marker=drawn.marker,
            markersize=3.4, markeredgewidth=0.6, fillstyle="none", alpha=0.7, zorder=2,
        )  # fmt: skip


def _legend(figure: Figure, policies: Sequence[str]) -> None:
    entries = [point_entry(policy, look(policy), "-") for policy in policies]
    ours = Line2D([], [], color=style.GREY, marker="o", markersize=4, linewidth=0.9)
    theirs = Line2D([], [], color=style.GREY, marker="o", markersize=4, fillstyle="none", linestyle="--", linewidth=0.6)
    add_legend(figure, [*entries, Entry("ours, \u00b12 standard errors", ours), Entry("published, one draw", theirs)])


def makespan_figure(rows: Sequence[GavelRow]) -> Figure:
    names = [DotRow(row.policy) for row in rows]
    ours = DotPanel("makespan (hours)", [_estimate(row.hours, 1.0) for row in rows], least=0.0)
    published = [row.published_hours for row in rows]
    figure = dots_figure(names, [ours], 1, style.COLUMN_INCHES)
    (axes,) = figure.axes
    axes.plot(
        published, range(len(rows)), color=style.BLACK, marker="s", markersize=5, markeredgewidth=0.6, fillstyle="none",
        linestyle="none",
    )  # fmt: skip
    known = [Estimate(hours) for hours in published if not isnan(hours)]
    scale_axis(axes, ours._replace(estimates=[*ours.estimates, *known]))
    add_note(figure, f"All jobs are there at the beginning. {BARS} Hollow squares: published.")
    return figure


def ladder_figure(rungs: Sequence[Rung]) -> Figure:
    loads = list(dict.fromkeys((rung.workload, rung.jobs_per_hour) for rung in rungs))
    names = list(dict.fromkeys(rung.rules for rung in rungs))
    panels = []
    for workload, rate in loads:
        chosen = {rung.rules: rung for rung in rungs if (rung.workload, rung.jobs_per_hour) == (workload, rate)}
        estimates = [_estimate(chosen[name].change, 100.0) if name in chosen else Estimate(nan) for name in names]
        panels.append(DotPanel(f"{TITLES[workload]},\n{rate:g} per hour: change (%)", estimates, zero=True))
    figure = dots_figure([DotRow(name) for name in names], panels, len(panels), style.PAGE_INCHES)
    add_note(figure, f"Change of the mean completion time against the first row. {BARS}")
    return figure


BARS = "Bars: \u00b12 standard errors."


def _estimate(spread: Spread, factor: float) -> Estimate:
    middle, error = factor * spread.mean, factor * spread.two_standard_errors
    return Estimate(middle, middle - error, middle + error)


def sweep_figure(steps: Sequence[Step], sweep: Sweep) -> Figure:
    """The change in completion time on the left, restarts on the right."""
    loads = list(dict.fromkeys((step.workload, step.jobs_per_hour) for step in steps))
    figure, (changes, restarts) = style.panels(1, 2, style.PAGE_INCHES, 2.3)
    entries = []
    for index, load in enumerate(loads):
        drawn = style.look(index)
        chosen = [step for step in steps if (step.workload, step.jobs_per_hour) == load]
        values = [step.value for step in chosen]
        errors = [100 * np.nan_to_num(step.change.two_standard_errors) for step in chosen]
        change = [100 * step.change.mean for step in chosen]
        lines = {
            "color": drawn.colour,
            "marker": drawn.marker,
            "linestyle": drawn.dashes,
            "markersize": 4,
            "linewidth": 1.0,
        }
        changes.errorbar(values, change, yerr=errors, capsize=2, **lines)
        restarts.plot(values, [step.restarts_per_job for step in chosen], **lines)
        entries.append(point_entry(f"{TITLES[load[0]]}, {load[1]:g} per hour", drawn, drawn.dashes))
    low, high = changes.get_ylim()
    changes.set_ylim(min(low, -1.0), max(high, 1.0))  # less than a hundredth is not worth showing
    changes.axhline(0.0, color="black", linewidth=0.8)
    restarts.set_ylim(0, max(1.08 * restarts.get_ylim()[1], 1.0))
    for axes, words in ((changes, "change of the mean\ncompletion time (%)"), (restarts, "restarts per job")):
        axes.set_xticks(sorted({step.value for step in steps}))
        axes.yaxis.set_major_locator(MaxNLocator(6, steps=(1, 2, 2.5, 5, 10)))
        axes.set_xlabel(sweep.axis, fontsize=style.SMALL_POINTS)
        axes.set_ylabel(words)
    add_legend(figure, entries)
    add_note(figure, f"Change: against {sweep.compared_with}, seed by seed. {BARS}")
    return figure


def save(figure: Figure, path: Path) -> list[Path]:
    return style.save(figure, path.parent, path.stem)
