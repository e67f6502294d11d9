"""The tutorial for one server, command by command, against a real service."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

from live_service import environment, service
from markdown_pages import pages

(PAGE,) = [page for page in pages() if page.name == "docs/tutorials/one-server.md"]


def test_every_command_of_the_tutorial_works(tmp_path: Path) -> None:
    (program,) = [block.text for block in PAGE.blocks if block.language == "python"]
    (tmp_path / "train.py").write_text(program.replace("1000", "20"))
    (job_file,) = [block.text for block in PAGE.blocks if block.language == "yaml" and "run:" in block.text]
    (tmp_path / "bert.yaml").write_text(job_file)
    lines = [line for block in PAGE.blocks if block.language == "sh" for line in block.text.splitlines() if line]
    up, export, *commands = lines
    assert export == "export HORAE_STATE=lab"
    assert shlex.split(up)[:2] == ["horae", "up"]
    with service(tmp_path, "--emulate", "1x8:A100") as running:
        paths = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        settings = {**environment(), "HORAE_STATE": str(running.state), "PATH": paths}
        for line in commands:
            _run(line, tmp_path, settings)
        assert [job.state for job in running.client().jobs(name="bert")].count("finished") >= 1


def _run(line: str, folder: Path, settings: dict[str, str]) -> None:
    words = shlex.split(line, comments=True)
    assert words[0] == "horae", line
    command = [sys.executable, "-m", *words]
    done = subprocess.run(command, cwd=folder, env=settings, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{line}\n{done.stderr}"
