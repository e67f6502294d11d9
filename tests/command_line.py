"""The command line as a user sees it: exit code, standard output, standard error."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass

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
        timeout=60,
    )
    return Outcome(finished.returncode, finished.stdout, finished.stderr)


@contextmanager
def _arguments(*arguments: object) -> Iterator[None]:
    before = sys.argv
    sys.argv = [str(argument) for argument in arguments]
    try:
        yield
    finally:
        sys.argv = before
