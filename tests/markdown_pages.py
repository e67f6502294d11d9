"""The documentation as data: pages, fenced blocks with what is said about them, links and headings.

What is not checked has to say so, in a comment on the line above a block:

- `<!-- fragment -->`: only part of a program or of a file; it must parse, but is not run or loaded;
- `<!-- not run: REASON -->`: commands that exist with these options, but need what the page does not have.

`<!-- output -->` above a table: it is printed by the commands before it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[1]
MARK = re.compile(r"^<!-- (fragment|output|not run: .+) -->$")
FILE = re.compile(r"`([\w./-]+\.(?:yaml|csv|json|toml|py))`:$")  # the end of a sentence that names the next block
FIRST_LINE_FILE = re.compile(r"# ([\w-]+\.(?:yaml|csv))\n")  # or the first line of the block itself
INCLUDE = re.compile(r'^--8<-- "(.+)"$', re.MULTILINE)
LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\[\]]*\])*\]\(([^()\s]+)\)")


@dataclass(frozen=True)
class Block:
    line: int  # of its fence
    language: str
    text: str
    mark: str  # "", "fragment", "output" or "not run: ..."
    file: str  # the name under which the page wants it to be saved; "" for none

    @property
    def is_fragment(self) -> bool:
        return self.mark == "fragment"

    @property
    def is_run(self) -> bool:
        return not self.mark.startswith(("fragment", "not run"))


@dataclass(frozen=True)
class Page:
    path: Path

    @property
    def name(self) -> str:
        return self.path.relative_to(ROOT).as_posix()

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def blocks(self) -> list[Block]:
        """Fenced blocks, and tables that are the output of a command."""
        return list(_blocks(self.text.splitlines()))

    @cached_property
    def prose(self) -> list[tuple[int, str]]:
        """The numbered lines outside of blocks."""
        lines, inside = [], False
        for number, line in enumerate(self.text.splitlines(), start=1):
            if line.startswith("```"):
                inside = not inside
            elif not inside and not line.startswith("    "):
                lines.append((number, line))
        assert not inside, f"{self.name}: a block is not closed"
        return lines

    @cached_property
    def links(self) -> list[tuple[int, str]]:
        """Where it links to, with line numbers; a link may go on in the next line."""
        text = "\n".join(re.sub(r"`[^`\n]*`", "``", line) for _, line in self.prose)
        numbers = [number for number, _ in self.prose]
        return [(numbers[text.count("\n", 0, found.start())], found[1]) for found in LINK.finditer(text)]

    @cached_property
    def anchors(self) -> set[str]:
        """The anchors of its headings, as GitHub and the site make them."""
        headings = [found[1] for _, line in self.prose if (found := re.match(r"#+ (.*)$", line))]
        return {_slug(heading) for heading in headings}

    @cached_property
    def code(self) -> list[tuple[int, str]]:
        """Inline code, with line numbers."""
        return [(number, found) for number, line in self.prose for found in re.findall(r"`([^`]+)`", line)]


def pages() -> list[Page]:
    named = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "examples/README.md")]
    return [Page(path) for path in (*named, *sorted((ROOT / "docs").rglob("*.md")))]


def _slug(heading: str) -> str:
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", text.lower()).strip().replace(" ", "-")


def _blocks(lines: list[str]) -> Iterator[Block]:
    position = 0
    while position < len(lines):
        mark = MARK.match(lines[position - 1]) if position else None
        said = mark[1] if mark else ""
        if lines[position].startswith("```"):
            end = next(index for index in range(position + 1, len(lines)) if lines[index].startswith("```"))
            text = "".join(f"{line}\n" for line in lines[position + 1 : end])
            text = INCLUDE.sub(lambda found: (ROOT / found[1]).read_text(encoding="utf-8").rstrip("\n"), text)
            yield Block(position + 1, lines[position][3:], text, said, _file(lines, position, text))
            position = end
        elif said == "output":
            end = next((index for index in range(position, len(lines)) if not lines[index]), len(lines))
            yield Block(position + 1, "text", "".join(f"{line}\n" for line in lines[position:end]), said, "")
            position = end
        position += 1


def _file(lines: list[str], position: int, text: str) -> str:
    before = next((line for line in reversed(lines[:position]) if line), "")
    found = FILE.search(before) or FIRST_LINE_FILE.match(text)
    return found[1] if found else ""
