"""Pictures: they are there, they are PNG, they come out the same, and their axes say what they show."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from builders import arrival, cluster, simulate
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Annotation, Text

from horae.model.cluster import NODE, Cluster, Node
from horae.model.errors import InputError
from horae.model.jobs import Arrival, Job, Truth
from horae.model.shapes import Option, Shape
from horae.reports.labels import short_labels
from horae.reports.plots import comparison, style
from horae.reports.plots import trace as trace_plots
from horae.reports.plots.comparison import Logs
from horae.reports.recorder import Recorder
from horae.reports.run_log import RunLog

JOBS = [arrival(f"j{index}", 40.0 * index, gpus=1 + index % 3, seconds=50.0 + 60 * (index % 5)) for index in range(30)]
SUBMITTED = np.array([each.job.submitted_at for each in JOBS])
SECONDS = np.array([each.truth.steps_total for each in JOBS])
GANGS = np.array([each.job.gpus for each in JOBS])


@pytest.fixture(scope="module")
def logs() -> Mapping[str, RunLog]:
    machines = cluster(nodes=2, gpus=4)
    return {
        policy: simulate(machines, JOBS, policy, "rounds", round_seconds=60.0).log()
        for policy in ("fifo", "sjf", "las")
    }


def test_a_comparison_is_five_pictures_that_come_out_the_same(logs: Mapping[str, RunLog], tmp_path: Path) -> None:
    paths = comparison.plot_comparison(logs, tmp_path / "new" / "one")
    assert [path.name for path in paths] == [
        f"{name}.png" for name in ("completion", "rho", "utilisation", "queue", "fairness")
    ]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)
    again = comparison.plot_comparison(logs, tmp_path / "two")
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in paths]


def test_a_trace_is_four_pictures_that_come_out_the_same(tmp_path: Path) -> None:
    paths, again = (trace_plots.plot_trace(SUBMITTED, SECONDS, GANGS, tmp_path / name, 8) for name in ("one", "two"))
    assert [path.name for path in paths] == [
        f"trace-{name}.png" for name in ("arrivals", "run-times", "gangs", "demand")
    ]
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in paths]


def test_nothing_is_no_picture(tmp_path: Path) -> None:
    nothing = np.zeros(0)
    assert comparison.plot_comparison({}, tmp_path) == []
    assert trace_plots.plot_trace(nothing, nothing, nothing.astype(np.int64), tmp_path) == []


def test_a_run_in_which_nothing_ended_can_be_drawn(tmp_path: Path, logs: Mapping[str, RunLog]) -> None:
    empty = simulate(cluster(), [], "fifo")
    assert isinstance(empty, Recorder)
    assert len(comparison.plot_comparison({"nothing": empty.log()}, tmp_path)) == 5
    assert len(comparison.plot_comparison({"nothing": empty.log(), "fifo": logs["fifo"]}, tmp_path)) == 5


def test_a_folder_that_cannot_be_made_is_the_users_mistake(logs: Mapping[str, RunLog], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        comparison.plot_comparison(logs, tmp_path / "file")


def labels(axes: Axes) -> tuple[str, str]:
    return axes.get_xlabel(), axes.get_ylabel().replace("\n", " ")


def test_axes_have_units(logs: Mapping[str, RunLog]) -> None:
    assert [labels(axes) for axes in comparison.completion_figure(logs).axes] == [
        ("completion time (hours)", "share of finished jobs (%)")
    ]
    assert [labels(axes)[1] for axes in comparison.rho_figure(logs).axes] == ["share of apps (%)"] * 2
    since = "time since the first submission (hours)"
    assert [labels(axes) for axes in comparison.utilisation_figure(logs).axes] == [(since, "GPUs in use (%)")]
    assert [labels(axes) for axes in comparison.queue_figure(logs).axes] == [(since, "GPUs wanted by waiting jobs")]
    assert "(hours)" in labels(comparison.fairness_figure(logs).axes[0])[0]
    assert labels(trace_plots.arrivals_figure(SUBMITTED).axes[0]) == (since, "jobs submitted an hour")
    assert labels(trace_plots.run_times_figure(SECONDS).axes[0])[0] == "run time (hours)"
    assert labels(trace_plots.gangs_figure(GANGS, SECONDS).axes[0]) == ("gang (GPUs)", "share (%)")
    assert labels(trace_plots.demand_figure(SUBMITTED, SECONDS, GANGS, 8).axes[0])[1].startswith("GPUs")


def test_legends_name_every_policy_outside_of_the_panels(logs: Mapping[str, RunLog]) -> None:
    figure = comparison.completion_figure(logs)
    figure.draw_without_rendering()
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == list(logs)
    assert legend.get_window_extent().x0 >= figure.axes[0].get_window_extent().x1


def test_twelve_policies_look_different() -> None:
    assert len({(look.colour, look.line) for look in map(style.look, range(12))}) == 12


def test_labels_do_not_overlap_even_if_points_do(logs: Mapping[str, RunLog]) -> None:
    many = {f"policy number {index}": list(logs.values())[index % 3] for index in range(12)}
    figure = comparison.fairness_figure(many)
    figure.draw_without_rendering()
    boxes = [Text.get_window_extent(text) for text in figure.axes[0].texts]  # without the lines to the points
    assert len(boxes) == 12
    assert not any(one.overlaps(other) for index, one in enumerate(boxes) for other in boxes[:index])


def test_the_front_is_who_nobody_beats_in_both() -> None:
    assert style.front([(3, 1), (1, 3), (2, 2), (2, 4), (3, 3)]) == [(1, 3), (2, 2), (3, 1)]


def test_a_binned_level_is_its_exact_mean() -> None:
    # 2 from 0 to 10 and 1 from 5 to 15: means 2, 3, 1 and 0 over bins of 5.
    times, changes = np.array([0.0, 10.0, 5.0, 15.0]), np.array([2.0, -2.0, 1.0, -1.0])
    assert style.binned_mean(times, changes, np.array([0.0, 5, 10, 15, 20])).tolist() == [2, 3, 1, 0]
    assert style.binned_mean(times, changes, np.array([-10.0, 20.0])).tolist() == [1.0]


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
    figure = comparison.queue_figure({"fifo": log})
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
def test_many_policies_have_a_panel_each_with_the_same_axes(make: Callable[[Logs], Figure]) -> None:
    log = two_types()
    figure = make({f"policy {index}": log for index in range(7)})
    assert [axes.get_title(loc="left") for axes in figure.axes] == [f"policy {index}" for index in range(7)]
    assert len({(axes.get_xlim(), axes.get_ylim()) for axes in figure.axes}) == 1
    assert len(figure.legends[0].get_texts()) == 2
    assert len(make({f"policy {index}": log for index in range(6)}).axes) == 2


def test_time_does_not_begin_before_0(logs: Mapping[str, RunLog]) -> None:
    jobs = [arrival(f"j{index}", 0.0, seconds=9e4) for index in range(9)]
    slow = simulate(cluster(1, 1), jobs, "fifo").log()
    assert comparison.fairness_figure({"slow": slow, **logs}).axes[0].get_xlim()[0] >= 0


def test_points_that_coincide_are_all_seen(logs: Mapping[str, RunLog]) -> None:
    figure = comparison.fairness_figure(dict.fromkeys(("las", "gittins", "sjf"), logs["fifo"]))
    sizes = [line.get_markersize() for line in figure.axes[0].lines if line.get_marker() not in ("None", None)]
    assert len(set(sizes)) == 3
    lines = [text.arrow_patch for text in figure.axes[0].texts if isinstance(text, Annotation)]
    assert len(lines) == 3
    assert all(line is not None and line.get_visible() for line in lines)


LONG = [f"tiresias={{limits: [3600, 36000], promote_after: {number}}}" for number in (0, 8)]
ALIKE = [f"tiresias={{limits: [{number}, 36000, 360000], promote_after: 8, another_option: 7}}" for number in (1, 2, 3)]


@pytest.mark.parametrize("names", [LONG, ALIKE, ["a", "b"], [*ALIKE, short_labels(ALIKE, 30)[0]]])
def test_shortened_names_stay_different(names: list[str]) -> None:
    short = short_labels(names, 30)
    assert len(set(short)) == len(names)
    assert all(len(label) <= 30 for label in short)
    assert [label for label, name in zip(short, names, strict=True) if len(name) <= 30] == [
        name for name in names if len(name) <= 30
    ]
