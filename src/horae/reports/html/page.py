"""The parts of a page as HTML text. Whatever comes from a user is escaped here, and nowhere else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

from horae.model.safe_text import printable

STYLE = (Path(__file__).parent / "report.css").read_text(encoding="utf-8")
# Nothing is fetched and no script runs, whatever a browser finds in the page.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


LONG = 34  # characters of a cell that may be broken into lines


class Table(NamedTuple):
    headings: Sequence[str]
    lines: Iterable[Sequence[str]]
    left: int = 1  # columns that are names
    caption: str = ""
    strong: frozenset[int] = frozenset()  # lines that are set in bold


def text(words: str) -> str:
    """User-written or other text, on one line and safe within HTML."""
    return escape(printable(" ".join(words.split())))


def document(title: str, parts: Iterable[str]) -> str:
    return "\n".join(
        (
            "<!DOCTYPE html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="generator" content="Horae">',
            f"<title>{text(title)}</title>",
            f"<style>{STYLE}</style>",
            "</head>",
            "<body>",
            "<main>",
            *parts,
            "</main>",
            "</body>",
            "</html>",
            "",
        )
    )


def section(heading: str, parts: Iterable[str], *, name: str, starts_page: bool = False) -> str:
    kind = ' class="page"' if starts_page else ""
    body = "\n".join(part for part in parts if part)
    title = f'<h2 id="{name}-heading">{text(heading)}</h2>'
    return f'<section id="{name}"{kind} aria-labelledby="{name}-heading">\n{title}\n{body}\n</section>'


def paragraph(words: str, kind: str = "") -> str:
    return f"<p{f' class={chr(34)}{kind}{chr(34)}' if kind else ''}>{text(words)}</p>" if words else ""


def bullets(lines: Iterable[str]) -> str:
    items = "".join(f"<li>{text(line)}</li>\n" for line in lines)
    return f"<ul>\n{items}</ul>" if items else ""


def terms(pairs: Iterable[tuple[str, str]]) -> str:
    return "<dl>\n" + "".join(f"<dt>{text(term)}</dt><dd>{text(words)}</dd>\n" for term, words in pairs) + "</dl>"


def tiles(values: Iterable[tuple[str, str, str]]) -> str:
    """Large numbers: what it is, the number, and what it is to be read beside."""
    items = "".join(
        f'<div class="tile"><dt>{text(name)}</dt><dd><b>{text(value)}</b><span>{text(beside)}</span></dd></div>\n'
        for name, value, beside in values
    )
    return f'<dl class="tiles">\n{items}</dl>'


def table(content: Table) -> str:
    head = "".join(
        f'<th scope="col"{_side(index, content.left)}>{text(cell)}</th>' for index, cell in enumerate(content.headings)
    )
    rows = "\n".join(_row(line, content.left, number in content.strong) for number, line in enumerate(content.lines))
    caption = f"<caption>{text(content.caption)}</caption>" if content.caption else ""
    return f'<div class="wide"><table>{caption}<thead><tr>{head}</tr></thead><tbody>\n{rows}\n</tbody></table></div>'


def figure(svg: str, caption: str) -> str:
    """`svg` is an element that `inline_svg` made."""
    return f"<figure>{svg}<figcaption>{text(caption)}</figcaption></figure>"


def _row(line: Sequence[str], left: int, is_strong: bool) -> str:
    cells = "".join(
        f'<th scope="row" class="name">{text(cell)}</th>'
        if not index
        else f"<td{_side(index, left, cell)}>{text(cell)}</td>"
        for index, cell in enumerate(line)
    )
    return f"<tr{' class=' + chr(34) + 'strong' + chr(34) if is_strong else ''}>{cells}</tr>"


def _side(index: int, left: int, cell: str = "") -> str:
    kind = "name" if index < left else "long" if len(cell) > LONG else ""
    return f' class="{kind}"' if kind else ""
