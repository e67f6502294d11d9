"""The common style of plots: sizes of a paper, colours that the colour-blind can tell apart, and files."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from horae.model.errors import InputError
from horae.model.safe_text import printable
from horae.reports.labels import short_labels

# A plot is as wide as a column of a two-column paper, or as its page, and its text is readable at that size.
COLUMN_INCHES, PAGE_INCHES = 3.3, 7.0
LABEL_POINTS, SMALL_POINTS = 8.0, 7.0
DOTS_PER_INCH = 200

# Okabe and Ito's colours without yellow, which is hard to see on white. Black is the baseline's.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9")
BLACK, GREY, PALE = "black", "0.45", "0.8"
# Without colours, lines differ by their dashes and points by their markers. There is one more dash pattern than there
# are colours, so that 42 pairs differ.
DASHES: tuple[Any, ...] = (
    "-", (0, (5, 1.5)), (0, (1, 1)), (0, (6, 1.5, 1, 1.5)), (0, (2.5, 1)), (0, (9, 2)), (0, (6, 1.2, 1, 1.2, 1, 1.2)),
)  # fmt: skip
# The last two are those of the baseline and of what was recorded.
MARKERS = ("o", "^", "v", "P", "X", "*", "<", ">", "h", "p", "d", "s", "D")
HATCHES = ("", "////", "....", "xxxx", r"\\\\", "----")
WIDTH, THIN = 1.2, 0.6
GRID_TITLE = {1: 60, 2: 46, 3: 30, 4: 22}  # characters of a panel's title, by the number of columns

FORMATS = ("pdf", "svg", "png")
# Text of a PDF can be selected and searched. In an SVG it is drawn: a reader without the font would see other widths,
# and labels that overlap.
_SAVING: dict[Any, Any] = {"pdf.fonttype": 42, "svg.fonttype": "path", "svg.hashsalt": "horae"}
# No dates and no versions: the same figure gives the same bytes.
_METADATA: dict[str, dict[str, None]] = {
    "pdf": {"Creator": None, "Producer": None, "CreationDate": None},
    "svg": {"Creator": None, "Date": None},
    "png": {"Software": None},
}


class Look(NamedTuple):
    """How a line, its points or a bar are drawn."""

    colour: str
    dashes: Any
    marker: str
    hatch: str = ""


BASELINE_LOOK = Look(BLACK, "-", "s")
RECORDED_LOOK = Look(GREY, (0, (1, 0.8)), "D")


def look(index: int) -> Look:
    return Look(
        COLOURS[index % len(COLOURS)],
        DASHES[index % len(DASHES)],
        MARKERS[index % len(MARKERS)],
        HATCHES[index % len(HATCHES)],
    )


def shown(name: str) -> str:
    """A name as it is drawn: on one line, and with dollars that do not begin a formula."""
    return printable(" ".join(name.split())).replace("$", r"\$")


def shown_short(names: Sequence[str], length: int) -> list[str]:
    """Names of at most this many characters that all differ."""
    return [shown(name) for name in short_labels(names, length)]


def figure(width: float, height: float) -> Figure:
    return Figure(figsize=(width, height), dpi=DOTS_PER_INCH, layout="constrained")


def panels(rows: int, columns: int, width: float, row_height: float, **shared: Any) -> tuple[Figure, list[Axes]]:
    """A figure with panels, row by row; `row_height` has room for the labels of the axes."""
    made = figure(width, row_height * rows)
    made.set_layout_engine("constrained", w_pad=0.03, h_pad=0.03, wspace=0.03, hspace=0.03)
    axes = made.subplots(rows, columns, squeeze=False, **shared).flatten()
    return made, [plain_axes(each) for each in axes]


def grid(titles: Sequence[str], row_height: float, unit: str = "") -> tuple[Figure, list[Axes]]:
    """Small panels over the width of a page that share their axes; `unit` is the label below the lowest ones."""
    count, columns = len(titles), _grid_columns(titles)
    made, axes = panels(-(-count // columns), columns, PAGE_INCHES, row_height, sharex=True, sharey=True)
    for each in axes[count:]:
        each.remove()
    for each in axes[max(count - columns, 0) : count]:
        each.tick_params(labelbottom=True)  # also where the panel below is missing
        each.set_xlabel(unit, fontsize=SMALL_POINTS)
    for each, text in zip(axes, shown_short(titles, GRID_TITLE[columns]), strict=False):
        title(each, text)
    return made, axes[:count]


def _grid_columns(titles: Sequence[str]) -> int:
    """Three columns, or four where that leaves fewer places empty and titles are short."""
    if len(titles) <= 3:
        return len(titles)
    fits = max(map(len, titles)) <= GRID_TITLE[4]
    return 4 if fits and -len(titles) % 4 <= -len(titles) % 3 else 3


def plain_axes(axes: Axes) -> Axes:
    axes.grid(color="0.9", linewidth=0.5)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_linewidth(0.6)
    axes.tick_params(labelsize=SMALL_POINTS, width=0.6, length=2.5, pad=2)
    axes.tick_params(which="minor", width=0.4, length=1.5)
    axes.xaxis.label.set_fontsize(LABEL_POINTS)
    axes.yaxis.label.set_fontsize(LABEL_POINTS)
    axes.xaxis.labelpad = axes.yaxis.labelpad = 2.0
    return axes


def title(axes: Axes, text: str) -> None:
    axes.set_title(text, loc="left", fontsize=LABEL_POINTS, pad=3.0)


def save(figure: Figure, directory: Path, name: str) -> list[Path]:
    """Saves a figure as PDF and SVG for papers and as PNG to look at."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # the places are found; finding them again would take most of the time
    return [save_as(figure, directory / f"{name}.{form}") for form in FORMATS]


def svg_text(figure: Figure) -> str:
    """A figure as the text of an SVG file; the same figure gives the same text."""
    page = io.StringIO()
    with mpl.rc_context(_SAVING), _any_script():
        figure.savefig(page, format="svg", metadata=_METADATA["svg"])
    return page.getvalue()


def save_all(figures: Iterable[tuple[str, Figure]], directory: Path) -> list[Path]:
    return [path for name, figure in figures for path in save(figure, directory, name)]


@contextmanager
def _any_script() -> Iterator[None]:
    """Names may be of any script: a glyph that the font lacks is a box."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield


def save_as(figure: Figure, path: Path) -> Path:
    """Saves a figure in the format that the file's ending names."""
    form = path.suffix.removeprefix(".")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with mpl.rc_context(_SAVING), _any_script():
            figure.savefig(path, format=form, metadata=_METADATA[form])
    except OSError as error:
        problem = f"cannot be written: {error.strerror}"
        raise InputError(problem, file=str(path), remedy="name a folder of yours") from None
    return path
