"""Cluster: every GPU in its node, socket and rack."""

from __future__ import annotations

from typing import Any

from horae.service.api.routes.gpu_map import show_gpus
from horae.service.dashboard.page import View


async def data(view: View) -> dict[str, Any]:
    """The map of all GPUs as columns; `colour=rho` asks for the fairness of each job, too."""
    colour = view.query.get("colour", "tenant")
    found = await show_gpus(view.who, view.all_, rho=colour == "rho")
    return {**found.model_dump(mode="json"), "colour": colour if colour in ("tenant", "app", "rho") else "tenant"}
