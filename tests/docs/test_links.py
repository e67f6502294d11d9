"""Every link of the documentation leads somewhere, and every page can be found."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from markdown_pages import ROOT, Page, pages

import horae

PAGES = pages()
DOCS = ROOT / "docs"


def dangling(page: Page) -> list[str]:
    """The links of a page that lead to no file or to no heading."""
    found = []
    for line, target in page.links:
        if re.match(r"https?://", target):
            continue
        name, _, anchor = target.partition("#")
        path = (page.path.parent / name).resolve() if name else page.path
        if not path.exists():
            found.append(f"{page.name}:{line}: there is no {target}")
        elif anchor and anchor not in _anchors(Page(path)):
            found.append(f"{page.name}:{line}: there is no heading #{anchor} in {path.name}")
    return found


def _anchors(page: Page) -> set[str]:
    """Headings, and those that the site generates for commands."""
    if page.name == "docs/reference/command-line.md":
        from command_reference import commands  # noqa: PLC0415  (imports every command)

        return page.anchors | {"-".join(("horae", *words)) for words, _, _ in commands()}
    return page.anchors


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files_and_headings(page: Page) -> None:
    assert dangling(page) == []


def test_a_page_of_the_site_links_to_pages_of_the_site_only() -> None:
    outside = [
        f"{page.name}:{line}: {target}"
        for page in PAGES
        if page.path.is_relative_to(DOCS)
        for line, target in page.links
        if not target.startswith("http")
        and not (page.path.parent / target.partition("#")[0]).resolve().is_relative_to(DOCS)
    ]
    assert outside == []


def test_every_page_is_in_the_navigation_once() -> None:
    class Loader(yaml.SafeLoader):
        """Knows no tags of Python; the navigation has none."""

    Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)
    config = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Loader)
    named = list(_leaves(config["nav"]))
    assert sorted(named) == sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))


def _leaves(item: Any) -> Any:
    if isinstance(item, str):
        yield item
    else:
        for below in item.values() if isinstance(item, dict) else item:
            yield from _leaves(below)


def test_every_image_is_used() -> None:
    used = {(page.path.parent / target).resolve() for page in PAGES for _, target in page.links}
    unused = [path.name for path in (DOCS / "images").rglob("*") if path.is_file() and path not in used]
    assert unused == []


def test_the_reference_has_exactly_the_public_names() -> None:
    text = (DOCS / "reference/python.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^::: horae\.(\w+)$", text, re.MULTILINE)) == sorted(horae.__all__)


def test_every_decision_is_listed_with_its_title_and_its_status() -> None:
    folder = DOCS / "decisions"
    listed = re.findall(
        r"^\| (\d+) \| \[(.+)\]\((\S+)\) \| (.+) \|$", (folder / "README.md").read_text("utf-8"), re.MULTILINE
    )
    expected = []
    for path in sorted(folder.glob("0*.md")):
        found = re.match(r"# (\d+)\. (.+)\n\nStatus: (.+)\n\n", path.read_text(encoding="utf-8"))
        assert found, f"{path.name} begins with a number, a title and a line `Status: ...`"
        expected.append((found[1], found[2], path.name, found[3].rstrip(".")))
    assert listed == expected


def test_every_example_is_shown() -> None:
    text = (DOCS / "how-to/examples.md").read_text(encoding="utf-8")
    shown = re.findall(r'^--8<-- "examples/(.+)"$', text, re.MULTILINE)
    assert sorted(shown) == sorted(path.name for path in (ROOT / "examples").glob("*.py"))
