"""Proves that scheduling decisions did not change between two checkouts.

`python -m bench.golden --against OTHER_CHECKOUT [--only PART] [--source THIS]` simulates the golden runs
(`golden_runs.py`) with the sources of both checkouts, side by side, and compares every start, stop and end in order.
The inputs are those of this folder on both sides. The exit code is 1 if any run differs, fails, or is vacuous.

    git worktree add ../before main && python -m bench.golden --against ../before
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
WIDTH = 38  # of the names of runs


class SideFailed(Exception):
    """A checkout cannot run the golden runs at all."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.golden", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--against", type=Path, required=True, help="the checkout to compare with")
    parser.add_argument("--source", type=Path, default=ROOT, help="the checkout to examine; this one, if not given")
    parser.add_argument("--only", default="", metavar="PART", help="only runs whose names contain this")
    chosen = parser.parse_args(arguments)
    try:
        return compare(chosen.source.resolve(), chosen.against.resolve(), chosen.only)
    except SideFailed as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def compare(here: Path, there: Path, only: str = "") -> int:
    """Print the table; 0 if all decisions are the same, otherwise 1."""
    print(f"{'run':{WIDTH}} starts  stops  here          there         result")
    differing, seconds, total = 0, [0.0, 0.0], 0
    with outcomes(here, only) as ours, outcomes(there, only) as theirs:
        for one, other in zip(ours, theirs, strict=True):
            result = difference(one, other)
            starts, stops = one["tally"].get("starts", 0), one["tally"].get("stops", 0)
            digests = f"{one['digest'][:12]:12}  {other['digest'][:12]:12}"
            print(f"{one['name']:{WIDTH}} {starts:6} {stops:6}  {digests}  {result or 'equal'}", flush=True)
            differing += bool(result)
            total += 1
            seconds = [spent + each["seconds"] for spent, each in zip(seconds, (one, other), strict=True)]
    print(f"{total - differing} of {total} equal; {seconds[0]:.0f} and {seconds[1]:.0f} CPU-seconds")
    return 1 if differing else 0


@contextmanager
def outcomes(checkout: Path, only: str) -> Iterator[Iterator[dict[str, Any]]]:
    """What comes of each run with the sources of a checkout, in a process of its own that runs ahead."""
    source = checkout / "src"
    if not (source / "horae").is_dir():
        raise SideFailed(f"{checkout} is not a checkout of Horae: it has no src/horae")
    command = [sys.executable, "-m", "bench.golden_side", *([only] if only else [])]
    with subprocess.Popen(
        command, cwd=ROOT, env=environment(source), stdout=subprocess.PIPE, encoding="utf-8"
    ) as process:
        try:
            yield _read(process, source)
        finally:
            process.kill()


def _read(process: subprocess.Popen[str], source: Path) -> Iterator[dict[str, Any]]:
    assert process.stdout is not None
    first = process.stdout.readline()
    if not first:
        raise SideFailed(f"the golden runs do not start with {source}: exit code {process.wait()}")
    said = json.loads(first)
    if Path(said["horae"]) != source / "horae":
        raise SideFailed(f"horae came from {said['horae']} instead of {source}")
    if not said["runs"]:
        raise SideFailed("no golden run has such a name")
    yield from map(json.loads, process.stdout)
    if process.wait():
        raise SideFailed(f"the golden runs end early with {source}: exit code {process.returncode}")


def environment(source: Path) -> dict[str, str]:
    """Python and its compiled kernels, for the sources of one checkout.

    A compiled kernel does not notice a change in a module that it takes parts from. So, as in the Makefile, the kernels
    are compiled again (which takes about two minutes) when anything in the folders changes that have some.
    """
    folders = {path.parent for path in source.rglob("*.py") if "import njit" in path.read_text(encoding="utf-8")}
    content = hashlib.sha256()
    for path in sorted(path for folder in folders for path in folder.glob("*.py")):
        content.update(f"{path.relative_to(source)}\0".encode() + path.read_bytes())
    cache = Path(tempfile.gettempdir()) / f"horae-golden-{content.hexdigest()[:16]}"
    both = f"{source}{os.pathsep}{source.parent / 'evaluation' / 'src'}"
    return {**os.environ, "PYTHONPATH": both, "PYTHONHASHSEED": "0", "NUMBA_CACHE_DIR": str(cache)}


def difference(here: dict[str, Any], there: dict[str, Any]) -> str:
    """The first difference between two outcomes of a run, or what is wrong with either; empty if there is none."""
    if here["digest"] != there["digest"]:
        pairs = zip_longest(here["decisions"], there["decisions"])
        one, other = next(pair for pair in pairs if pair[0] != pair[1])
        return f"{_told(one, 'here')}; {_told(other, 'there')}{_errors(here, there)}"
    return _errors(here, there)


def _errors(here: dict[str, Any], there: dict[str, Any]) -> str:
    return "".join(f" {side} {each['error']}" for side, each in (("here", here), ("there", there)) if each["error"])


def _told(decision: list[str] | None, side: str) -> str:
    if decision is None:
        return f"{side} nothing more"
    what, at, job, detail = decision
    return f"{side} at {at} s {what} of {job} {detail}".rstrip()


if __name__ == "__main__":
    sys.exit(main())
