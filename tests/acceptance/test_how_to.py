"""What the how-to page on GPU types states beyond its commands, which `tests/docs` runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from command_line import horae

PAGE = (Path(__file__).parents[2] / "docs/how-to/add-a-gpu-type.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"`([\w.-]+\.(?:yaml|csv|json))`:\n\n```\w*\n(.*?)```", PAGE, re.DOTALL))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_a_type_without_a_speed_is_not_accepted() -> None:
    horae("simulate", "--cluster", "lab.yaml", "--jobs", "jobs-with-speeds.csv", "--journal", "run.jsonl")
    assert "submitted by default: 1 x V100 in one node\n" in horae("why", "large-1", "--journal", "run.jsonl").out


def test_a_model_without_speeds_and_with_steps_is_a_broken_row() -> None:
    Path("jobs.csv").write_text(FILES["jobs.csv"] + "new-1,0,1,100,Unheard\n", encoding="utf-8")
    done = horae(
        "compare",
        "jobs.csv",
        "--cluster",
        "lab.yaml",
        "--speeds",
        "speeds.json",
        "--policy",
        "fifo",
        "--broken-max",
        "0.2",
    )
    assert done.code == 0
    assert "jobs.csv:6: model: how fast 'Unheard' runs on the cluster's GPUs is not known" in done.err
