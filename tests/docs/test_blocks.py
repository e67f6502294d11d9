"""What the documentation shows works: programs run, files load, commands exist and run, and print what is printed here.

`markdown_pages` has the comments by which a page states that a block is not checked in full.
"""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
import sys
import tomllib
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest
import typer
import yaml
from command_line import horae
from markdown_pages import ROOT, Block, Page, pages

from horae import load_cluster, load_jobs
from horae.cli.main import app
from horae.service.config import configure
from horae.service.job_file import read_job_file

PAGES = pages()
LANGUAGES = {"python", "yaml", "json", "toml", "csv", "sh", "text", ""}  # without a language: as text
COMMAND = re.compile(r"(?:\.venv/bin/)?horae (.*)")
# What tests of their own run: commands in a checkout, an installed policy, and the files of examples/.
RUN_ELSEWHERE = {
    "README.md": {"sh"},
    "docs/tutorials/write-a-policy.md": {"sh", "python"},
    "docs/how-to/examples.md": {"python"},
    "docs/tutorials/one-server.md": {"sh", "python"},  # tests/service/test_tutorial.py
}


def blocks(*languages: str) -> list[Any]:
    return [
        pytest.param(page, block, id=f"{page.name}:{block.line}")
        for page in PAGES
        for block in page.blocks
        if block.language in languages
    ]


def commands(block: Block) -> list[str]:
    """The lines of a block of commands, without comments."""
    joined = block.text.replace("\\\n", " ")
    return [line for line in joined.splitlines() if line.strip() and not line.startswith("#")]


def parse(words: list[str]) -> None:
    """Parses a command with its options as the command line would, and runs nothing."""
    command: Any = typer.main.get_command(app)
    context: Any = typer.Context(command, info_name="horae")
    while hasattr(command, "list_commands"):
        assert words, "no command is named"
        name, *words = words
        command = command.get_command(context, name)
        assert command is not None, f"there is no command {name!r}"
        context = typer.Context(command, info_name=name, parent=context)
    command.make_context(context.info_name, words, parent=context.parent)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_has_a_language_that_is_checked(page: Page) -> None:
    assert {block.language for block in page.blocks} <= LANGUAGES
    for block in page.blocks:
        if block.language in ("", "text"):
            hidden = [line for line in block.text.splitlines() if COMMAND.match(line) or line.startswith("import ")]
            assert not hidden, f"{page.name}:{block.line}: commands belong in `sh`, programs in `python`"


@pytest.mark.parametrize(("page", "block"), blocks("python"))
def test_programs_compile(page: Page, block: Block) -> None:
    compile(block.text, f"{page.name}:{block.line}", "exec")


@pytest.mark.parametrize(("page", "block"), blocks("yaml", "json", "toml", "csv"))
def test_files_are_read(page: Page, block: Block, tmp_path: Path) -> None:
    match block.language:
        case "json":
            json.loads(block.text)
        case "toml":
            tomllib.loads(block.text)
        case "csv":
            rows = [row for row in csv.reader(io.StringIO(block.text)) if row and not row[0].startswith("#")]
            assert len(rows) > 1
            assert len({len(row) for row in rows}) == 1, rows
        case "yaml":
            content = yaml.safe_load(block.text)
            assert isinstance(content, dict)
            if not block.is_fragment:
                path = tmp_path / "file.yaml"
                path.write_text(block.text, encoding="utf-8")
                _read(path, content)


def _read(path: Path, content: dict[str, object]) -> None:
    if "jobs" in content:
        assert load_jobs(path, load_cluster("2x8"))
    elif "run" in content:
        assert read_job_file(path).gpus
    elif "users" in content or "limits" in content:
        assert configure(path.parent, path, [], [], None, None).setup.pools
    else:
        assert load_cluster(path)


@pytest.mark.parametrize(("page", "block"), blocks("sh"))
def test_commands_exist_with_their_options(page: Page, block: Block) -> None:
    for line in commands(block):
        words = shlex.split(line, comments=True)
        if found := COMMAND.match(line):
            parse(shlex.split(found[1], comments=True))
        elif words[0] == "make":
            folder, target = (words[2], words[3]) if words[1] == "-C" else (".", words[1])
            assert target in _targets(folder), line
        elif words[0] in ("kubectl", "docker"):
            named = [word for word in words if word.startswith("deploy/")]
            assert all((ROOT / path).exists() for path in named), line
        else:
            assert words[0] in ("pip", ".venv/bin/python", "export"), f"{line}: teach this test what it is"


def _targets(folder: str) -> set[str]:
    """Of the Makefile there."""
    return set(re.findall(r"^([a-z]+):", (ROOT / folder / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


@pytest.mark.parametrize("page", [each for each in PAGES if each.name != "CHANGELOG.md"], ids=lambda page: page.name)
def test_commands_named_in_the_text_exist_with_their_options(page: Page) -> None:
    for line, code in page.code:
        words = code.split()
        if words[:1] == ["horae"] and len(words) > 1 and words[1].islower() and words[1].isalpha():
            assert _knows(words[1:]), f"{page.name}:{line}: {code}"


def _knows(words: list[str]) -> bool:
    words = words[: words.index("--")] if "--" in words else words  # what follows is the command of a job
    command: Any = typer.main.get_command(app)
    context: Any = typer.Context(command, info_name="horae")
    while hasattr(command, "list_commands") and words and words[0].isalpha() and words[0].islower():
        name, *words = words
        command = command.get_command(context, name)
        if command is None:
            return False
        context = typer.Context(command, info_name=name, parent=context)
    known = {name for each in command.get_params(context) for name in (*each.opts, *each.secondary_opts)}
    return all(word.partition("=")[0] in known for word in words if word.startswith("-"))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder in which a page is followed; modules that it writes can be imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    known = set(sys.modules)
    with mpl.rc_context({"backend": "agg"}):
        yield tmp_path
    for name in set(sys.modules) - known:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.mark.parametrize("page", [page for page in PAGES if page.blocks], ids=lambda page: page.name)
def test_pages_can_be_followed(page: Page, folder: Path) -> None:
    """Files are saved; then, from top to bottom, programs and commands are run, and text below is what they print."""
    for block in page.blocks:
        if block.file:
            (folder / block.file).parent.mkdir(parents=True, exist_ok=True)
            (folder / block.file).write_text(block.text.removeprefix(f"# {block.file}\n"), encoding="utf-8")
    names: dict[str, Any] = {"__name__": "__main__"}
    printed = None
    for block in page.blocks:
        place = f"{page.name}:{block.line}"
        is_run = block.is_run and not block.file and block.language not in RUN_ELSEWHERE.get(page.name, ())
        if block.language == "python" and is_run:
            printed = _printed_by(block.text, place, names)
        elif block.language == "sh" and is_run:
            printed = "".join(_run(line, place) for line in commands(block))
        elif block.language == "text" and printed is not None:
            assert _prints(printed, block.text), f"{place}: this is not what is printed:\n{printed}"
            printed = None
        else:
            assert block.mark != "output", f"{place}: no command before it was run"
            printed = None


def _printed_by(program: str, place: str, names: dict[str, Any]) -> str:
    out = io.StringIO()
    with redirect_stdout(out):
        exec(compile(program, place, "exec"), names)
    return out.getvalue()


def _run(line: str, place: str) -> str:
    found = COMMAND.match(line)
    if not found:
        return ""
    done = horae(*shlex.split(found[1], comments=True))
    assert done.code == 0, f"{place}: {line}\n{done.err}"
    return done.out + done.err


def _prints(printed: str, text: str) -> bool:
    """Whether the lines of the text are printed one after the other; a line of dots stands for any lines."""
    parts = [re.escape(part.strip("\n")) for part in re.split(r"^\.\.\.\n", text, flags=re.MULTILINE)]
    return re.search(r"\n(?:.*\n)*?".join(part for part in parts if part), printed) is not None
