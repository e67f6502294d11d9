"""One figure for each claim of Themis' evaluation: medians over seeds, with their range."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from horae_evaluation.themis.claims import Chapter, ClaimPoint

COLOURS = ("#1b9e77", "#d95f02", "#7570b3", "#e7298a", "#666666", "#66a61e")
# By chapter: what is drawn, and its label. Two panels each, except for misreporting and overheads.
PANELS = {
    2: (("gpu_hours", "GPU-hours"), ("completion_mean_seconds", "mean completion of apps (s)")),
    4: (("rho_measured_max", "max rho, measured"), ("over_share", "part of apps with measured rho over 1")),
    6: (("rho_measured_max", "max rho, measured, by f"), ("rho_measured_max", "max rho, measured, by lease")),
    7: (("watched_completion_seconds", "the liar's completion (s)"), ("watched_rho", "the liar's measured rho")),
    8: (("decision_median_seconds", "decision, median (s)"), ("decision_p95_seconds", "decision, 95th percentile (s)")),
    9: (("rho_measured_max", "max rho, measured"), ("completion_mean_seconds", "mean completion of apps (s)")),
}
FAIRNESS = (("rho_paper_max", "max rho, by the paper's T_id"), ("rho_measured_max", "max rho, measured"))


def draw(chapters: Sequence[Chapter], folder: Path) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    return [_draw_one(chapter, folder / f"themis-{chapter.number}.png") for chapter in chapters]


def _draw_one(chapter: Chapter, path: Path) -> Path:
    panels = PANELS.get(chapter.number, FAIRNESS)
    figure, axes = plt.subplots(1, len(panels), figsize=(5.2 * len(panels), 3.6), squeeze=False)
    for axis, (name, title) in zip(axes[0], panels, strict=True):
        if chapter.axis in ("policy", "option"):
            _bars(axis, chapter, name)
        else:
            lines = _lines_of(chapter, title)
            for colour, (label, points) in zip(COLOURS, lines.items(), strict=False):
                _line(axis, points, name, label, colour)
            axis.set_xlabel(chapter.axis)
        axis.set_title(title, fontsize=10)
        axis.spines[["top", "right"]].set_visible(False)
        axis.set_ylim(bottom=0)
    if len(chapter.lines) > 1:
        axes[0, 0].legend(frameon=False, fontsize=8)
    figure.suptitle(chapter.title, fontsize=11)
    figure.tight_layout()
    figure.savefig(path, dpi=110, metadata={"Software": None})
    plt.close(figure)
    return path


def _lines_of(chapter: Chapter, title: str) -> dict[str, tuple[ClaimPoint, ...]]:
    """The lines that belong to a panel, by the suffix of its title; all lines where none has that suffix."""
    by = title.rpartition(", by ")[2]
    chosen = {name: points for name, points in chapter.lines.items() if name.endswith(f", by {by}")}
    return chosen or dict(chapter.lines)


def _line(axis: Axes, points: Sequence[ClaimPoint], name: str, label: str, colour: str) -> None:
    at, medians = [point.at for point in points], [point.median(name) for point in points]
    axis.plot(at, medians, marker="o", label=label, color=colour, linewidth=1.5)
    ranges = [point.range(name) for point in points]
    axis.fill_between(at, [low for low, _ in ranges], [high for _, high in ranges], color=colour, alpha=0.12, lw=0)


def _bars(axis: Axes, chapter: Chapter, name: str) -> None:
    wide = 0.8 / len(chapter.lines)
    for offset, (colour, (label, points)) in enumerate(zip(COLOURS, chapter.lines.items(), strict=False)):
        place = [point.at + wide * (offset - (len(chapter.lines) - 1) / 2) for point in points]
        medians = [point.median(name) for point in points]
        low = [median - point.range(name)[0] for median, point in zip(medians, points, strict=True)]
        high = [point.range(name)[1] - median for median, point in zip(medians, points, strict=True)]
        axis.bar(place, medians, wide * 0.92, label=label, color=colour)
        axis.errorbar(place, medians, [low, high], fmt="none", ecolor="#333333", elinewidth=0.8, capsize=2)
    names = next(iter(chapter.lines.values()))
    axis.set_xticks(
        [point.at for point in names], [point.label for point in names], rotation=25, ha="right", fontsize=8
    )
