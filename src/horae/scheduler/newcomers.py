"""Between rounds: newly submitted jobs may start on free GPUs at once, in order of arrival."""

from __future__ import annotations

import numpy as np

from horae.model.decisions import Ranking
from horae.scheduler.pool import Pool


def newcomers_first(pool: Pool) -> Ranking:
    """Ranks only the jobs submitted since the last decision; the ranking preempts no job."""
    rows = [pool.table.row[serial] for serial in pool.newcomers if serial in pool.table.row]
    return Ranking(np.array(rows, dtype=np.int64))
