"""Every GPU of the cluster as columns: a list of objects would be ten times as large at 16,384 GPUs."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel

# Of a job's GPUs: in its tenant's cells, outside of them, or of a tenant without cells. Of other tenants' jobs it is
# not told.
Kind = Literal["guaranteed", "borrowed", "shared", "other"]


class NodeColumns(BaseModel):
    """Nodes in the order of the cluster; each has the GPUs after those of the node before."""

    name: list[str]
    gpu_type: list[str]
    gpus: list[int]
    group: list[str]  # the rack or another cell above the node; "": none
    inside: list[int]  # GPUs per cell within the node, e.g. per socket; 0: it has no cells
    inside_level: list[str]  # the name of these cells
    health: list[str]
    reason: list[str]


class JobColumns(BaseModel):
    """Jobs that hold GPUs. Those of other tenants are one entry, the last."""

    id: list[str]
    name: list[str]
    tenant: list[str]
    app: list[str]
    user: list[str]
    state: list[str]
    kind: list[Kind]
    gpus: list[int]
    started_at: list[float | None]
    rho: list[float | None]  # only on request


class GpuMap(BaseModel):
    cluster: str
    nodes: NodeColumns
    jobs: JobColumns
    holder: list[int]  # by GPU: its job, as a position in `jobs`; -1: none
    second: dict[int, int]  # by GPU: the job that shares it
    unusable: dict[int, str]  # by GPU: why no job of Horae can use it; "foreign": used by other processes
