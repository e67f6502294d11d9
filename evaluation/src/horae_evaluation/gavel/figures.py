"""Plots of the results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isnan
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from horae.reports.plots import style
from horae_evaluation.gavel.ablation import Rung
from horae_evaluation.gavel.published import Published
from horae_evaluation.gavel.rows import GavelRow
from horae_evaluation.gavel.sweeps import Step, Sweep

TITLES: Mapping[str, str] = {"single": "single-GPU jobs", "multi": "gangs of 1, 2, 4 and 8 GPUs"}
TOP_FACTOR = 8.0  # the axis ends at this multiple of the median: diverging values would hide all others
RATES_SHOWN = 0.6  # of the largest rate that was run: below, published curves are flat
FAMILIES = ("fifo", "max_min_fairness", "finish_time_fairness", "allox", "gandiva")  # one colour each
MARKERS: Mapping[str, str] = {"": "o", "_perf": "^", "_packed": "s"}  # one marker for each variant of a family


class PolicyStyle(NamedTuple):
    colour: str
    marker: str


def look(policy: str) -> PolicyStyle:
    """The colour and marker of a policy, the same in every figure; policies not in the paper are black."""
    for family, colour in zip(FAMILIES, style.COLOURS, strict=False):
        if policy.startswith(family) and (marker := MARKERS.get(policy.removeprefix(family))):
            return PolicyStyle(colour, marker)
    return PolicyStyle("black", "D")


def rates_figure(rows: Sequence[GavelRow], published: Published) -> Figure:
    """Mean completion time by rate. Filled and solid: ours. Hollow and dashed: published."""
    workloads = list(dict.fromkeys(row.workload for row in rows))
    policies = list(dict.fromkeys(row.policy for row in rows))
    figure, panels = style.side_by_side(len(workloads), width=5.4, height=4.8)
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
        style.plain_log(axes, "y")
        axes.set_title(TITLES[workload], loc="left", fontsize=10)
        axes.set_xlabel("jobs submitted an hour")
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
        rates, hours, yerr=errors, color=drawn.colour, marker=drawn.marker, markersize=6, linewidth=1.2, capsize=2.5,
        zorder=3,
    )  # fmt: skip
    top = axes.get_ylim()[1]
    for rate, value in zip(rates, hours, strict=True):
        if value > top:
            axes.annotate(
                f"{value:,.0f} h \u2191", (rate, top), xytext=(-3, -10), textcoords="offset points", ha="right",
                fontsize=8, color=drawn.colour,
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
            *zip(*curve, strict=True), color=drawn.colour, linestyle="--", linewidth=0.9, marker=drawn.marker,
            markersize=5, fillstyle="none", alpha=0.7, zorder=2,
        )  # fmt: skip


def _legend(figure: Figure, policies: Sequence[str]) -> None:
    handles = [
        Line2D([], [], color=look(policy).colour, marker=look(policy).marker, linewidth=1.2, label=policy)
        for policy in policies
    ]
    ours = Line2D([], [], color="0.4", marker="o", linewidth=1.2, label="ours, \u00b12 standard errors")
    theirs = Line2D([], [], color="0.4", marker="o", fillstyle="none", linestyle="--", linewidth=0.9)
    theirs.set_label("published, one draw")
    figure.legend(
        handles=[*handles, ours, theirs], loc="outside right upper", frameon=False, handlelength=3, fontsize=9
    )


def makespan_figure(rows: Sequence[GavelRow]) -> Figure:
    figure, (axes,) = style.side_by_side(1, width=6.4, height=3.2)
    places = np.arange(len(rows))
    errors = [np.nan_to_num(row.hours.two_standard_errors) for row in rows]
    axes.barh(places - 0.2, [row.hours.mean for row in rows], 0.36, xerr=errors, color=style.COLOURS[0], capsize=3)
    axes.barh(places + 0.2, [np.nan_to_num(row.published_hours) for row in rows], 0.36, color="none", edgecolor="0.3")
    axes.set_yticks(places, [row.policy for row in rows])
    axes.invert_yaxis()
    axes.set_xlabel("makespan of jobs that are all there at the beginning (hours); hollow: published")
    return figure


def ladder_figure(rungs: Sequence[Rung]) -> Figure:
    loads = list(dict.fromkeys((rung.workload, rung.jobs_per_hour) for rung in rungs))
    figure, panels = style.panels(len(loads), height=2.2, width=8.5)
    for axes, load in zip(panels, loads, strict=True):
        chosen = [rung for rung in rungs if (rung.workload, rung.jobs_per_hour) == load]
        errors = [100 * np.nan_to_num(rung.change.two_standard_errors) for rung in chosen]
        axes.barh(
            [rung.rules for rung in chosen], [100 * rung.change.mean for rung in chosen], xerr=errors,
            color=style.COLOURS[0], capsize=3,
        )  # fmt: skip
        axes.invert_yaxis()
        axes.axvline(0.0, color="black", linewidth=0.8)
        axes.set_title(f"{TITLES[load[0]]}, {load[1]:g} an hour", loc="left", fontsize=10)
    panels[-1].set_xlabel("change of the mean completion time (%)")
    return figure


def sweep_figure(steps: Sequence[Step], sweep: Sweep) -> Figure:
    """The change in completion time on the left, restarts on the right."""
    loads = list(dict.fromkeys((step.workload, step.jobs_per_hour) for step in steps))
    figure, (changes, restarts) = style.side_by_side(2, width=4.6, height=3.8)
    handles = []
    for index, load in enumerate(loads):
        drawn = style.look(index)
        chosen = [step for step in steps if (step.workload, step.jobs_per_hour) == load]
        values = [step.value for step in chosen]
        errors = [100 * np.nan_to_num(step.change.two_standard_errors) for step in chosen]
        change = [100 * step.change.mean for step in chosen]
        changes.errorbar(values, change, yerr=errors, capsize=3, color=drawn.colour, marker=drawn.marker)
        restarts.plot(values, [step.restarts_per_job for step in chosen], color=drawn.colour, marker=drawn.marker)
        label = f"{load[0]}, {load[1]:g} jobs/h"
        handles.append(Line2D([], [], color=drawn.colour, marker=drawn.marker, label=label))
    low, high = changes.get_ylim()
    changes.set_ylim(min(low, -1.0), max(high, 1.0))  # less than a hundredth is not worth showing
    changes.axhline(0.0, color="black", linewidth=0.8)
    restarts.set_ylim(0, max(1.08 * restarts.get_ylim()[1], 1.0))
    what = f"change of the mean completion time (%)\nagainst {sweep.compared_with}, seed by seed"
    for axes, words in ((changes, what), (restarts, "restarts a job")):
        axes.set_xticks(sorted({step.value for step in steps}))
        axes.yaxis.set_major_locator(MaxNLocator(6))
        axes.set_xlabel(sweep.axis, fontsize=9)
        axes.set_ylabel(words, fontsize=9)
    figure.legend(handles=handles, loc="outside right upper", frameon=False)
    return figure


def save(figure: Figure, path: Path) -> Path:
    return style.save(figure, path.parent, path.name.removesuffix(".png"))
