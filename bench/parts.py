"""The names that `python -m bench --help` shows, apart from the cases, because those import everything measured."""

from __future__ import annotations

from typing import Literal, get_args

Part = Literal["simulator", "gavel", "cells", "themis", "first-minutes", "service", "kubernetes"]
PARTS: tuple[Part, ...] = get_args(Part)
SOLVE_TIME_PLOT = "solve-time-plot"
UNDER_LOAD = "service, 10,000 queued and 2,000 running jobs"
SUBMIT_TO_START = "service, submit to start"
RECOVERY = "service, recovery after 1,000,000 events"
ETA = "service, eta among 10,000 queued and 2,000 running jobs"
CLUSTER_PAGE = "service, cluster page of 16,384 GPUs and 10,000 jobs"
SERVICE: tuple[str, ...] = (UNDER_LOAD, SUBMIT_TO_START, RECOVERY, ETA, CLUSTER_PAGE)
KUBERNETES: tuple[str, ...] = ("kubernetes, 500 gangs of 8 pods on 1,000 nodes",)
