"""Between rounds: jobs that have just come may start on free GPUs at once, in the order in which they came."""

from __future__ import annotations

import numpy as np

from horae.model.decisions import Ranking
from horae.scheduler.pool import Pool


def newcomers_first(pool: Pool) -> Ranking:
    """An order of the jobs that came since the last decision; it preempts no job, and no other job is in it."""
    rows = [pool.table.row[serial] for serial in pool.newcomers if serial in pool.table.row]
    return Ranking(np.array(rows, dtype=np.int64))
