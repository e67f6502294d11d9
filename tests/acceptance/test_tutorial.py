"""The tutorial does what it says: its policy is written to disk, found by its entry point, checked and run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TUTORIAL = (ROOT / "docs/tutorials/write-a-policy.md").read_text(encoding="utf-8")
POLICY, CHECK = re.findall(r"```python\n(.*?)```", TUTORIAL, re.DOTALL)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """What `pip install -e .` would leave behind."""
    (tmp_path / "patience").mkdir()
    (tmp_path / "patience/__init__.py").touch()
    (tmp_path / "patience/policy.py").write_text(POLICY, encoding="utf-8")
    info = tmp_path / "patience-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: patience\nVersion: 0.1\n")
    (entry,) = re.findall(r'\[project.entry-points."horae.policies"\]\npatience = "(.*)"', TUTORIAL)
    (info / "entry_points.txt").write_text(f"[horae.policies]\npatience = {entry}\n")
    return tmp_path


def run(site: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")]))
    environment = os.environ | {"PYTHONPATH": path, "COLUMNS": "200", "XDG_CACHE_HOME": str(site / "cache")}
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


def test_the_policy_has_no_more_than_thirty_lines() -> None:
    assert len(POLICY.strip().splitlines()) <= 30


def test_the_policy_passes_the_check_as_the_tutorial_calls_it(site: Path) -> None:
    done = run(site, "-c", CHECK)
    assert done.returncode == 0, done.stderr


def test_a_policy_that_sorts_by_the_ratio_alone_is_rejected_in_the_words_of_the_tutorial(site: Path) -> None:
    worse = POLICY.replace("np.lexsort((jobs.serial[waiting], -ratio))", "np.argsort(-ratio, kind='stable')")
    assert worse != POLICY
    (site / "patience/policy.py").write_text(worse, encoding="utf-8")
    done = run(site, "-c", CHECK)
    quoted = " ".join(re.findall(r"^    (policy 'patience' .*\n    .*)$", TUTORIAL, re.MULTILINE)[0].split())
    assert quoted in done.stderr


def test_the_commands_of_the_tutorial_run(site: Path) -> None:
    commands = [
        line for block in re.findall(r"```sh\n(horae .*?)```", TUTORIAL, re.DOTALL) for line in block.splitlines()
    ]
    assert len(commands) == 4
    for command in commands:
        words = [word.strip("'") for word in re.findall(r"'[^']*'|\S+", command)[1:]]
        words = [str(site / word) if word == "run.jsonl" else word for word in words]
        done = run(site, "-m", "horae.cli.main", *words)
        assert done.returncode == 0, (command, done.stderr)
        assert "patience" in done.stdout
