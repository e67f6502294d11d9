"""The figures of a comparison: the numbers and intervals of its table, and the runs of seed 0."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import inf, isfinite, nan
from pathlib import Path
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from horae.experiments.compare.as_recorded import LABEL
from horae.experiments.compare.baseline_difference import CONFIDENCE, DRAWS, SEEDS
from horae.experiments.compare.formats import MARK, marked
from horae.experiments.compare.table import Comparison, ComparisonRow, Numbers
from horae.reports.plots import style
from horae.reports.plots.comparison import PlottedRuns, run_figures
from horae.reports.plots.curves import plain_log
from horae.reports.plots.dots import DotPanel, DotRow, Estimate, dots_figure, draw_dots, name_rows, scale_axis
from horae.reports.plots.legends import add_legend, add_note, point_entry
from horae.reports.plots.scatter import draw_front, draw_points, place_labels
from horae.reports.plots.style import Look
from horae.reports.plots.time_axis import HOUR
from horae.reports.statistics import paired, resampled

GROUPS_MAX = 12  # tenants or users in one figure: those with the most jobs
NAME_LENGTH = 20  # characters of a group's name
NAMED_MAX = 9  # points with their names beside them; more have a legend
LOG_RATIO = 8.0  # of rho, from which its axis is logarithmic


class Measure(NamedTuple):
    """A column of the table as it is drawn."""

    label: str
    value: Callable[[Numbers], float]
    least: float = 0.0
    most: float = inf
    bound: str = ""  # the name of its lower bound


def _number(name: str, factor: float = 1.0) -> Callable[[Numbers], float]:
    return lambda numbers: factor * numbers.get(name, nan)


def _hours(name: str) -> Callable[[Numbers], float]:
    return _number(name, 1 / HOUR)


def _finished(numbers: Numbers) -> float:
    return 100 * numbers["finished"] / numbers["jobs"] if numbers.get("jobs") else nan


MEAN = Measure("mean completion time (hours)", _hours("completion_mean_seconds"), bound="completion_mean_seconds")
WAITING = Measure("mean waiting time (hours)", _hours("waiting_mean_seconds"))
RHO_MAX = Measure("largest rho_paper of an app", _number("rho_paper.max"))
RHO_P99 = Measure("99th percentile of rho_paper", _number("rho_paper.p99"))
TIMES = (
    Measure("median completion time (hours)", _hours("completion_median_seconds")),
    Measure("99th percentile of completion (hours)", _hours("completion_p99_seconds")),
    WAITING,
    Measure("makespan (hours)", _hours("makespan_seconds"), bound="makespan_seconds"),
)
USE = (
    Measure("finished jobs (% of all)", _finished, most=100.0),
    Measure("GPU utilisation (%)", _number("utilisation", 100.0), most=100.0),
    Measure("preemptions", _number("preemptions")),
    RHO_MAX,
    Measure("apps treated unfairly by rho_paper (%)", _number("rho_paper.unfair_share", 100.0), most=100.0),
    Measure("Jain's index of rho_paper", _number("rho_paper.jain"), most=1.0),
)
BY_GROUP = {"completion": MEAN, "waiting": WAITING, "rho": RHO_MAX}


def comparison_figures(comparison: Comparison, origin: str = "") -> dict[str, Figure]:
    """All figures by name. `origin`: the date and time of second 0, where the trace has dates."""
    groups = {}
    if any(row.groups for row in comparison.rows):
        by = comparison.by.removesuffix("s")
        groups = {f"by-{by}-{name}": group_figure(comparison, measure) for name, measure in BY_GROUP.items()}
    return {
        "mean-completion": mean_figure(comparison),
        "times": times_figure(comparison),
        "use-and-fairness": use_figure(comparison),
        "fairness": fairness_figure(comparison),
        **groups,
        **run_figures(plotted_runs(comparison, origin)),
    }


def plot_comparison(comparison: Comparison, directory: Path, origin: str = "") -> list[Path]:
    """Writes all figures into a folder; returns the files."""
    return style.save_all(comparison_figures(comparison, origin).items(), directory)


def plotted_runs(comparison: Comparison, origin: str = "") -> PlottedRuns:
    names = {row.label: marked(row) for row in comparison.rows}
    return PlottedRuns(comparison.logs, comparison.baseline, LABEL, names, origin)


# The table as dots


def mean_figure(comparison: Comparison) -> Figure:
    figure = dots_figure(_dot_rows(comparison), [_panel(comparison, MEAN)], 1, style.COLUMN_INCHES)
    add_note(figure, _note(comparison, has_bound=True))
    return figure


def times_figure(comparison: Comparison) -> Figure:
    panels = [_panel(comparison, MEAN), _difference_panel(comparison)]
    panels += [_panel(comparison, measure) for measure in TIMES]
    figure = dots_figure(_dot_rows(comparison), panels, 3, style.PAGE_INCHES)
    add_note(figure, _note(comparison, has_bound=True, has_difference=True))
    return figure


def use_figure(comparison: Comparison) -> Figure:
    panels = [_panel(comparison, measure) for measure in USE]
    figure = dots_figure(_dot_rows(comparison), panels, 3, style.PAGE_INCHES)
    add_note(figure, _note(comparison))
    return figure


def _dot_rows(comparison: Comparison) -> list[DotRow]:
    runs = plotted_runs(comparison)
    looks = {comparison.baseline: style.BASELINE_LOOK, LABEL: style.RECORDED_LOOK}
    others = Look(style.COLOURS[0], "-", "o")  # the rows are told apart by their names
    return [
        DotRow(runs.name(row.label), looks.get(row.label, others), row.label == comparison.baseline)
        for row in comparison.rows
    ]


def _panel(comparison: Comparison, measure: Measure) -> DotPanel:
    estimates = [estimate(row, measure.value, comparison.is_recorded) for row in comparison.rows]
    bound = comparison.lower_bound.get(measure.bound, nan) / HOUR
    return DotPanel(measure.label, estimates, bound, least=measure.least, most=measure.most)


def _difference_panel(comparison: Comparison) -> DotPanel:
    """The column of the table that compares with the baseline."""
    baseline = style.shown_short([comparison.baseline], 16)[0]
    return DotPanel(f"change against {baseline} (%)", [difference(row) for row in comparison.rows], zero=True)


def difference(row: ComparisonRow) -> Estimate:
    """The change of the mean completion time in percent, with the interval of the table; 0 for the baseline."""
    if row.versus is None:
        return Estimate(0.0)
    middle, low, high, _ = row.versus.relative
    return Estimate(100 * middle, 100 * low, 100 * high)


def estimate(row: ComparisonRow, value: Callable[[Numbers], float], is_recorded: bool) -> Estimate:
    """A number of the table, with its interval over seeds, as docs/reference/metrics.md defines it."""
    middle, values = value(row.estimate), [value(numbers) for numbers in row.by_seed]
    if not all(map(isfinite, values)):
        return Estimate(middle)
    if is_recorded:
        found = resampled(middle, values[1:], CONFIDENCE)
    else:
        found = paired([0.0] * len(values), values, CONFIDENCE)
    return Estimate(middle, found.low, found.high)


def _note(
    comparison: Comparison, has_bound: bool = False, has_difference: bool = False, has_baseline: bool = True
) -> str:
    """What cannot be seen from the names and axes alone."""
    parts = []
    seeds = len(comparison.rows[0].by_seed)
    if seeds > (2 if comparison.is_recorded else 1):
        samples, over = (seeds - 1, DRAWS) if comparison.is_recorded else (seeds, SEEDS)
        parts.append(f"Bars: {CONFIDENCE:.0%} intervals over {samples} {over}.")
    elif has_difference and (interval := _interval_of_differences(comparison)):
        parts.append(f"Bars: {interval}.")
    if has_bound:
        parts.append("Dotted: lower bound.")
    if has_baseline:
        parts.append("Dashed: baseline.")
    return " ".join([*parts, _lengths_note(comparison)]).rstrip()


def _lengths_note(comparison: Comparison) -> str:
    return f"{MARK} knows run times in advance." if any(row.uses_lengths for row in comparison.rows) else ""


def _interval_of_differences(comparison: Comparison) -> str:
    versus = [row.versus for row in comparison.rows if row.versus is not None]
    if not any(each.relative.samples > 1 for each in versus):
        return ""
    return f"{CONFIDENCE:.0%} intervals over {versus[0].relative.samples} {versus[0].over}"


# Efficiency against fairness


def fairness_figure(comparison: Comparison) -> Figure:
    """Efficiency against fairness: left is efficient, low is fair; policies on the line are Pareto-optimal.

    It has no intervals: both numbers of all policies vary together from draw to draw, and bars would cross each other.
    """
    width = style.COLUMN_INCHES if len(comparison.rows) <= NAMED_MAX else style.PAGE_INCHES
    figure, (axes,) = style.panels(1, 1, width, 2.5)
    found = {row.label: (MEAN.value(row.estimate), RHO_P99.value(row.estimate)) for row in comparison.rows}
    known = {label: point for label, point in found.items() if all(map(isfinite, point))}
    axes.axhline(1.0, color=style.GREY, linewidth=0.6, linestyle=(0, (1, 1)))
    axes.set_xlabel(MEAN.label)
    axes.set_ylabel(RHO_P99.label)
    axes.margins(0.15)
    if known:
        _draw_fairness(figure, axes, plotted_runs(comparison), known)
    note = "rho: shared time / fair time; up to 1 is fair. Grey line: Pareto front."
    add_note(figure, f"{note} {_lengths_note(comparison)}".rstrip())
    return figure


def _draw_fairness(figure: Figure, axes: Axes, runs: PlottedRuns, known: Mapping[str, tuple[float, float]]) -> None:
    points, looks = list(known.values()), [runs.looks[label] for label in known]
    draw_points(axes, points, looks)
    heights = [height for _, height in points]
    if min(heights) > 0 and max(heights) > LOG_RATIO * min(heights):
        axes.set_yscale("log")
        plain_log(axes, "y")
    axes.set_xlim(left=max(axes.get_xlim()[0], 0.0))  # there is no time before 0
    draw_front(axes, points)
    names = [runs.name(label) for label in known]
    if len(names) > NAMED_MAX or not place_labels(figure, axes, points, names):
        add_legend(figure, [point_entry(name, look) for name, look in zip(names, looks, strict=True)])


# Tenants or users


def group_figure(comparison: Comparison, measure: Measure) -> Figure:
    """One panel per policy with one row per tenant or user, and the baseline's numbers as hollow points."""
    groups = _largest_groups(comparison)
    runs = plotted_runs(comparison)
    found = {row.label: _by_group(row, groups, measure, comparison.is_recorded) for row in comparison.rows}
    base = [each.value for each in found[comparison.baseline]]
    every = DotPanel(
        measure.label, [each for row in found.values() for each in row], least=measure.least, most=measure.most
    )
    titles = [runs.name(label) for label in found]
    figure, panels = style.grid(titles, 0.45 + 0.14 * max(len(groups), 2), measure.label)
    names = style.shown_short(groups, NAME_LENGTH)
    for axes, (label, estimates) in zip(panels, found.items(), strict=True):
        draw_dots(axes, [DotRow(name) for name in groups], every._replace(estimates=estimates))
        if label != comparison.baseline:
            axes.plot(
                base, range(len(groups)), color=style.BLACK, marker="s", markersize=5, markeredgewidth=0.6,
                fillstyle="none", linestyle="none", zorder=2,
            )  # fmt: skip
        name_rows(axes, names)
    scale_axis(panels[0], every)
    figure.supylabel(_groups_shown(comparison, groups), fontsize=style.LABEL_POINTS)
    add_note(figure, f"Hollow squares: {comparison.baseline}. {_note(comparison, has_baseline=False)}")
    return figure


def _by_group(row: ComparisonRow, groups: Sequence[str], measure: Measure, is_recorded: bool) -> list[Estimate]:
    """The numbers of each group; nan where it has no jobs."""
    found = []
    for name in groups:
        by_seed = tuple(groups.get(name, {}) for groups in row.groups_by_seed)
        group = replace(row, estimate=row.groups.get(name, {}), by_seed=by_seed)
        found.append(estimate(group, measure.value, is_recorded))
    return found


def _largest_groups(comparison: Comparison) -> list[str]:
    jobs: dict[str, float] = {}
    for row in comparison.rows:
        for name, numbers in row.groups.items():
            jobs[name] = max(jobs.get(name, 0.0), numbers["jobs"])
    return sorted(jobs, key=lambda name: (-jobs[name], name))[:GROUPS_MAX]


def _groups_shown(comparison: Comparison, groups: Sequence[str]) -> str:
    every = {name for row in comparison.rows for name in row.groups}
    if len(every) <= len(groups):
        return comparison.by.removesuffix("s")
    return f"{len(groups)} of {len(every):,} {comparison.by}: those with most jobs"
