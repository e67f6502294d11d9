"""The command line as a user sees it: exit code, standard output, standard error."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

from patience import HANG_SECONDS

from horae.cli import main


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    @property
    def complaint(self) -> str:
        """What a user did wrong: nothing but one line, with a remedy."""
        assert (self.code, self.out) == (2, ""), self
        assert self.err.startswith("horae: "), self.err
        assert self.err.endswith("\n"), self.err
        assert len(self.err.splitlines()) == 1, self.err
        assert "; " in self.err, self.err
        return self.err.removeprefix("horae: ").removesuffix("\n")


def horae(*arguments: object) -> Outcome:
    """The entry point, in this process: anything but an exit is a traceback, and fails the test."""
    out, err = io.StringIO(), io.StringIO()
    with _arguments("horae", *arguments), redirect_stdout(out), redirect_stderr(err):
        try:
            main.run()
        except SystemExit as exit_:
            code = exit_.code or 0
    assert isinstance(code, int)
    return Outcome(code, out.getvalue(), err.getvalue())


def horae_process(*arguments: object, **environment: str) -> Outcome:
    """The same in a process of its own."""
    finished = subprocess.run(
        [sys.executable, "-m", "horae.cli.main", *map(str, arguments)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG_SECONDS,
    )
    return Outcome(finished.returncode, finished.stdout, finished.stderr)


def horae_in_one_process(commands: Sequence[Sequence[object]], **environment: str) -> list[Outcome]:
    """Several commands, one after the other, in one process of their own; starting a process takes seconds."""
    script = (
        "import dataclasses, json, sys; from command_line import horae\n"
        "print(json.dumps([dataclasses.astuple(horae(*command)) for command in json.load(sys.stdin)]))"
    )
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    finished = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": path, **environment},
        input=json.dumps([[str(word) for word in command] for command in commands]),
        capture_output=True,
        text=True,
        check=True,
        timeout=HANG_SECONDS,
    )
    return [Outcome(*outcome) for outcome in json.loads(finished.stdout)]


@contextmanager
def _arguments(*arguments: object) -> Iterator[None]:
    before = sys.argv
    sys.argv = [str(argument) for argument in arguments]
    try:
        yield
    finally:
        sys.argv = before
