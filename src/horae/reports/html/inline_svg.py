"""A figure as an SVG element of a page."""

from __future__ import annotations

import re
from html import escape

from matplotlib.figure import Figure

from horae.reports.plots import style


def inline_svg(figure: Figure, name: str, description: str) -> str:
    """The figure with a text for readers who do not see it. `name` makes its identifiers unique on the page."""
    text = style.svg_text(figure)
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', text)
    text = re.sub(r'(xlink:href="#|url\(#)', rf"\g<1>{name}-", text)
    text = re.sub(r'\bd="[^"]*"', _rounded, text)
    text = re.sub(r"\n\s*", "\n", text)
    head, rest = text.split(">", 1)
    head = re.sub(r' (width|height)="[^"]*"', "", head)
    label = f"{name}-title"
    return f'{head} role="img" aria-labelledby="{label}"><title id="{label}">{escape(description)}</title>{rest}'


def _rounded(path: re.Match[str]) -> str:
    """A path in hundredths of a point: no screen or printer shows more."""
    return re.sub(r"(\d+\.\d{2})\d+", r"\1", path.group())
