"""The results of Themis' claims as a page of tables for the documentation."""

from __future__ import annotations

from collections.abc import Sequence

from horae_evaluation.themis.claims import Chapter, ClaimPoint
from horae_evaluation.themis.philly import PhillyRow

COLUMNS = (
    ("max rho", "rho_paper_max", 1.0, ".2f"),
    ("at least", "rho_floor_max", 1.0, ".2f"),
    ("measured", "rho_measured_max", 1.0, ".2f"),
    ("mean", "rho_measured_mean", 1.0, ".2f"),
    ("Jain", "rho_measured_jain", 1.0, ".3f"),
    ("over 1", "over_share", 1.0, ".1%"),
    ("completion (h)", "completion_mean_seconds", 1 / 3600, ".2f"),
    ("GPU-hours", "gpu_hours", 1.0, ",.0f"),
    ("starts", "starts", 1.0, ",.0f"),
)
LIAR = (("liar: completion (h)", "watched_completion_seconds", 1 / 3600, ".2f"), ("its rho", "watched_rho", 1.0, ".2f"))
PHILLY = ("max rho", "private", "Jain", "over 1", "completion (h)", "GPU-hours", "restarts")
VERDICTS = {True: "holds", False: "**does not hold**", None: "measured"}


def page(chapters: Sequence[Chapter], images: str = "../images") -> str:
    return "\n".join(line for chapter in chapters for line in _chapter(chapter, images))


def values(point: ClaimPoint, columns: Sequence[tuple[str, str, float, str]] = COLUMNS) -> list[str]:
    return [f"{point.median(field) * unit:{form}}" for _, field, unit, form in columns]


def philly_values(row: PhillyRow) -> list[str]:
    return [
        f"{row.rho_paper_max:.2f}", f"{row.rho_private_max:.2f}", f"{row.rho_private_jain:.3f}",
        f"{row.over_share:.1%}", f"{row.completion_mean_seconds / 3600:.2f}", f"{row.gpu_hours:,.0f}",
        f"{row.restarts:,}",
    ]  # fmt: skip


def philly_page(rows: Sequence[PhillyRow]) -> str:
    return "\n".join([*_table(["policy"], PHILLY, [[row.policy, *philly_values(row)] for row in rows]), ""])


def _chapter(chapter: Chapter, images: str) -> list[str]:
    columns = (*COLUMNS, *LIAR) if chapter.number == 7 else COLUMNS
    headings = [heading for heading, *_ in columns]
    headings.insert(3, "range")
    rows = []
    for name, points in chapter.lines.items():
        for point in points:
            cells = values(point, columns)
            low, high = point.range("rho_measured_max")
            cells.insert(3, f"{low:.2f} to {high:.2f}")
            rows.append([name, point.label, *cells])
    seeds = len(next(iter(chapter.lines.values()))[0].results)
    return [
        f"## {chapter.number}. {chapter.title}", "",
        f"{seeds} seed{'s' if seeds > 1 else ''}.", "",
        *_table(["", chapter.axis], headings, rows), "",
        f"![{chapter.title}]({images}/themis-{chapter.number}.png)", "",
        *(f"- {VERDICTS[each.holds]}: {each.claim}: {each.measured}." for each in chapter.findings), "",
    ]  # fmt: skip


def _table(names: Sequence[str], headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [
        f"| {' | '.join([*names, *headings])} |",
        f"|{'---|' * len(names)}{'---:|' * len(headings)}",
        *(f"| {' | '.join(cells)} |" for cells in rows),
    ]
