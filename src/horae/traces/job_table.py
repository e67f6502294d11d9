"""The job table of a user, read for one cluster: the first row that is wrong is an error."""

from __future__ import annotations

from pathlib import Path

from horae.model.cells import Cluster
from horae.model.errors import JobError
from horae.model.jobs import Arrival
from horae.traces.arrivals import arrivals
from horae.traces.job_row import JobRow
from horae.traces.readers import native
from horae.traces.trace import no_jobs, too_large

__all__ = ["JobRow", "read_jobs"]


def read_jobs(path: Path, cluster: Cluster, *, whole_nodes: bool = False) -> list[Arrival]:
    """All jobs of a file, in the order of submission."""
    try:
        trace = native.read(path).strict()
        jobs, faults = arrivals(trace, cluster, whole_nodes=whole_nodes)
        for fault in sorted(faults):
            raise fault.error(trace.source)
    except JobError as error:
        raise native.place(error, path) from None
    except MemoryError:
        raise too_large(str(path)) from None
    if not jobs:
        raise no_jobs(str(path))
    return jobs
