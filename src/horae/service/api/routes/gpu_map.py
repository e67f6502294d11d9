"""The map of the cluster: every GPU and its use at one moment."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query

from horae.service.api.gpu_map import read_gpu_map
from horae.service.api.routes.jobs import All, Who
from horae.service.gpu_map_models import GpuMap

router = APIRouter(tags=["cluster"])
RHO_SECONDS = 1.0  # how long the scheduler may take to tell it


@router.get("/gpus")
async def show_gpus(
    who: Who, all_: All, rho: Annotated[bool, Query(description="also the rho of each job's app")] = False
) -> GpuMap:
    """All GPUs as columns, with the jobs on them; jobs of other tenants are one entry."""
    known = await all_.read(all_.setups.read)
    found = await all_.read(lambda connection: read_gpu_map(connection, who, known.setup))
    if rho and found.jobs.id:
        answer = await all_.loop.ask_if_quick({"rho": found.jobs.id}, RHO_SECONDS)
        told: Any = answer.get("rho")
        values = told if isinstance(told, dict) else {}
        found.jobs.rho = [values.get(job_id) for job_id in found.jobs.id]
    return found
