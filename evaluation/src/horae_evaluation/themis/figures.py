"""One figure for each claim of Themis' evaluation: medians over seeds, with their range."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from horae.reports.plots import style
from horae.reports.plots.dots import Estimate
from horae.reports.plots.legends import add_legend, add_note, point_entry
from horae_evaluation.rows_of_dots import draw_rows, entries_of, errors_of, height_of
from horae_evaluation.themis.claims import Chapter, ClaimPoint

# By chapter: what is drawn, and its label. Two panels each, except for misreporting and overheads.
PANELS = {
    2: (("gpu_hours", "GPU-hours"), ("completion_mean_seconds", "mean completion of apps (s)")),
    4: (("rho_measured_max", "largest rho, measured"), ("over_share", "part of apps with measured rho above 1")),
    6: (("rho_measured_max", "largest rho, measured, by f"), ("rho_measured_max", "largest rho, measured, by lease")),
    7: (("watched_completion_seconds", "the liar's completion (s)"), ("watched_rho", "the liar's measured rho")),
    8: (("decision_median_seconds", "decision, median (s)"), ("decision_p95_seconds", "decision, 95th percentile (s)")),
    9: (("rho_measured_max", "largest rho, measured"), ("completion_mean_seconds", "mean completion of apps (s)")),
}
FAIRNESS = (("rho_paper_max", "largest rho, by the paper's T_id"), ("rho_measured_max", "largest rho, measured"))
LINE_HEIGHT = 2.3
Lines = Mapping[str, Sequence[ClaimPoint]]


def draw(chapters: Sequence[Chapter], folder: Path) -> list[Path]:
    figures = ((f"themis-{chapter.number}", chapter_figure(chapter)) for chapter in chapters)
    return style.save_all(figures, folder)


def chapter_figure(chapter: Chapter) -> Figure:
    panels = PANELS.get(chapter.number, FAIRNESS)
    figure = _rows(chapter, panels) if chapter.axis in ("policy", "option") else _lines(chapter, panels)
    seeds = len(next(iter(chapter.lines.values()))[0].results)
    add_note(figure, f"{chapter.title}. Medians over {seeds} seeds; bars: from the least to the largest.")
    return figure


def _rows(chapter: Chapter, panels: Sequence[tuple[str, str]]) -> Figure:
    names = [point.label for point in next(iter(chapter.lines.values()))]
    height = height_of(len(names), len(chapter.lines))
    figure, axes = style.panels(1, len(panels), style.PAGE_INCHES, height, sharey=True)
    for each, (name, label) in zip(axes, panels, strict=True):
        draw_rows(each, names, {line: _estimates(points, name) for line, points in chapter.lines.items()})
        each.set_xlabel(label)
    if len(chapter.lines) > 1:
        add_legend(figure, entries_of(list(chapter.lines)))
    return figure


def _lines(chapter: Chapter, panels: Sequence[tuple[str, str]]) -> Figure:
    figure, axes = style.panels(1, len(panels), style.PAGE_INCHES, LINE_HEIGHT)
    names: dict[str, None] = {}
    for each, (name, label) in zip(axes, panels, strict=True):
        lines = _lines_of(chapter, label)
        _draw_lines(each, lines, name)
        names |= dict.fromkeys(lines)
        each.set_xlabel(_axis(chapter, label))
        each.set_ylabel(label)
        each.set_ylim(bottom=0)
    add_legend(
        figure,
        [point_entry(name, style.look(number), style.look(number).dashes) for number, name in enumerate(names)],
    )
    return figure


def _axis(chapter: Chapter, label: str) -> str:
    if chapter.number == 6:
        return "the filter f" if label.endswith(", by f") else "lease (minutes)"
    return chapter.axis


def _lines_of(chapter: Chapter, label: str) -> Lines:
    """The lines that belong to a panel, by the suffix of its label; all lines where none has that suffix."""
    suffix = f", by {label.rpartition(', by ')[2]}"
    chosen = {name.removesuffix(suffix): points for name, points in chapter.lines.items() if name.endswith(suffix)}
    return chosen or chapter.lines


def _draw_lines(axes: Axes, lines: Lines, name: str) -> None:
    places = sorted({point.at for points in lines.values() for point in points})
    aside = 0.012 * (places[-1] - places[0])  # side by side, or bars would hide one another
    for number, points in enumerate(lines.values()):
        look, estimates = style.look(number), _estimates(points, name)
        axes.errorbar(
            [point.at + aside * (number - (len(lines) - 1) / 2) for point in points],
            [each.value for each in estimates],
            yerr=errors_of(estimates), color=look.colour, marker=look.marker, linestyle=look.dashes, markersize=3.6,
            linewidth=1.0, elinewidth=0.6, capsize=1.2, capthick=0.6,
        )  # fmt: skip
    if len(places) <= 6:
        axes.set_xticks(places)
    axes.yaxis.set_major_locator(MaxNLocator(6, steps=(1, 2, 2.5, 5, 10)))


def _estimates(points: Sequence[ClaimPoint], name: str) -> list[Estimate]:
    return [Estimate(point.median(name), *point.range(name)) for point in points]
