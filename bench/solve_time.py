"""How long a decision takes against the number of jobs, from a hundred to a hundred thousand, as a picture."""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from bench.gavel import CLASSES, FILLED, FINISH_TIME, LEAST
from bench.pools import Pool, pool
from horae.policies import make_policy

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
    Line("cvxpy, max-min", "#8c8c8c", "--", pool, _cvxpy("max_min")),
    Line("cvxpy, finish-time fairness", "#b8b8b8", ":", pool, _cvxpy("finish_time_fairness")),
    Line("finish-time fairness, all different", "#d55e00", "-", pool, _ours(FINISH_TIME)),
    Line("water filling, all different", "#cc79a7", "-", pool, _ours(FILLED)),
    Line("max-min, all different", "#0072b2", "-", pool, _ours(LEAST)),
    Line("water filling, 26 classes", "#e69f00", "-", _alike, _ours(FILLED)),
    Line("max-min, 26 classes", "#009e73", "-", _alike, _ours(LEAST)),
)


def draw(path: Path) -> None:
    import matplotlib  # noqa: PLC0415

    matplotlib.use("Agg")
    from matplotlib import pyplot  # noqa: PLC0415

    figure, axes = pyplot.subplots(figsize=(8, 5))
    ends = []
    for line in LINES:
        points = _points(line)
        sizes, seconds = zip(*points, strict=True)
        axes.plot(sizes, seconds, line.dashes, color=line.colour, marker="o", markersize=3.5, linewidth=1.6)
        ends.append((line.label, line.colour, sizes[-1], seconds[-1]))
    axes.set_xscale("log")
    axes.set_yscale("log")
    for label, colour, size, height in _apart(ends):
        axes.annotate(
            label, (size, height), (7, 0), textcoords="offset points", color=colour, va="center", fontsize=8.5
        )
    axes.set_xlim(80, 100_000 * 1.2)
    axes.set_xticks([100, 1000, 10_000, 100_000], ["100", "1,000", "10,000", "100,000"])
    ticks = {1e-4: "0.1 ms", 1e-3: "1 ms", 1e-2: "10 ms", 1e-1: "100 ms", 1.0: "1 s", 10.0: "10 s"}
    axes.set_yticks(list(ticks), list(ticks.values()))
    axes.set_xlabel("jobs in the pool, three GPU types")
    axes.set_ylabel("one decision, processor time")
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title("Time of one decision, with its proof of how good it is", loc="left", fontsize=11)
    figure.tight_layout()
    figure.savefig(path, dpi=140)


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


def _apart(ends: list[tuple[str, str, int, float]]) -> list[tuple[str, str, int, float]]:
    """Labels at the ends of lines, moved up where they would lie upon each other."""
    placed: list[tuple[str, str, int, float]] = []
    lowest = 0.0
    for label, colour, size, height in sorted(ends, key=lambda end: end[3]):
        lowest = max(height, lowest * 1.45)
        placed.append((label, colour, size, lowest))
    return placed
