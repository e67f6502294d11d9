"""The stretch of time that a page shows."""

from __future__ import annotations

import time

from horae.service.api.problems import Refused
from horae.service.dashboard.page import View

WINDOWS = {"hour": 3600.0, "day": 86_400.0, "week": 7 * 86_400.0, "month": 30 * 86_400.0}


def window_of(view: View) -> tuple[str, float]:
    """Its name, and the Unix time at which it begins."""
    name = view.query.get("window", "day")
    if name not in WINDOWS:
        raise Refused(422, "is not known", field="window", remedy=f"use one of {', '.join(WINDOWS)}")
    return name, time.time() - WINDOWS[name]


def moment_of(view: View, name: str) -> float | None:
    """A Unix time in the query."""
    text = view.query.get(name)
    if not text:
        return None
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 <= found <= 1e12:
        raise Refused(422, "is no Unix time", field=name, remedy="give seconds since 1970")
    return found
