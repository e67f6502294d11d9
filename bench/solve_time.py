"""How long a decision takes against the number of jobs, from a hundred to a hundred thousand, as a picture."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from matplotlib.figure import Figure

from bench.gavel import CLASSES, FILLED, FINISH_TIME, LEAST
from bench.pools import Pool, pool
from horae.policies import make_policy
from horae.reports.plots import style
from horae.reports.plots.legends import add_legend, point_entry
from horae.reports.plots.style import Look

SIZES = (100, 300, 1000, 3000, 10_000, 30_000, 100_000)
LIMIT_SECONDS = 20.0  # a line ends before the first point that would take longer
TURNS = 3


class Line(NamedTuple):
    label: str
    colour: str
    dashes: str
    made: Callable[[int], Pool]
    solve: Callable[[Pool], Callable[[], object]]  # what is timed, once all else is made


def _ours(policy: tuple[str, dict[str, object]]) -> Callable[[Pool], Callable[[], object]]:
    def prepare(asked: Pool) -> Callable[[], object]:
        made, view = make_policy(*policy), asked.view()
        return lambda: made.decide(view)

    return prepare


def _alike(jobs: int) -> Pool:
    return pool(jobs, CLASSES)


def _cvxpy(name: str) -> Callable[[Pool], Callable[[], object]]:
    """Imported when it is needed: it burdens every other case of the benchmarks."""

    def prepare(asked: Pool) -> Callable[[], object]:
        solve = getattr(import_module("bench.straightforward"), name)
        return lambda: solve(asked)

    return prepare


LINES = (
    Line("cvxpy, max-min", "0.5", "--", pool, _cvxpy("max_min")),
    Line("cvxpy, finish-time fairness", "0.65", ":", pool, _cvxpy("finish_time_fairness")),
    Line("finish-time fairness, all different", style.COLOURS[3], "-", pool, _ours(FINISH_TIME)),
    Line("water filling, all different", style.COLOURS[4], "-", pool, _ours(FILLED)),
    Line("max-min, all different", style.COLOURS[0], "-", pool, _ours(LEAST)),
    Line("water filling, 26 classes", style.COLOURS[1], "-", _alike, _ours(FILLED)),
    Line("max-min, 26 classes", style.COLOURS[2], "-", _alike, _ours(LEAST)),
)


def draw(path: Path) -> None:
    """Writes one file; its suffix is the format."""
    style.save_as(solve_time_figure({line.label: _points(line) for line in LINES}), path)


def solve_time_figure(points: Mapping[str, Sequence[tuple[int, float]]]) -> Figure:
    """Plots seconds by number of jobs for each label of a line."""
    figure, (axes,) = style.panels(1, 1, style.PAGE_INCHES, 3.2)
    entries = []
    for number, line in enumerate(LINES):
        look = Look(line.colour, line.dashes, style.MARKERS[number])
        axes.plot(
            *zip(*points[line.label], strict=True), color=look.colour, linestyle=look.dashes, marker=look.marker,
            markersize=3.5, linewidth=style.WIDTH,
        )  # fmt: skip
        entries.append(point_entry(line.label, look, look.dashes))
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks([100, 1000, 10_000, 100_000], ["100", "1,000", "10,000", "100,000"])
    ticks = {1e-4: "0.1 ms", 1e-3: "1 ms", 1e-2: "10 ms", 1e-1: "100 ms", 1.0: "1 s", 10.0: "10 s"}
    axes.set_yticks(list(ticks), list(ticks.values()))
    axes.set_xlabel("jobs in the pool, three GPU types")
    axes.set_ylabel("processor time of one decision")
    add_legend(figure, entries)
    return figure


def _points(line: Line) -> list[tuple[int, float]]:
    points: list[tuple[int, float]] = []
    line.solve(line.made(64))()  # loads what is loaded once
    for size in SIZES:
        if len(points) > 1:
            growth = points[-1][1] / points[-2][1]
            if points[-1][1] * growth > LIMIT_SECONDS:
                break
        asked = line.made(size)
        best = float("inf")
        for turn in range(TURNS):
            work = line.solve(asked)
            started = time.process_time()
            work()
            best = min(best, time.process_time() - started)
            if best > (1.0 if turn else 3.0):  # a first turn may load a kernel
                break
        points.append((size, best))
        print(f"{line.label}, {size:,} jobs: {best:.4f} s", flush=True)
    return points
