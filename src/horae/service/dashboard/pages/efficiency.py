"""Efficiency: GPUs held and used, utilisation and throughput by GPU type, prices of types, idle GPU-hours."""

from __future__ import annotations

from typing import Any

from horae.service.api.routes.fairness import gpu_hours, prices, show_efficiency
from horae.service.dashboard.page import View
from horae.service.dashboard.windows import WINDOWS, window_of

JOBS_SHOWN = 200


async def data(view: View) -> dict[str, Any]:
    who, all_, (window, since) = view.who, view.all_, window_of(view)
    found = await show_efficiency(who, all_, since, JOBS_SHOWN)
    return {
        "window": window,
        "windows": list(WINDOWS),
        **found.model_dump(),
        "hours": [row.model_dump() for row in await gpu_hours(who, all_, since)],
        "prices": [row.model_dump() for row in await prices(who, all_)],
    }
