"""All distributions have one version, and the changelog begins with it."""

from __future__ import annotations

import re
import tomllib

from markdown_pages import ROOT

import horae


def test_one_version_everywhere() -> None:
    ours, second, sdk = (
        tomllib.loads((ROOT / folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        for folder in (".", "evaluation", "sdk")
    )
    assert ours["version"] == second["version"] == sdk["version"] == horae.__version__
    assert f"horae=={horae.__version__}" in second["dependencies"]


def test_the_changelog_has_one_section_per_version_newest_first() -> None:
    headings = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    headings = headings[1:] if headings[0] == "Unreleased" else headings
    versions = [re.fullmatch(r"(\d+)\.(\d+)\.(\d+)(?: \(\d{4}-\d{2}-\d{2}\))?", heading) for heading in headings]
    assert all(versions), headings
    numbers = [tuple(map(int, found.groups())) for found in versions if found]
    assert numbers == sorted(set(numbers), reverse=True)
    assert headings[0].split()[0] == horae.__version__
