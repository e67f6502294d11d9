"""The names that `python -m bench --help` shows, apart from the cases, because those import everything measured."""

from __future__ import annotations

from typing import Literal, get_args

Part = Literal["simulator", "gavel", "cells", "themis", "first-minutes"]
PARTS: tuple[Part, ...] = get_args(Part)
SOLVE_TIME_PLOT = "solve-time-plot"
