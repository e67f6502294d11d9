"""Between rounds: jobs that wait may start at once on free GPUs, those that have waited longest first."""

from __future__ import annotations

import numpy as np

from horae.model.decisions import Ranking
from horae.model.view import View


def longest_waiting_first(view: View) -> Ranking:
    """Ranks only the jobs that wait; the ranking preempts no job."""
    rows = np.flatnonzero(view.jobs.pending)
    order = np.lexsort((view.jobs.serial[rows], view.jobs.queued_at[rows]))
    return Ranking(rows[order])
