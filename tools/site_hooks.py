"""Hooks of `make docs`: pages that are made from other sources, and a check that the site needs no network."""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

import column_reference
import command_reference
from mkdocs.exceptions import PluginError

ROOT = Path(__file__).parents[1]
INCLUDED = re.compile(r"^<!-- the file (\S+) -->$", re.MULTILINE)
GENERATED = {
    "<!-- all commands -->": command_reference.reference,
    "<!-- all columns of jobs -->": column_reference.reference,
}
# What a browser would load by itself; links that a reader may follow are not part of it.
LOADED = re.compile(
    r"<(?:script|img|iframe|source)\b[^>]*\bsrc=[\"']?(?:https?:)?//|<link\b[^>]*\bhref=[\"']?(?:https?:)?//"
)
BARS = re.compile(r"`([^`\n]*\\\|[^`\n]*)`")  # code with a bar in a table, escaped as GitHub wants it
STYLES = re.compile(r"(?:url\(|@import\s*)[\"']?(?:https?:)?//")


def on_page_markdown(markdown: str, *, page: Any, **_: object) -> str:
    if page.parent is None:
        page.meta.setdefault("hide", ["navigation"])  # a page that is a tab of its own has none beside it
    markdown = INCLUDED.sub(lambda found: _file(found[1]), markdown)
    markdown = BARS.sub(lambda found: _code(found[1].replace("\\|", "|")), markdown)
    for mark, make in GENERATED.items():
        if mark in markdown:
            markdown = markdown.replace(mark, make())
    return markdown


def on_post_build(*, config: Any, **_: object) -> None:
    site = Path(config.site_dir)
    found = [
        f"{path.relative_to(site)}: {match[0]}"
        for pattern, end in ((LOADED, "html"), (STYLES, "css"))
        for path in sorted(site.rglob(f"*.{end}"))
        for match in pattern.finditer(path.read_text(encoding="utf-8"))
    ]
    if found:
        raise PluginError("the site loads from the network:\n" + "\n".join(found))


def _code(text: str) -> str:
    return f"<code>{html.escape(text).replace('|', '&#124;')}</code>"


def _file(name: str) -> str:
    """A file of the repository, with its links as seen from the folder of the documentation."""
    text = (ROOT / name).read_text(encoding="utf-8")
    return text.replace("](docs/", "](").replace("](CONTRIBUTING.md", "](contributing.md")
