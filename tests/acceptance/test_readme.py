"""The commands and figures that the README prints are those that one gets."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from command_line import Outcome, horae

from horae.cli.workload import EQUALLY_FAST

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^\.venv/bin/horae (.*)$", README, re.MULTILINE)


def run(command: str, folder: Path, monkeypatch: pytest.MonkeyPatch, *more: str) -> Outcome:
    """As typed in the checkout; what it writes goes elsewhere."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    words = [str(ROOT / word) if word.startswith("src/") else word for word in shlex.split(command)]
    return horae(*words, *more)


def test_every_command_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(COMMANDS) >= 8
    assert len(README.splitlines()) < 150
    for name, block in (("lab.yaml", r"```yaml\n(# lab.yaml\n.*?)```"), ("jobs.csv", r"```csv\n(# jobs.csv\n.*?)```")):
        (tmp_path / name).write_text(re.findall(block, README, re.DOTALL)[0], encoding="utf-8")
    for command in COMMANDS:
        if not command.startswith("compare"):
            done = run(command, tmp_path, monkeypatch)
            assert (done.code, done.err.replace(f"{EQUALLY_FAST}\n", "")) == (0, ""), (command, done)
            if command.startswith("why"):
                assert done.out in README


def test_four_columns_give_the_table_of_the_readme_with_plots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (command,) = [command for command in COMMANDS if command.startswith("compare") and "usage.csv" in command]
    done = run(command, tmp_path, monkeypatch, "-o", "md")
    assert done.code == 0
    assert done.out.strip() in README
    names = (
        "completion", "fairness", "mean-completion", "queue", "rho", "times", "use-and-fairness", "utilisation",
    )  # fmt: skip
    drawn = sorted(path.name for path in (tmp_path / "plots").iterdir())
    assert drawn == [f"{name}.{form}" for name in names for form in ("pdf", "png", "svg")]
