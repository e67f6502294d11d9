"""`make bench`: speed and memory, as figures and ratios. Writes bench/results.json and bench/scaling.png.

`python -m bench CASE` runs one case, `python -m bench solve-time-plot` draws docs/images/solve-time.png. `--part gavel`
runs the cases of Gavel's policies and leaves the other figures as they are. `--against CHECKOUT` compares with another
checkout: each case runs three times here and three times there, in turn, and the ratio of the fastest runs is printed.

Every case runs alone in a process of its own, journal off. Seconds are processor time for runs, and of the wall for
reading, metrics and comparisons. The machine's own speed (a plain Python loop) is measured in the same process, so that
runs on different or busy machines can be compared by their ratio to it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from bench.parts import PARTS, SOLVE_TIME_PLOT


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure speed and memory.")
    parser.add_argument("case", nargs="?", help="run this case alone; a wrong name lists them all", metavar="CASE")
    parser.add_argument("--part", choices=PARTS, help="run these cases, and leave the other figures as they are")
    parser.add_argument("--against", type=Path, metavar="CHECKOUT", help="compare with another checkout; write nothing")
    asked = parser.parse_args()
    from bench.suite import CASES, run  # noqa: PLC0415  it imports all that is measured

    if asked.case not in (None, SOLVE_TIME_PLOT, *CASES):
        parser.error(f"there is no case {asked.case!r}; choose one of\n" + "\n".join([*CASES, SOLVE_TIME_PLOT]))
    run(asked.case, asked.part, asked.against)


if __name__ == "__main__":
    main()
