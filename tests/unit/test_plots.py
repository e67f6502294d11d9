"""Plots: which files there are, what they show, and that nothing in them overlaps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from math import inf
from pathlib import Path

import numpy as np
import pytest
from builders import arrival, cluster, simulate
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.text import Annotation, Text

from horae.experiments.compare import figures
from horae.experiments.compare.as_recorded import LABEL
from horae.experiments.compare.baseline_difference import Versus
from horae.experiments.compare.table import Comparison, ComparisonRow, numbers
from horae.model.cluster import NODE, Cluster, Node
from horae.model.errors import InputError
from horae.model.jobs import Arrival, Job, Truth
from horae.model.shapes import Option, Shape
from horae.reports.labels import short_labels
from horae.reports.metrics import measure
from horae.reports.plots import comparison, curves, scatter, style
from horae.reports.plots import trace as trace_plots
from horae.reports.plots.comparison import PlottedRuns
from horae.reports.plots.dots import DotPanel, DotRow, Estimate, dots_figure
from horae.reports.plots.legends import add_legend, line_entry
from horae.reports.plots.time_axis import DAY, HOUR, TimeAxis
from horae.reports.recorder import Recorder
from horae.reports.run_log import RunLog
from horae.reports.statistics import Difference, paired, resampled

JOBS = [
    arrival(f"j{index}", 40.0 * index, gpus=1 + index % 3, seconds=50.0 + 60 * (index % 5), tenant=f"t{index % 3}")
    for index in range(30)
]
SUBMITTED = np.array([each.job.submitted_at for each in JOBS])
SECONDS = np.array([each.truth.steps_total for each in JOBS])
GANGS = np.array([each.job.gpus for each in JOBS])
TRACE = trace_plots.PlottedTrace(SUBMITTED, SECONDS, GANGS, cluster_gpus=8)
LONG = [f"tiresias={{limits: [3600, 36000], promote_after: {number}}}" for number in range(15)]
FIRST_BYTES = {".pdf": b"%PDF", ".svg": b"<?xml", ".png": b"\x89PNG"}
OF_TABLE = ["mean-completion", "times", "use-and-fairness", "fairness"]
OF_RUNS = ["completion", "rho", "utilisation", "queue"]


@pytest.fixture(scope="module")
def logs() -> Mapping[str, RunLog]:
    machines = cluster(nodes=2, gpus=4)
    return {
        policy: simulate(machines, JOBS, policy, "rounds", round_seconds=60.0).log()
        for policy in ("fifo", "sjf", "las")
    }


def compared(
    logs: Mapping[str, RunLog], labels: Sequence[str] = (), seeds: int = 1, by: str = "", *, is_recorded: bool = True
) -> Comparison:
    """A comparison under these labels; numbers differ from seed to seed."""
    chosen = {label: list(logs.values())[index % len(logs)] for index, label in enumerate(labels or logs)}
    rows = tuple(_row(label, index, log, seeds, by) for index, (label, log) in enumerate(chosen.items()))
    bound = {"completion_mean_seconds": 60.0, "makespan_seconds": 900.0}
    return Comparison(rows, rows[0].label, by, bound, is_recorded, chosen)


def _row(label: str, index: int, log: RunLog, seeds: int, by: str) -> ComparisonRow:
    metrics = measure(log)
    groups = {name: numbers(each) for name, each in metrics.tenants.items()} if by else {}
    by_seed = tuple(
        {name: value * (1 + 0.1 * seed + 0.01 * index) for name, value in numbers(metrics).items()}
        for seed in range(seeds)
    )
    versus = Versus(30, 0, 100.0, Difference(9.0, 1.0, 20.0, 10), Difference(0.09, 0.01, 0.2, 10), "days")
    return ComparisonRow(label, by_seed[0], groups, by_seed, (groups,) * seeds, versus if index else None, index == 2)


def drawn_figures(made: Mapping[str, Figure]) -> Mapping[str, Figure]:
    for figure in made.values():
        figure.draw_without_rendering()
    return made


# Files


def test_a_comparison_is_eight_plots_in_three_formats_that_come_out_the_same(
    logs: Mapping[str, RunLog], tmp_path: Path
) -> None:
    found = compared(logs)
    paths = figures.plot_comparison(found, tmp_path / "new" / "one")
    assert [path.name for path in paths] == [f"{name}.{form}" for name in OF_TABLE + OF_RUNS for form in style.FORMATS]
    assert all(path.read_bytes().startswith(FIRST_BYTES[path.suffix]) for path in paths)
    again = figures.plot_comparison(found, tmp_path / "two")
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in paths]


def test_a_trace_is_four_plots_that_come_out_the_same(tmp_path: Path) -> None:
    paths, again = (trace_plots.plot_trace(TRACE, tmp_path / name) for name in ("one", "two"))
    names = ("arrivals", "run-times", "gangs", "demand")
    assert [path.name for path in paths] == [f"trace-{name}.{form}" for name in names for form in style.FORMATS]
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in paths]


def test_files_have_neither_dates_nor_versions_and_a_pdf_has_text(logs: Mapping[str, RunLog], tmp_path: Path) -> None:
    pdf, svg, _ = style.save(figures.mean_figure(compared(logs)), tmp_path, "one")
    assert b"/Type /Font" in pdf.read_bytes()
    assert b"/FontFile2" in pdf.read_bytes()  # TrueType, which publishers accept
    for word in (b"CreationDate", b"Matplotlib", b"matplotlib.org"):
        assert word not in pdf.read_bytes()
    assert b"dc:date" not in svg.read_bytes()


def test_nothing_is_no_plot(tmp_path: Path) -> None:
    nothing = np.zeros(0)
    assert comparison.run_figures(PlottedRuns({})) == {}
    empty = trace_plots.PlottedTrace(nothing, nothing, nothing.astype(np.int64))
    assert trace_plots.plot_trace(empty, tmp_path) == []


def test_a_run_in_which_nothing_ended_can_be_drawn(logs: Mapping[str, RunLog]) -> None:
    empty = simulate(cluster(), [], "fifo")
    assert isinstance(empty, Recorder)
    both = {"nothing": empty.log(), "fifo": logs["fifo"]}
    for chosen in ({"nothing": empty.log()}, both):
        assert len(drawn_figures(figures.comparison_figures(compared(chosen)))) == 8


def test_a_folder_that_cannot_be_made_is_the_users_mistake(logs: Mapping[str, RunLog], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        figures.plot_comparison(compared(logs), tmp_path / "file")


# The table


def intervals(axes: Axes) -> list[tuple[float, float]]:
    """The ends of the intervals of a panel, row by row, as they are drawn."""
    bars = [bar for container in axes.containers for bar in getattr(container, "lines", (0, 0, ()))[2]]
    return [(segment[0, 0], segment[-1, 0]) for bar in bars for segment in bar.get_segments()]


def dots(axes: Axes) -> list[float]:
    found = [container.lines[0] for container in axes.containers if hasattr(container, "lines")]
    return [float(line.get_xdata()[0]) for line in found]


def test_dots_are_the_numbers_of_the_table(logs: Mapping[str, RunLog]) -> None:
    found = compared(logs)
    hours = [row.estimate["completion_mean_seconds"] / 3600 for row in found.rows]
    assert dots(figures.mean_figure(found).axes[0]) == pytest.approx(hours)
    rho = next(axes for axes in figures.use_figure(found).axes if axes.get_xlabel() == "largest rho_paper of an app")
    assert dots(rho) == pytest.approx([row.estimate["rho_paper.max"] for row in found.rows])


def test_the_change_against_the_baseline_has_the_interval_of_the_table(logs: Mapping[str, RunLog]) -> None:
    found = compared(logs)
    axes = figures.times_figure(found).axes[1]
    assert axes.get_xlabel() == "change against fifo (%)"
    assert dots(axes) == pytest.approx([0.0, 9.0, 9.0])
    assert intervals(axes) == [pytest.approx((1.0, 20.0))] * 2


def test_intervals_are_over_the_draws_of_a_trace_or_over_seeds(logs: Mapping[str, RunLog]) -> None:
    for is_recorded in (True, False):
        found = compared(logs, seeds=5, is_recorded=is_recorded)
        wanted = []
        for row in found.rows:
            hours = [each["completion_mean_seconds"] / 3600 for each in row.by_seed]
            interval = resampled(hours[0], hours[1:]) if is_recorded else paired([0.0] * 5, hours)
            wanted.append(pytest.approx((min(interval.low, hours[0]), interval.high)))
        assert intervals(figures.mean_figure(found).axes[0]) == wanted


def test_one_seed_has_no_intervals_and_one_sample_no_bar(logs: Mapping[str, RunLog]) -> None:
    found = compared(logs)
    assert intervals(figures.mean_figure(found).axes[0]) == []
    alone = Difference(0.09, -inf, inf, 1)
    rows = tuple(
        row if row.versus is None else replace(row, versus=replace(row.versus, relative=alone)) for row in found.rows
    )
    assert intervals(figures.times_figure(replace(found, rows=rows)).axes[1]) == []


def test_the_baseline_and_what_was_recorded_are_marked(logs: Mapping[str, RunLog]) -> None:
    found = compared(logs, ["slurm", LABEL, "sjf"])
    names = [text.get_text() for text in figures.mean_figure(found).axes[0].get_yticklabels()]
    assert names == ["slurm (baseline)", LABEL, "sjf *"]
    looks = figures.plotted_runs(found).looks
    assert (looks["slurm"], looks[LABEL]) == (style.BASELINE_LOOK, style.RECORDED_LOOK)
    assert [
        text.get_text() for text in comparison.completion_figure(figures.plotted_runs(found)).legends[0].get_texts()
    ] == names


def test_tenants_have_a_panel_per_policy(logs: Mapping[str, RunLog]) -> None:
    made = figures.comparison_figures(compared(logs, by="tenants"))
    assert [name for name in made if name.startswith("by-")] == [
        "by-tenant-completion", "by-tenant-waiting", "by-tenant-rho",
    ]  # fmt: skip
    figure = made["by-tenant-completion"]
    assert len(figure.axes) == 3
    assert [text.get_text() for text in figure.axes[0].get_yticklabels()] == ["t0", "t1", "t2"]


# Nothing overlaps


def texts(figure: Figure) -> list[Text]:
    """All texts of a figure that can be seen."""
    hidden = {id(text) for axes in figure.axes for axis in (axes.xaxis, axes.yaxis) for text in _hidden(axis)}
    made = [each for each in figure.findobj(Text) if isinstance(each, Text) and id(each) not in hidden]
    return [each for each in made if each.get_visible() and each.get_text().strip()]


def _hidden(axis: Axis) -> Iterator[Text]:
    """The labels of ticks outside of the limits, and of an axis that shows none."""
    yield axis.get_offset_text()
    low, high = sorted(axis.get_view_interval())
    for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()):
        if not low <= tick.get_loc() <= high:
            yield tick.label1
            yield tick.label2


def overlaps(figure: Figure) -> list[tuple[str, str]]:
    figure.draw_without_rendering()
    # Without the line from a name to its point; half a pixel less, because neighbours may touch.
    boxes = [(each.get_text(), Text.get_window_extent(each).padded(-0.5)) for each in texts(figure)]
    page = figure.bbox.padded(1.0)
    outside = [
        (name, "page") for name, box in boxes if not (page.contains(box.x0, box.y0) and page.contains(box.x1, box.y1))
    ]
    return outside + [(one, other) for (one, a), (other, b) in combinations(boxes, 2) if a.overlaps(b)]


def test_overlaps_are_found() -> None:
    figure, (axes,) = style.panels(1, 1, style.COLUMN_INCHES, 2.0)
    axes.text(0.5, 0.5, "one")
    axes.text(0.52, 0.5, "other")
    axes.text(0.99, 0.9, "beyond the edge", clip_on=False)
    figure.set_layout_engine("none")
    assert set(overlaps(figure)) == {("one", "other"), ("beyond the edge", "page")}


@pytest.mark.parametrize(("labels", "seeds"), [(["a", "b"], 1), (LONG[:7], 5), (LONG, 5)], ids=["2", "7", "15"])
def test_texts_overlap_neither_each_other_nor_the_edge(
    logs: Mapping[str, RunLog], labels: list[str], seeds: int
) -> None:
    made = figures.comparison_figures(compared(logs, labels, seeds, "tenants"), "2026-09-01 08:00:00")
    assert {name: overlaps(figure) for name, figure in made.items()} == {name: [] for name in made}


def test_long_names_of_tenants_do_not_overlap() -> None:
    jobs = [
        arrival(f"j{index}", 40.0 * index, tenant=f"a tenant with a very long name, number {index}")
        for index in range(20)
    ]
    found = compared({"fifo": simulate(cluster(), jobs, "fifo").log()}, LONG[:4], by="tenants")
    figure = figures.group_figure(found, figures.MEAN)
    assert overlaps(figure) == []
    assert figure.get_supylabel() == "12 of 20 tenants: those with most jobs"


def test_plots_of_a_trace_have_no_overlaps() -> None:
    for origin in ("", "2026-09-01 08:00:00"):
        for figure in trace_plots.trace_figures(replace(TRACE, origin=origin)).values():
            assert overlaps(figure) == []


def test_legends_lie_outside_of_the_panels(logs: Mapping[str, RunLog]) -> None:
    for figure in comparison.run_figures(PlottedRuns(logs)).values():
        figure.draw_without_rendering()
        (legend,) = figure.legends
        assert [text.get_text() for text in legend.get_texts()] == list(logs)
        assert not any(legend.get_window_extent().overlaps(axes.get_window_extent()) for axes in figure.axes)


@pytest.mark.parametrize("width", [style.COLUMN_INCHES, style.PAGE_INCHES])
def test_legends_of_any_length_fit_the_page(width: float) -> None:
    for count in range(1, 16):
        figure, _ = style.panels(1, 1, width, 1.0)
        names = [f"policy {'with a long name ' * (index % 5)}{index}" for index in range(count)]
        add_legend(figure, [line_entry(name, style.look(index)) for index, name in enumerate(names)])
        assert overlaps(figure) == []


def test_figures_are_as_wide_as_a_column_or_a_page(logs: Mapping[str, RunLog]) -> None:
    for labels in (LONG[:2], LONG):
        for figure in figures.comparison_figures(compared(logs, labels)).values():
            assert figure.get_figwidth() in (style.COLUMN_INCHES, style.PAGE_INCHES)
            assert {text.get_fontsize() for text in texts(figure)} <= {7.0, 8.0}


def test_fifteen_policies_look_different_and_seven_without_colours_too() -> None:
    looks = [style.look(index) for index in range(15)]
    assert len({(each.colour, each.dashes) for each in looks}) == 15
    assert len({each.dashes for each in looks[:7]}) == 7
    assert len({each.marker for each in looks[:13]}) == 13


def test_names_are_drawn_as_they_are(logs: Mapping[str, RunLog]) -> None:
    odd = ["$a_b$ and $", "_hidden", "two\nlines", "\x1b[31mred"]
    figure = comparison.completion_figure(PlottedRuns(dict.fromkeys(odd, logs["fifo"])))
    assert overlaps(figure) == []
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == [r"\$a_b\$ and \$", "_hidden", "two lines", "\\x1b[31mred"]


# Axes


def labels(axes: Axes) -> tuple[str, str]:
    return axes.get_xlabel(), axes.get_ylabel().replace("\n", " ")


def test_axes_have_units_and_the_number_of_jobs(logs: Mapping[str, RunLog]) -> None:
    runs = PlottedRuns(logs)
    assert labels(comparison.completion_figure(runs).axes[0]) == (
        "completion time (hours)", "share of 30 finished jobs (%)",
    )  # fmt: skip
    assert [labels(axes)[1] for axes in comparison.rho_figure(runs).axes] == ["share of 30 apps (%)", ""]
    since = "time since the first submission (hours)"
    assert [labels(axes) for axes in comparison.utilisation_figure(runs).axes] == [(since, "GPUs in use (%)")]
    assert [labels(axes) for axes in comparison.queue_figure(runs).axes] == [(since, "GPUs wanted by waiting jobs")]
    assert "(hours)" in labels(figures.fairness_figure(compared(logs)).axes[0])[0]
    made = [figure.axes[0] for figure in trace_plots.trace_figures(TRACE).values()]
    assert [labels(axes) for axes in made] == [
        (since, "jobs submitted per hour"),
        ("run time (hours)", "share of 30 jobs (%)"),
        ("GPUs of a job", "share (%)"),
        (since, "GPUs wanted if no job waited"),
    ]


def test_distributions_of_different_numbers_of_jobs_say_so_in_the_legend(logs: Mapping[str, RunLog]) -> None:
    fewer = simulate(cluster(nodes=2, gpus=4), JOBS[:20], "fifo").log()
    figure = comparison.completion_figure(PlottedRuns({"all": logs["fifo"], "fewer": fewer}))
    assert figure.axes[0].get_ylabel() == "share of finished jobs (%)"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["all: 30", "fewer: 20"]
    assert figure.legends[0].get_title().get_text() == "policy: number of finished jobs"


@pytest.mark.parametrize(
    ("span_seconds", "label", "ticks"),
    [
        (300.0, "time on 1 Sep 2026", ["08:00"]),
        (6 * HOUR, "time on 1 Sep 2026", ["09:00", "12:00"]),
        (30 * HOUR, "date in 2026", ["00:00\n2 Sep", "06:00"]),
        (3 * DAY, "date in 2026", ["2 Sep", "3 Sep"]),
        (200 * DAY, "date in 2026 and 2027", ["1 Nov"]),
        (900 * DAY, "date", ["Jan 2027"]),
        (1e13, "time since the first submission (days)", []),  # after the last date that there is
    ],
)
def test_a_trace_with_dates_has_dates_on_the_axis(span_seconds: float, label: str, ticks: list[str]) -> None:
    times = np.linspace(0.0, span_seconds, 50)
    trace = trace_plots.PlottedTrace(times, np.full(50, 60.0), np.ones(50, dtype=np.int64), "2026-09-01 08:00:00")
    figure = trace_plots.arrivals_figure(trace)
    figure.draw_without_rendering()
    assert figure.axes[0].get_xlabel() == label
    assert set(ticks) <= {text.get_text() for text in figure.axes[0].get_xticklabels()}
    assert overlaps(figure) == []


def test_without_dates_time_is_in_hours_or_days() -> None:
    assert TimeAxis(0.0, 3 * DAY).label == "time since the first submission (hours)"
    days = TimeAxis(100.0, 5 * DAY)
    assert days.label == "time since the first submission (days)"
    assert days.positions(np.array([100.0, 100.0 + DAY])).tolist() == [0.0, 1.0]


def test_runs_of_a_trace_with_dates_have_dates(logs: Mapping[str, RunLog]) -> None:
    for make in (comparison.utilisation_figure, comparison.queue_figure):
        figure = make(PlottedRuns(logs, origin="2026-09-01 08:00:00"))
        assert figure.axes[0].get_xlabel() == "time on 1 Sep 2026"


# Levels over time


def test_a_binned_level_is_its_exact_mean() -> None:
    # 2 from 0 to 10 and 1 from 5 to 15: means 2, 3, 1 and 0 over bins of 5.
    times, changes = np.array([0.0, 10.0, 5.0, 15.0]), np.array([2.0, -2.0, 1.0, -1.0])
    assert curves.binned_mean(times, changes, np.array([0.0, 5, 10, 15, 20])).tolist() == [2, 3, 1, 0]
    assert curves.binned_mean(times, changes, np.array([-10.0, 20.0])).tolist() == [1.0]


def test_the_queue_is_what_jobs_want_and_do_not_have(logs: Mapping[str, RunLog]) -> None:
    log = logs["fifo"]
    (types,) = comparison._accepted(logs)
    wanted = comparison._wanted_gpus(log, types, np.array([0.0, log.until]))[0] * log.until
    waiting = (log.jobs.ended_at - log.jobs.submitted_at - log.run_seconds) * log.jobs.gpus
    assert wanted == pytest.approx(waiting.sum())


def two_types() -> RunLog:
    """Thirty jobs that take A100 or V100, and one more that takes V100 only."""
    machines = Cluster("lab", (Node("a", "A100", 2), Node("v", "V100", 2)))
    both = tuple(Option(Shape(kind, 1, NODE), 1.0) for kind in ("A100", "V100"))
    jobs = [Arrival(Job(f"j{index}", 10.0 * index, both, steps_total=200.0), Truth(200.0, both)) for index in range(30)]
    jobs.append(Arrival(Job("picky", 300.0, both[1:], steps_total=200.0), Truth(200.0, both[1:])))
    return simulate(machines, jobs, "fifo").log()


def test_a_job_that_takes_either_type_waits_for_neither() -> None:
    log = two_types()
    figure = comparison.queue_figure(PlottedRuns({"fifo": log}))
    assert [axes.get_title(loc="left") for axes in figure.axes] == [
        "jobs that accept V100 only",
        "jobs that accept any of A100, V100",
    ]
    edges = np.array([0.0, log.until])
    wanted = (
        sum(comparison._wanted_gpus(log, types, edges)[0] for types in comparison._accepted({"fifo": log})) * log.until
    )
    waiting = (log.jobs.ended_at - log.jobs.submitted_at - log.run_seconds) * log.jobs.gpus
    assert wanted == pytest.approx(waiting.sum())


@pytest.mark.parametrize("make", [comparison.utilisation_figure, comparison.queue_figure])
def test_many_policies_have_a_panel_each_with_the_same_axes(make: Callable[[PlottedRuns], Figure]) -> None:
    log = two_types()
    figure = make(PlottedRuns({f"policy {index}": log for index in range(7)}))
    assert [axes.get_title(loc="left") for axes in figure.axes] == [f"policy {index}" for index in range(7)]
    assert len({(axes.get_xlim(), axes.get_ylim()) for axes in figure.axes}) == 1
    assert len(figure.legends[0].get_texts()) == 2
    assert len(make(PlottedRuns({f"policy {index}": log for index in range(6)})).axes) == 2


# Efficiency against fairness


def test_labels_of_points_that_coincide_do_not_overlap(logs: Mapping[str, RunLog]) -> None:
    found = compared({"fifo": logs["fifo"]}, ["las", "gittins", "sjf"])
    same = tuple(replace(row, estimate=found.rows[0].estimate) for row in found.rows)
    figure = figures.fairness_figure(replace(found, rows=same))
    sizes = [line.get_markersize() for line in figure.axes[0].lines if line.get_marker() not in ("None", None)]
    assert len(set(sizes)) == 3
    lines = [text.arrow_patch for text in figure.axes[0].texts if isinstance(text, Annotation)]
    assert len(lines) == 3
    assert all(line is not None and line.get_visible() for line in lines)
    assert overlaps(figure) == []


def test_many_points_have_a_legend(logs: Mapping[str, RunLog]) -> None:
    figure = figures.fairness_figure(compared(logs, LONG))
    assert not figure.axes[0].texts
    assert len(figure.legends[0].get_texts()) == 15


def test_the_front_is_who_nobody_beats_in_both() -> None:
    assert scatter.front([(3, 1), (1, 3), (2, 2), (2, 4), (3, 3)]) == [(1, 3), (2, 2), (3, 1)]


def test_time_does_not_begin_before_0(logs: Mapping[str, RunLog]) -> None:
    jobs = [arrival(f"j{index}", 0.0, seconds=9e4) for index in range(9)]
    slow = simulate(cluster(1, 1), jobs, "fifo").log()
    assert figures.fairness_figure(compared({"slow": slow, **logs})).axes[0].get_xlim()[0] >= 0


# Names

ALIKE = [f"tiresias={{limits: [{number}, 36000, 360000], promote_after: 8, another_option: 7}}" for number in (1, 2, 3)]


@pytest.mark.parametrize("names", [LONG[:2], ALIKE, ["a", "b"], [*ALIKE, short_labels(ALIKE, 30)[0]]])
def test_shortened_names_stay_different(names: list[str]) -> None:
    short = short_labels(names, 30)
    assert len(set(short)) == len(names)
    assert all(len(label) <= 30 for label in short)
    assert [label for label, name in zip(short, names, strict=True) if len(name) <= 30] == [
        name for name in names if len(name) <= 30
    ]


def test_the_thin_line_of_a_run_is_the_mean_of_the_table_and_ends_with_the_run() -> None:
    short, long = (
        simulate(cluster(1, 2), [arrival("a", seconds=hours * HOUR), arrival("b", seconds=HOUR)]).log()
        for hours in (2, 8)
    )
    runs = {"short": short, **{f"long {index}": long for index in range(comparison.LEVEL_LINES_MAX)}}
    figure = comparison.utilisation_figure(PlottedRuns(runs))
    for axes, log in zip(figure.axes, runs.values(), strict=False):
        thin = next(line for line in axes.get_lines() if line.get_linewidth() == style.THIN)
        across, height = (np.asarray(each, dtype=np.float64) for each in (thin.get_xdata(), thin.get_ydata()))
        assert height[0] == pytest.approx(100 * measure(log).utilisation)
        assert np.ptp(across) == pytest.approx(measure(log).makespan_seconds / HOUR)


def test_the_label_of_waiting_jobs_fits_beside_its_panels() -> None:
    log = simulate(cluster(1, 1), [arrival("a", seconds=HOUR), arrival("b", seconds=HOUR)]).log()
    figure = comparison.queue_figure(
        PlottedRuns({f"policy {index}": log for index in range(comparison.LEVEL_LINES_MAX + 1)})
    )
    figure.canvas.draw()
    label = figure.get_supylabel()
    box = next(text for text in figure.texts if text.get_text() == label).get_window_extent()
    assert box.y0 >= 0
    assert box.y1 <= figure.bbox.height


def test_intervals_stay_within_the_range_of_possible_values() -> None:
    panel = DotPanel("share", [Estimate(0.9, 0.7, 1.1), Estimate(0.05, -0.1, 0.2)], least=0.0, most=1.0)
    (axes,) = dots_figure([DotRow("a"), DotRow("b")], [panel], 1, style.PAGE_INCHES).axes
    bars = [each for each in axes.collections if isinstance(each, LineCollection)]
    ends = [point for bar in bars for path in bar.get_segments() for point in np.asarray(path)[:, 0].tolist()]
    assert ends
    assert min(ends) >= 0.0
    assert max(ends) <= 1.0
